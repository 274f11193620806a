package message

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"chiffon/pkg/fault"
	"chiffon/pkg/subject"
)

// A wrong says what is wrong with a field; the path grows on the way up.
type wrong struct{ field, text string }

func (w *wrong) Error() string { return strings.TrimPrefix(w.field+": "+w.text, ": ") }

func wrongf(field, format string, args ...any) error {
	return &wrong{field, fmt.Sprintf(format, args...)}
}

// within puts the name of the object in front of the path of an error below it. What has no path stays without one.
func within(name string, err error) error {
	if w, ok := err.(*wrong); ok && w.field != "" {
		if !strings.HasPrefix(w.field, "[") {
			name += "."
		}
		w.field = name + w.field
	}
	return err
}

// at is within for the value itself: an error that has no path yet is about name.
func at(name string, err error) error {
	if w, ok := err.(*wrong); ok && w.field == "" {
		w.field = name
		return w
	}
	return within(name, err)
}

// asFault makes the fault 5003 that crosses the wire.
func asFault(err error) error {
	w, ok := errors.AsType[*wrong](err)
	if !ok {
		return err
	}
	field := w.field
	if len(field) > 200 {
		field = strings.ToValidUTF8(field[:200], "") + "…"
	}
	return fault.Invalid(field, "%s", w.text)
}

// A rest is what a decoded object holds beside its fields, so that it is written as it came.
type rest struct {
	unknown []member
	odd     uint64 // bit n: field n was sent although it is zero and optional, or absent although it is usually there
}

type member struct {
	name string
	raw  json.RawMessage
}

func (r *rest) kept() *rest { return r }

type keeper interface{ kept() *rest }

// A checker knows what must be true of its fields together; asked after reading and before writing.
type checker interface{ check() error }

// A codec reads and writes the values of one type.
type codec struct {
	read  func(v reflect.Value, raw []byte) error
	write func(b []byte, v reflect.Value) ([]byte, error)
}

// A field of a struct, by its tags: json:"name", with ",omitempty" or ",omitzero" when zero means absent, and
// wire:"need" when it must be there.
type field struct {
	codec
	name   string
	index  int
	need   bool
	always bool
}

// A plan is how the objects of one struct type are read and written: names by exact case, null nowhere, the first
// mistake with its path.
type plan struct {
	fields []field
	byName map[string]int
}

var codecs sync.Map // reflect.Type -> codec

func codecOf(t reflect.Type) codec {
	if c, ok := codecs.Load(t); ok {
		return c.(codec)
	}
	c := newCodec(t)
	codecs.Store(t, c)
	return c
}

func newPlan(t reflect.Type) plan {
	p := plan{byName: map[string]int{}}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "" {
			continue
		}
		p.byName[name] = len(p.fields)
		p.fields = append(p.fields, field{
			codec: codecOf(f.Type), name: name, index: i,
			need: f.Tag.Get("wire") == "need", always: options == "",
		})
	}
	return p
}

func (p plan) read(v reflect.Value, raw []byte) error {
	if raw[0] != '{' {
		return wrongf("", "must be an object, not %s", kindOf(raw))
	}
	extra := keptBy(v)
	var seen uint64
	err := elements(raw, func(key, value []byte) error {
		name := unquote(key)
		i, known := p.byName[name]
		if !known {
			if extra != nil {
				extra.unknown = append(extra.unknown, member{name, slices.Clone(value)})
			}
			return nil
		}
		seen |= 1 << i
		if value[0] == 'n' {
			return wrongf(name, "must not be null; leave it out instead")
		}
		return at(name, p.fields[i].read(v.Field(p.fields[i].index), value))
	})
	if err != nil {
		return err
	}
	for i, f := range p.fields {
		sent := seen&(1<<i) != 0
		if f.need && !sent {
			return wrongf(f.name, "is missing")
		}
		if extra != nil && sent != f.always && v.Field(f.index).IsZero() {
			extra.odd |= 1 << i
		}
	}
	return check(v)
}

func (p plan) write(b []byte, v reflect.Value) ([]byte, error) {
	if err := check(v); err != nil {
		return nil, err
	}
	var extra rest
	if k := keptBy(v); k != nil {
		extra = *k
	}
	b = append(b, '{')
	first := true
	key := func(name string) {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendString(b, name), ':')
	}
	for i, f := range p.fields {
		fv := v.Field(f.index)
		if odd := extra.odd&(1<<i) != 0; fv.IsZero() && !f.need && f.always == odd {
			continue
		}
		key(f.name)
		var err error
		if b, err = f.write(b, fv); err != nil {
			return nil, at(f.name, err)
		}
	}
	for _, m := range extra.unknown {
		key(m.name)
		b = append(b, m.raw...)
	}
	return append(b, '}'), nil
}

func keptBy(v reflect.Value) *rest {
	if k, ok := v.Addr().Interface().(keeper); ok {
		return k.kept()
	}
	return nil
}

func check(v reflect.Value) error {
	if c, ok := v.Addr().Interface().(checker); ok {
		return c.check()
	}
	return nil
}

// decode reads the object in data, which scan has passed, into the struct that into points to.
func decode(data []byte, into any) error {
	v := reflect.ValueOf(into).Elem()
	return codecOf(v.Type()).read(v, data)
}

// encode appends the struct that from points to.
func encode(b []byte, from any) ([]byte, error) {
	v := reflect.ValueOf(from).Elem()
	return codecOf(v.Type()).write(b, v)
}

func newCodec(t reflect.Type) codec {
	switch t {
	case reflect.TypeFor[UUID](), reflect.TypeFor[subject.TaskID]():
		return textCodec(func(s string) (string, error) {
			id, err := ParseUUID(s)
			return string(id), err
		})
	case reflect.TypeFor[subject.AgentID]():
		return textCodec(func(s string) (string, error) { return s, subject.AgentID(s).Check() })
	case reflect.TypeFor[subject.AgentType]():
		return textCodec(func(s string) (string, error) { return s, subject.AgentType(s).Check() })
	case reflect.TypeFor[party]():
		return textCodec(func(s string) (string, error) { return s, party(s).check() })
	case reflect.TypeFor[Timestamp]():
		return timestampCodec
	case reflect.TypeFor[time.Time]():
		return timeCodec
	case reflect.TypeFor[json.RawMessage]():
		return rawCodec
	case reflect.TypeFor[map[string]any]():
		return freeFormCodec
	case reflect.TypeFor[map[string]string]():
		return stringsCodec
	}
	switch t.Kind() {
	case reflect.String:
		return textCodec(func(s string) (string, error) { return s, nil })
	case reflect.Bool:
		return boolCodec
	case reflect.Int, reflect.Int64:
		return intCodec
	case reflect.Uint64:
		return uintCodec
	case reflect.Float64:
		return floatCodec
	case reflect.Pointer:
		return pointerCodec(t.Elem())
	case reflect.Slice:
		return sliceCodec(t.Elem())
	case reflect.Struct:
		p := newPlan(t)
		return codec{p.read, p.write}
	}
	panic("message: no codec for " + t.String())
}
