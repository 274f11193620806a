package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"chiffon/orchestrator/api"
)

var update = flag.Bool("update", false, "write docs/openapi.json anew")

// docs/openapi.json is what the server says of itself, the same in every process.
func TestOpenAPIIsCurrent(t *testing.T) {
	t.Parallel()
	const file = "../../docs/openapi.json"
	want := api.New(api.Config{}).OpenAPI()
	if again := api.New(api.Config{}).OpenAPI(); !bytes.Equal(again, want) {
		t.Error("the document differs from one time to the next")
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not current (%v): go test ./orchestrator/api -update", file, err)
	}
}

func TestOpenAPIIsSound(t *testing.T) {
	t.Parallel()
	var doc map[string]any
	if err := json.Unmarshal(api.New(api.Config{}).OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	if v, _ := doc["openapi"].(string); !strings.HasPrefix(v, "3.1") {
		t.Errorf("openapi = %v, want 3.1", doc["openapi"])
	}
	at := func(pointer string) any {
		v := any(doc)
		for key := range strings.SplitSeq(strings.TrimPrefix(pointer, "#/"), "/") {
			m, _ := v.(map[string]any)
			v = m[key]
		}
		return v
	}
	if at("#/components/securitySchemes/token") == nil {
		t.Error("no security scheme")
	}
	if at("#/components/schemas/NewTask/properties/agent_type") == nil {
		t.Error("no NewTask")
	}
	body, err := json.Marshal(at("#/paths").(map[string]any)["/v1/tasks"].(map[string]any)["post"].(map[string]any)["requestBody"])
	if err != nil || !bytes.Contains(body, []byte(`"#/components/schemas/NewTask"`)) || !bytes.Contains(body, []byte("work_request")) {
		t.Errorf("the body of a submission is %s, %v, want a NewTask or an envelope", body, err)
	}
	seen := map[string]bool{}
	for path, item := range doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			o := op.(map[string]any)
			id, _ := o["operationId"].(string)
			if id == "" || seen[id] || o["summary"] == nil || o["responses"] == nil {
				t.Errorf("%s %s: operationId %q, summary or responses", method, path, id)
			}
			seen[id] = true
			open := path == "/healthz" || path == "/readyz"
			if (o["security"] == nil) != open {
				t.Errorf("%s %s: security = %v", method, path, o["security"])
			}
		}
	}
	var walk func(where string, v any)
	walk = func(where string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok && at(ref) == nil {
				t.Errorf("%s: %s leads nowhere", where, ref)
			}
			for key, below := range v {
				if key == "$schema" {
					t.Errorf("%s has a $schema", where)
				}
				walk(where+"/"+key, below)
			}
		case []any:
			for _, below := range v {
				walk(where, below)
			}
		}
	}
	walk("#", doc)
}
