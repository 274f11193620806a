// Package schema holds parameters against the JSON Schema of a work type and says what is wrong in the protocol's
// words. It knows no work type.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"chiffon/pkg/fault"
)

// Parameters is the path of a request's parameters in its envelope.
const Parameters = "payload.parameters"

// A Schema judges the parameters of one work type. Safe for concurrent use.
type Schema struct{ s *jsonschema.Schema }

// Compile reads a JSON Schema (2020-12 unless it says otherwise). It reads no other document: a $ref leads inside.
func Compile(doc json.RawMessage) (*Schema, error) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	const name = "chiffon:///parameters"
	if err := c.AddResource(name, v); err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	s, err := c.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	return &Schema{s}, nil
}

// Check returns nil, or a fault 5003 that names the first field that is wrong, below payload.parameters.
func (s *Schema) Check(parameters json.RawMessage) *fault.Fault {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(parameters))
	if err != nil {
		return fault.Invalid(Parameters, "is no JSON: %v", err)
	}
	err = s.s.Validate(v)
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return fault.Invalid(Parameters, "%v", err)
	}
	leaf := deepest(invalid)
	field := path(leaf.InstanceLocation)
	switch k := leaf.ErrorKind.(type) {
	case *kind.Required:
		field += "." + k.Missing[0]
		return fault.Invalid(field, "is missing")
	case *kind.AdditionalProperties:
		field += "." + k.Properties[0]
		return fault.Invalid(field, "is not known here")
	}
	return fault.Invalid(field, "%s", leaf.ErrorKind.LocalizedString(printer))
}

var printer = message.NewPrinter(language.English)

// deepest follows the first cause down: it names the field, those above it only say that something below is wrong.
func deepest(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	return e
}

func path(location []string) string {
	return strings.Join(append([]string{Parameters}, location...), ".")
}
