package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParameters(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file  string // content of standard input, "" for no --params
		pairs []string
		want  string
		wrong string
	}{
		"none":                       {want: `{}`},
		"strings":                    {pairs: []string{"a=b", "c=", "v=1.4.0", "d=x=y", "e=nullable", "f=a b", "g= 1", "h=007", "i=0x1f", "j=-", "k=@home"}, want: `{"a":"b","c":"","d":"x=y","e":"nullable","f":"a b","g":" 1","h":"007","i":"0x1f","j":"-","k":"@home","v":"1.4.0"}`},
		"typed":                      {pairs: []string{"a=1", "b=-2.50", "c=true", "d=null", "e=12345678901234567890", "f=1e3"}, want: `{"a":1,"b":-2.50,"c":true,"d":null,"e":12345678901234567890,"f":1e3}`},
		"JSON":                       {pairs: []string{`a=[1,"x"]`, `b={"c":{}}`, `d="7"`}, want: `{"a":[1,"x"],"b":{"c":{}},"d":"7"}`},
		"nested":                     {pairs: []string{"a.b.c=1", "a.b.d=2", "a.e=3", `f\.g=4`}, want: `{"a":{"b":{"c":1,"d":2},"e":3},"f.g":4}`},
		"into an object":             {pairs: []string{`a={"b":1}`, "a.c=2"}, want: `{"a":{"b":1,"c":2}}`},
		"file as it is":              {file: `{"a": 1.50, "a": 2}`, want: `{"a": 1.50, "a": 2}`},
		"file and pairs":             {file: `{"a":{"b":1},"n":1.50}`, pairs: []string{"a.b=2", "c=3"}, want: `{"a":{"b":2},"c":3,"n":1.50}`},
		"file is an array":           {file: `[1]`, wrong: "not a JSON object"},
		"file is null":               {file: `null`, pairs: []string{"a=1"}, wrong: "not a JSON object"},
		"file is broken":             {file: `{`, wrong: "not a JSON object"},
		"no value":                   {pairs: []string{"a"}, wrong: "is not key=value"},
		"no key":                     {pairs: []string{"=1"}, wrong: "is not key=value"},
		"empty part":                 {pairs: []string{"a..b=1"}, wrong: "is not key=value"},
		"twice":                      {pairs: []string{"a=1", "a=2"}, wrong: "given twice"},
		"a value and what is inside": {pairs: []string{"a=1", "a.b=2"}, wrong: "a is already something else"},
		"what is inside and a value": {pairs: []string{"a.b=2", "a=1"}, wrong: "keys inside it"},
		"bad JSON":                   {pairs: []string{"a=[1"}, wrong: "begins like JSON"},
		"too large":                  {pairs: []string{"p=1e999"}, wrong: "-p p: the number 1e999 is too large"},
		"too large inside":           {pairs: []string{"p=[{\"a\":-1e999}]"}, wrong: "-p p: the number -1e999 is too large"},
		"too large in a file":        {file: `{"a":[1e999]}`, wrong: "--params -: the number 1e999 is too large"},
		"too large beside pairs":     {file: `{"a":1e999}`, pairs: []string{"b=1"}, wrong: "--params -: the number 1e999 is too large"},
		"too large, but a string":    {pairs: []string{`p="1e999"`, "q=1e308"}, want: `{"p":"1e999","q":1e308}`},
		"two JSON values":            {pairs: []string{"a={} {}"}, wrong: "something follows"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := ""
			if test.file != "" {
				file = "-"
			}
			got, err := parameters(file, test.pairs, strings.NewReader(test.file))
			if string(got) != test.want && test.wrong == "" || (err != nil) != (test.wrong != "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("parameters(%q, %q) = %s, %v, want %s %s", test.file, test.pairs, got, err, test.want, test.wrong)
			}
		})
	}
}

func TestParametersFromAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "p.json")
	if _, err := parameters(file, nil, nil); err == nil {
		t.Error("a missing file is accepted")
	}
	if err := os.WriteFile(file, []byte(`{"a":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := parameters(file, nil, nil); err != nil || string(got) != `{"a":1}` {
		t.Errorf("parameters = %s, %v", got, err)
	}
}
