package fault

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// The table in docs/protocol.md, headed by "| Code |", is the text of record.
func TestTableIsTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, ok := strings.Cut(string(text), "| Code | Name | Meaning | Retry | Context |\n| --- | --- | --- | --- | --- |\n")
	if !ok {
		t.Fatal("docs/protocol.md has no fault table")
	}
	var got, want []string
	for line := range strings.Lines(rows) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		got = append(got, strings.TrimSpace(line))
	}
	for _, code := range Codes {
		again := "no"
		if code.Retryable() {
			again = "yes"
		}
		var context []string
		for _, f := range code.Context() {
			kind := f.Type
			if f.Nullable {
				kind += ", nullable"
			}
			context = append(context, fmt.Sprintf("`%s` (%s)", f.Name, kind))
		}
		want = append(want, fmt.Sprintf("| %d | %s | %s | %s | %s |",
			int(code), code.Name(), code.Meaning(), again, strings.Join(context, ", ")))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("docs/protocol.md has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCodesWithoutMeaning(t *testing.T) {
	t.Parallel()
	for code, valid := range map[Code]bool{5000: false, 5001: true, 5007: true, 5999: true, 6000: false, 0: false} {
		if code.Valid() != valid {
			t.Errorf("Code(%d).Valid() = %t", code, !valid)
		}
	}
	c := Code(5042)
	if c.Retryable() || c.Name() != "Error 5042" || c.Meaning() != "" || c.Context() != nil {
		t.Errorf("5042 = %q, %q, %t, %v, want a name made of the number and nothing else", c.Name(), c.Meaning(), c.Retryable(), c.Context())
	}
}

// Every fault made here has the context that its code promises.
func TestContextIsComplete(t *testing.T) {
	t.Parallel()
	for _, f := range []*Fault{
		Invalid("payload.step", "must be an object"), Invalid("", "is not JSON"), Unsupported("x", nil), Unsupported("x", []string{"y", "z"}),
	} {
		for _, field := range f.Code.Context() {
			if v, ok := f.Context[field.Name]; !ok || v == nil && !field.Nullable {
				t.Errorf("%v: context %v lacks %s", f, f.Context, field.Name)
			}
		}
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault        *Fault
		error, field string
	}{
		{Invalid("payload.step", "must be %s", "an object"), "5003 Invalid Message: payload.step: must be an object", "payload.step"},
		{Invalid("", "is not JSON"), "5003 Invalid Message: is not JSON", ""},
		{Unsupported("x", nil), `5006 Unsupported Work Type: work type "x" is not supported; no work type is supported here`, ""},
		{Unsupported("x", []string{"y", "z"}), `5006 Unsupported Work Type: work type "x" is not supported; supported: y, z`, ""},
		{New(Timeout, "no answer in %d s", 30), "5001 Timeout: no answer in 30 s", ""},
	} {
		if c.fault.Error() != c.error || c.fault.Field() != c.field {
			t.Errorf("%#v: %q, field %q, want %q, field %q", c.fault, c.fault.Error(), c.fault.Field(), c.error, c.field)
		}
	}
	f := Unsupported("x", nil)
	f.Clone().With("task_id", "1")
	if _, ok := f.Context["task_id"]; ok {
		t.Error("a clone shares the context")
	}
}
