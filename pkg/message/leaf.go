package message

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// textCodec is for strings that read says are right, and how they are written.
func textCodec(read func(string) (string, error)) codec {
	parse := func(s string) (string, error) {
		s, err := read(s)
		if _, known := err.(*wrong); err != nil && !known {
			err = wrongf("", "%s", err)
		}
		return s, err
	}
	return codec{
		func(v reflect.Value, raw []byte) error {
			if raw[0] != '"' {
				return wrongf("", "must be a string, not %s", kindOf(raw))
			}
			s, err := parse(unquote(raw))
			v.SetString(s)
			return err
		},
		func(b []byte, v reflect.Value) ([]byte, error) {
			s, err := parse(v.String())
			return appendString(b, s), err
		},
	}
}

var timestampCodec = codec{
	func(v reflect.Value, raw []byte) error {
		if raw[0] != '"' {
			return wrongf("", "must be a string, not %s", kindOf(raw))
		}
		text := unquote(raw)
		t, err := parseTime(text)
		v.Set(reflect.ValueOf(Timestamp{Time: t, text: text}))
		return err
	},
	func(b []byte, v reflect.Value) ([]byte, error) {
		t := v.Interface().(Timestamp)
		if t.text != "" {
			return appendString(b, t.text), nil
		}
		if t.IsZero() {
			return nil, wrongf("", "is missing")
		}
		return appendTime(b, t.Time)
	},
}

var timeCodec = codec{
	func(v reflect.Value, raw []byte) error {
		if raw[0] != '"' {
			return wrongf("", "must be a string, not %s", kindOf(raw))
		}
		t, err := parseTime(unquote(raw))
		v.Set(reflect.ValueOf(t))
		return err
	},
	func(b []byte, v reflect.Value) ([]byte, error) { return appendTime(b, v.Interface().(time.Time)) },
}

var rawCodec = codec{
	func(v reflect.Value, raw []byte) error {
		v.SetBytes(slices.Clone(raw))
		return nil
	},
	func(b []byte, v reflect.Value) ([]byte, error) {
		raw := v.Bytes()
		if err := scan(raw); err != nil {
			return nil, err
		}
		return append(b, raw...), nil
	},
}

var freeFormCodec = codec{
	func(v reflect.Value, raw []byte) error {
		if raw[0] != '{' {
			return wrongf("", "must be an object, not %s", kindOf(raw))
		}
		value, err := freeForm(raw)
		if err != nil {
			return wrongf("", "%s", err)
		}
		v.Set(reflect.ValueOf(value))
		return nil
	},
	func(b []byte, v reflect.Value) ([]byte, error) {
		raw, err := json.Marshal(v.Interface())
		if err != nil {
			return nil, wrongf("", "can't be written as JSON: %s", err)
		}
		return append(b, raw...), scan(raw)
	},
}

var stringsCodec = codec{
	func(v reflect.Value, raw []byte) error {
		if raw[0] != '{' {
			return wrongf("", "must be an object, not %s", kindOf(raw))
		}
		out := map[string]string{}
		v.Set(reflect.ValueOf(out))
		return elements(raw, func(key, value []byte) error {
			if value[0] != '"' {
				return wrongf(unquote(key), "must be a string, not %s", kindOf(value))
			}
			out[unquote(key)] = unquote(value)
			return nil
		})
	},
	func(b []byte, v reflect.Value) ([]byte, error) {
		m := v.Interface().(map[string]string)
		b = append(b, '{')
		for i, key := range slices.Sorted(maps.Keys(m)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(append(appendString(b, key), ':'), m[key])
		}
		return append(b, '}'), nil
	},
}

var boolCodec = codec{
	func(v reflect.Value, raw []byte) error {
		if raw[0] != 't' && raw[0] != 'f' {
			return wrongf("", "must be true or false, not %s", kindOf(raw))
		}
		v.SetBool(raw[0] == 't')
		return nil
	},
	func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendBool(b, v.Bool()), nil },
}

var intCodec = codec{
	func(v reflect.Value, raw []byte) error {
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || v.OverflowInt(n) {
			return wrongf("", "must be a whole number, not %s", kindOf(raw))
		}
		v.SetInt(n)
		return nil
	},
	func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendInt(b, v.Int(), 10), nil },
}

var uintCodec = codec{
	func(v reflect.Value, raw []byte) error {
		n, err := strconv.ParseUint(string(raw), 10, 64)
		if err != nil {
			return wrongf("", "must be a whole number from 0 up, not %s", kindOf(raw))
		}
		v.SetUint(n)
		return nil
	},
	func(b []byte, v reflect.Value) ([]byte, error) { return strconv.AppendUint(b, v.Uint(), 10), nil },
}

var floatCodec = codec{
	func(v reflect.Value, raw []byte) error {
		f, err := strconv.ParseFloat(string(raw), 64)
		if err != nil || raw[0] > '9' {
			return wrongf("", "must be a number, not %s", kindOf(raw))
		}
		v.SetFloat(f)
		return nil
	},
	func(b []byte, v reflect.Value) ([]byte, error) {
		raw, err := json.Marshal(v.Float())
		if err != nil {
			return nil, wrongf("", "must be a finite number")
		}
		return append(b, raw...), nil
	},
}

func pointerCodec(elem reflect.Type) codec {
	c := codecOf(elem)
	return codec{
		func(v reflect.Value, raw []byte) error {
			v.Set(reflect.New(elem))
			return c.read(v.Elem(), raw)
		},
		func(b []byte, v reflect.Value) ([]byte, error) { return c.write(b, v.Elem()) },
	}
}

func sliceCodec(elem reflect.Type) codec {
	c := codecOf(elem)
	return codec{
		func(v reflect.Value, raw []byte) error {
			if raw[0] != '[' {
				return wrongf("", "must be a list, not %s", kindOf(raw))
			}
			out := reflect.MakeSlice(v.Type(), 0, 4)
			err := elements(raw, func(_, value []byte) error {
				item := reflect.New(elem).Elem()
				err := c.read(item, value)
				if value[0] == 'n' {
					err = wrongf("", "must not be null")
				}
				out = reflect.Append(out, item)
				return at("["+strconv.Itoa(out.Len()-1)+"]", err)
			})
			v.Set(out)
			return err
		},
		func(b []byte, v reflect.Value) ([]byte, error) {
			b = append(b, '[')
			for i := range v.Len() {
				if i > 0 {
					b = append(b, ',')
				}
				var err error
				if b, err = c.write(b, v.Index(i)); err != nil {
					return nil, at("["+strconv.Itoa(i)+"]", err)
				}
			}
			return append(b, ']'), nil
		},
	}
}

// kindOf names a JSON value for an error text: its kind, or the value itself where it is short.
func kindOf(raw []byte) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 'n':
		return "null"
	}
	if len(raw) <= 32 {
		return string(raw)
	}
	if raw[0] == '"' {
		return "a string"
	}
	return "a number"
}
