// Package settings reads a program's settings from the environment into a struct, and reports all mistakes at once.
// It does not know any setting, nor what a value is used for.
package settings

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"

	"chiffon/pkg/near"
	"chiffon/pkg/token"
)

// Read fills the struct that into points to from variables that begin with prefix and "_". Tags of a field:
//
//	envconfig:"SLOTS"   its name behind the prefix; a field without it is no setting
//	whole:"true"        the name stands alone, as NATS_URL does
//	default:"1"         used when the variable is unset or empty
//	required:"true"     must be set, and not empty
//	secret:"true"       no error shows its value
//	desc:"…"            one sentence for people
//
// Embedded structs are read like the fields of the outer one. Types are those of envconfig: numbers, bool, string,
// time.Duration, lists and maps, and whatever has a Decode, Set or UnmarshalText method; Pairs reads k=v,….
//
// The error joins all mistakes, each with the variable's name and what to do: values that can't be read, required ones
// that are missing, and variables that have the prefix but are neither a setting nor one of known.
func Read(prefix string, into any, known ...string) error {
	target := reflect.ValueOf(into).Elem()
	var mistakes []error
	names := slices.Clone(known)
	for _, s := range list(prefix, target.Type()) {
		names = append(names, s.name)
		if err := s.read(target.FieldByIndex(s.index)); err != nil {
			mistakes = append(mistakes, err)
		}
	}
	return errors.Join(append(mistakes, misspelt(prefix, names)...)...)
}

// A Row describes a setting for people.
type Row struct{ Name, Default, Meaning string }

// Describe lists the settings that Read would read into the struct that into points to, in order.
func Describe(prefix string, into any) []Row {
	var rows []Row
	for _, s := range list(prefix, reflect.TypeOf(into).Elem()) {
		rows = append(rows, Row{s.name, s.tag.Get("default"), s.tag.Get("desc")})
	}
	return rows
}

type setting struct {
	name  string
	index []int
	typ   reflect.Type
	tag   reflect.StructTag
}

func list(prefix string, t reflect.Type) []setting {
	var all []setting
	for _, f := range reflect.VisibleFields(t) {
		name := f.Tag.Get("envconfig")
		if name == "" || !f.IsExported() {
			continue
		}
		if f.Tag.Get("whole") != "true" {
			name = prefix + "_" + name
		}
		all = append(all, setting{name, f.Index, f.Type, f.Tag})
	}
	return all
}

// read has envconfig fill a struct of this one field: envconfig stops at the first mistake and shows its value, and
// it would take a bare SLOTS for PREFIX_SLOTS if it knew the prefix.
func (s setting) read(field reflect.Value) error {
	value, name := os.Getenv(s.name), s.name
	if value == "" {
		if s.tag.Get("required") == "true" {
			return fmt.Errorf("%s is not set; %s", s.name, s.cure())
		}
		name = "=" // no variable can have this name, so an empty one counts as unset
	}
	tag := fmt.Sprintf("envconfig:%q default:%q", name, s.tag.Get("default"))
	one := reflect.New(reflect.StructOf([]reflect.StructField{
		{Name: "Setting", Type: s.typ, Tag: reflect.StructTag(tag)},
	}))
	if err := envconfig.Process("", one.Interface()); err != nil {
		return fmt.Errorf("%s: %s; %s", s.name, s.complaint(value, err), s.cure())
	}
	field.Set(one.Elem().Field(0))
	return nil
}

func (s setting) complaint(value string, err error) string {
	if s.tag.Get("secret") == "true" || s.typ == reflect.TypeFor[token.Token]() {
		return "its value is not " + s.kind()
	}
	if parse, ok := errors.AsType[*envconfig.ParseError](err); ok && s.kind() == "what it is for" {
		return fmt.Sprintf("%q: %s", value, parse.Err)
	}
	return fmt.Sprintf("%q is not %s", value, s.kind())
}

func (s setting) kind() string {
	if s.typ == reflect.TypeFor[time.Duration]() {
		return "a duration such as 30s, 5m or 720h"
	}
	if reflect.PointerTo(s.typ).NumMethod() > 0 {
		return "what it is for"
	}
	switch s.typ.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number from 0 up"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "what it is for"
}

// cure says what to do about a value: its meaning, and the default that there is.
func (s setting) cure() string {
	cure := "set it right"
	if desc := s.tag.Get("desc"); desc != "" {
		cure = "it means: " + strings.TrimSuffix(desc, ".")
	}
	if def := s.tag.Get("default"); def != "" {
		cure += "; unset it for the default " + def
	}
	return cure
}

func misspelt(prefix string, names []string) []error {
	var mistakes []error
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, prefix+"_") || slices.Contains(names, name) {
			continue
		}
		if known := nearest(name, names); known != "" {
			mistakes = append(mistakes, fmt.Errorf("%s is no setting; did you mean %s?", name, known))
		} else {
			mistakes = append(mistakes, fmt.Errorf("%s is no setting; unset it (docs/settings.md lists all)", name))
		}
	}
	slices.SortFunc(mistakes, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return mistakes
}

// nearest is the name that differs least, in at most a third of its letters behind the prefix, and at least in two.
func nearest(name string, names []string) string {
	_, own, _ := strings.Cut(name, "_")
	return near.Word(name, names, max(2, len(own)/3))
}
