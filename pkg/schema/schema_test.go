package schema_test

import (
	"encoding/json"
	"testing"

	"chiffon/pkg/fault"
	"chiffon/pkg/schema"
)

const doc = `{
	"type": "object",
	"required": ["playbook"],
	"additionalProperties": false,
	"properties": {
		"playbook": {"type": "string", "pattern": "^[a-z_]+\\.yml$"},
		"check": {"type": "boolean"},
		"hosts": {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {"port": {"type": "integer", "maximum": 65535}}}}
	}
}`

func TestCheck(t *testing.T) {
	s, err := schema.Compile(json.RawMessage(doc))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ parameters, field string }{
		"valid":          {`{"playbook": "site.yml", "check": true}`, ""},
		"missing":        {`{}`, "payload.parameters.playbook"},
		"unknown":        {`{"playbook": "site.yml", "chek": true}`, "payload.parameters.chek"},
		"wrong type":     {`{"playbook": "site.yml", "check": "yes"}`, "payload.parameters.check"},
		"pattern":        {`{"playbook": "../site.yml"}`, "payload.parameters.playbook"},
		"inside a list":  {`{"playbook": "site.yml", "hosts": [{"name": "a"}, {"name": "b", "port": 70000}]}`, "payload.parameters.hosts.1.port"},
		"missing inside": {`{"playbook": "site.yml", "hosts": [{"port": 1}]}`, "payload.parameters.hosts.0.name"},
		"no object":      {`[]`, "payload.parameters"},
		"no JSON":        {`{`, "payload.parameters"},
	} {
		t.Run(name, func(t *testing.T) {
			flt := s.Check(json.RawMessage(c.parameters))
			switch {
			case flt == nil && c.field != "":
				t.Errorf("Check(%s) = nil, want a fault of %s", c.parameters, c.field)
			case flt != nil && (flt.Field() != c.field || flt.Code != fault.InvalidMessage):
				t.Errorf("Check(%s) = %v of field %q, want field %q", c.parameters, flt, flt.Field(), c.field)
			}
		})
	}
}

func TestCompileReadsNoOtherDocument(t *testing.T) {
	for _, ref := range []string{"file:///etc/passwd", "http://127.0.0.1:1/s.json"} {
		if _, err := schema.Compile(json.RawMessage(`{"$ref": "` + ref + `"}`)); err == nil {
			t.Errorf("Compile with a $ref to %s succeeded", ref)
		}
	}
}
