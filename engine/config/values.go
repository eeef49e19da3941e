package config

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// kind returns how documentation calls the type of a parameter.
func kind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case strictyaml.ReadsText(t):
		return "text"
	case t.Kind() == reflect.Pointer:
		return kind(t.Elem())
	case t.Kind() == reflect.Slice:
		return "list of " + kind(t.Elem())
	case t.Kind() == reflect.Map:
		if of, list := strings.CutPrefix(kind(t.Elem()), "list of "); list {
			return "map of lists of " + of
		}
		return "map of " + kind(t.Elem()) + "s"
	case t.Kind() == reflect.Struct:
		return "object"
	case t.Kind() == reflect.Float64 || t.Kind() == reflect.Float32:
		return "number"
	}
	return t.Kind().String()
}

// show returns a default as a file has it.
func show(v reflect.Value) string {
	if d, is := v.Interface().(time.Duration); is {
		return d.String()
	}
	if written, ok := strictyaml.Written(v); ok {
		return written
	}
	switch {
	case v.Kind() == reflect.String:
		return strconv.Quote(v.String())
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	case v.CanFloat():
		return strconv.FormatFloat(v.Float(), 'g', -1, v.Type().Bits())
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool())
	}
	return "none"
}

// figure returns a number, a fraction with as many digits as its type has.
func figure(v reflect.Value) *yaml.Node {
	switch {
	case v.CanInt():
		return plain(strconv.FormatInt(v.Int(), 10))
	case v.CanUint():
		return plain(strconv.FormatUint(v.Uint(), 10))
	}
	f, _ := strconv.ParseFloat(strconv.FormatFloat(v.Float(), 'g', -1, v.Type().Bits()), 64) // it was just written
	return float(f, 'g')
}

// value returns parameters as Load reads them. Parameters that are not set, which are nil pointers, are left out.
func value(v reflect.Value) *yaml.Node {
	switch x := v.Interface().(type) {
	case time.Duration:
		return text(x.String())
	case strictyaml.Quantity:
		return plain(strconv.FormatInt(int64(x), 10))
	case *yaml.Node:
		return x
	}
	if written, ok := strictyaml.Written(v); ok {
		return text(written)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return plain("null")
		}
		return value(v.Elem())
	case reflect.Struct:
		n := mapping()
		for _, f := range strictyaml.FieldsOf(v.Type()) {
			field := v.FieldByIndex(f.Index)
			if field.Kind() == reflect.Pointer && field.IsNil() {
				continue
			}
			p := pairOf(f.Name, value(field))
			n.Content = append(n.Content, p.key, p.value)
		}
		return n
	case reflect.Slice:
		n := sequence()
		for i := range v.Len() {
			n.Content = append(n.Content, value(v.Index(i)))
		}
		return n
	case reflect.Map:
		n := mapping()
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		for _, key := range keys {
			p := pairOf(key.String(), value(v.MapIndex(key)))
			n.Content = append(n.Content, p.key, p.value)
		}
		return n
	case reflect.String:
		return text(v.String())
	case reflect.Bool:
		return plain(strconv.FormatBool(v.Bool()))
	}
	return figure(v)
}
