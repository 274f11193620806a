package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"testing"

	"chiffon/pkg/fault"
)

func seed(f *testing.F) {
	f.Helper()
	for _, data := range examples(f) {
		f.Add(data)
	}
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		f.Fatal(err)
	}
	for _, block := range jsonBlocks.FindAllSubmatch(text, -1) {
		f.Add(block[1])
	}
}

// wantFault fails unless err is one that a decoder may give, for data that may be no JSON at all.
func wantFault(t *testing.T, data []byte, err error) {
	t.Helper()
	flt, ok := errors.AsType[*fault.Fault](err)
	if !ok || flt.Code != fault.InvalidMessage && flt.Code != fault.UnsupportedWorkType {
		t.Fatalf("decoding %q: %v, want fault 5003 or 5006", data, err)
	}
	if _, err := json.Marshal(flt.Context); err != nil {
		t.Fatalf("context of %v: %v", flt, err)
	}
}

func wantSame(t *testing.T, data, again []byte, v, w any, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%q decodes, but what it encodes to does not: %q: %v", data, again, err)
	}
	if !reflect.DeepEqual(v, w) {
		t.Fatalf("%q decodes to %+v, and by way of %q to %+v", data, v, again, w)
	}
}

func FuzzRead(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Read(data)
		if err != nil {
			wantFault(t, data, err)
			return
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatalf("%q decodes, but does not encode: %v", data, err)
		}
		back, err := Read(again)
		wantSame(t, data, again, m, back, err)
		for _, decoded := range []error{
			decodes[WorkRequest](t, m, data), decodes[WorkStatus](t, m, data), decodes[WorkResult](t, m, data),
			decodes[Failure](t, m, data),
		} {
			if decoded != nil {
				t.Fatalf("%q: %v", data, decoded)
			}
		}
	})
}

// decodes tells whether Decode[P] agrees with what Read has found.
func decodes[P Payload](t *testing.T, m Any, data []byte) error {
	t.Helper()
	d, err := Decode[P](data)
	if m.Kind != d.Payload.Kind() {
		wantFault(t, data, err)
		return nil
	}
	if err != nil {
		return err
	}
	if a, err := d.Encode(); err != nil {
		return err
	} else if b, _ := m.Encode(); string(a) != string(b) {
		return errors.New("Decode and Read disagree")
	}
	return nil
}

func FuzzHeartbeat(f *testing.F)      { fuzzPlain(f, DecodeHeartbeat) }
func FuzzHeartbeatReply(f *testing.F) { fuzzPlain(f, DecodeHeartbeatReply) }

func fuzzPlain[T any](f *testing.F, decode func([]byte) (T, error)) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := decode(data)
		if err != nil {
			wantFault(t, data, err)
			return
		}
		again, err := encode(nil, &v)
		if err != nil {
			t.Fatalf("%q decodes, but does not encode: %v", data, err)
		}
		w, err := decode(again)
		wantSame(t, data, again, v, w, err)
	})
}

// What scan passes, encoding/json passes, and reads the same strings in it.
func FuzzScan(f *testing.F) {
	seed(f)
	f.Add([]byte(`"\ud83d\ude00\n"`))
	f.Add([]byte(`1e999`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if scan(data) != nil {
			return
		}
		var v any
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber() // a number may be larger than a float64: it is passed on as it is
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("scan(%q) = nil, encoding/json says %v", data, err)
		}
		s := scanner{data: data}
		if text, ok := v.(string); ok && s.peek() == '"' {
			from := s.pos
			s.skip()
			if got := unquote(data[from:s.pos]); got != text {
				t.Fatalf("unquote(%q) = %q, want %q", data, got, text)
			}
			var back string
			if err := json.Unmarshal(appendString(nil, text), &back); err != nil || back != text {
				t.Fatalf("appendString(%q) reads as %q, %v", text, back, err)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for name, data := range map[string][]byte{"request": specification(b, "envelope"), "status": edited(b, "work_status", nil)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Read(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	m, err := Read(specification(b, "envelope"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}
