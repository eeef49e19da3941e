package strictyaml

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/clip"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	quantityType = reflect.TypeFor[Quantity]()
	textType     = reflect.TypeFor[Text]()
	nodeType     = reflect.TypeFor[*yaml.Node]()
)

// Text is a string, or a number or truth value as it is written: 8000 and "8000" are the same Text. Unlike other values
// it must not be null.
type Text string

// Decode decodes a node onto a value that holds the defaults, which stay where the node has nothing or null. Keys that
// the type of the value does not have are problems, and so are values of another kind.
func (r *Reader) Decode(n *yaml.Node, path string, into reflect.Value) {
	n = r.follow(n)
	if n == nil {
		return
	}
	if _, known := r.lines[path]; !known {
		r.lines[path] = n.Line
	}
	if into.Type() == nodeType {
		into.Set(reflect.ValueOf(n))
		return
	}
	if into.Type() == textType {
		r.text(n, path, into)
		return
	}
	if null(n) {
		return
	}
	switch {
	case ReadsText(into.Type()):
		r.unmarshal(n, path, into)
	case into.Type() == durationType:
		r.duration(n, path, into)
	case into.Type() == quantityType:
		r.quantity(n, path, into)
	case into.Kind() == reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		r.Decode(n, path, into.Elem())
	case into.Kind() == reflect.Struct:
		r.object(n, path, into)
	case into.Kind() == reflect.Map:
		r.mapping(n, path, into)
	case into.Kind() == reflect.Slice:
		r.list(n, path, into)
	default:
		r.scalar(n, path, into)
	}
}

// object decodes a mapping onto a struct.
func (r *Reader) object(n *yaml.Node, path string, into reflect.Value) {
	if n.Kind != yaml.MappingNode {
		r.Fail(path, "got %s, want a mapping", Describe(n))
		return
	}
	fields := FieldsOf(into.Type())
	for _, p := range r.pairs(n, path, 0) {
		at := join(path, clip.Value(p.name))
		r.lines[at] = p.line
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == p.name })
		if i < 0 && r.Lenient {
			r.Warn(at, "has no effect: unknown key, %s", knownKeys(p.name, fields))
			continue
		}
		if i < 0 {
			r.Fail(at, "unknown key, %s", knownKeys(p.name, fields))
			continue
		}
		r.Decode(p.value, at, into.FieldByIndex(fields[i].Index))
	}
}

func knownKeys(name string, fields []Field) string {
	if len(fields) == 0 {
		return "there are none"
	}
	var names, without []string
	for _, f := range fields {
		if f.Effect == "" && f.Older == "" {
			names = append(names, f.Name)
		} else {
			without = append(without, f.Name)
		}
	}
	if len(names) == 0 {
		return "there are none with an effect yet"
	}
	return DidYouMean(name, names, without)
}

// mapping decodes a mapping onto a map from string.
func (r *Reader) mapping(n *yaml.Node, path string, into reflect.Value) {
	if n.Kind != yaml.MappingNode {
		r.Fail(path, "got %s, want a mapping", Describe(n))
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for _, p := range r.pairs(n, path, 0) {
		at := join(path, clip.Value(p.name))
		r.lines[at] = p.line
		value := reflect.New(into.Type().Elem()).Elem()
		r.Decode(p.value, at, value)
		into.SetMapIndex(reflect.ValueOf(p.name).Convert(into.Type().Key()), value)
	}
}

func (r *Reader) list(n *yaml.Node, path string, into reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		r.Fail(path, "got %s, want a list", Describe(n))
		return
	}
	into.SetZero()
	for i, item := range n.Content {
		if r.exhausted() {
			return
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		r.lines[at] = item.Line
		value := reflect.New(into.Type().Elem()).Elem()
		r.Decode(item, at, value)
		into.Set(reflect.Append(into, value))
	}
}

func (r *Reader) scalar(n *yaml.Node, path string, into reflect.Value) {
	tag, ok := n.ShortTag(), false
	want := "a string"
	if n.Kind == yaml.ScalarNode {
		switch {
		case into.Kind() == reflect.String:
			if ok = tag == "!!str" || tag == "!!timestamp"; ok {
				into.SetString(n.Value)
			}
		case into.Kind() == reflect.Bool:
			ok = (tag == "!!bool" || tag == "!!str" && n.Style == 0) && n.Decode(into.Addr().Interface()) == nil
		case into.CanInt() || into.CanUint():
			ok = tag == "!!int" && n.Decode(into.Addr().Interface()) == nil || tag == "!!float" && wholeFloat(n, into)
		case into.CanFloat():
			var f float64
			if ok = (tag == "!!int" || tag == "!!float") && n.Decode(&f) == nil && !into.OverflowFloat(f); ok {
				into.SetFloat(f)
			}
		}
	}
	switch {
	case into.Kind() == reflect.Bool:
		want = "true or false"
	case into.CanInt() || into.CanUint():
		want = "a whole number" + rangeOf(into.Type())
	case into.CanFloat():
		want = "a number"
	}
	if !ok {
		r.Fail(path, "got %s, want %s", Describe(n), want)
	}
}

// rangeOf says which whole numbers a type has, unless it has those of int.
func rangeOf(t reflect.Type) string {
	least, most, bounded := Range(t)
	switch {
	case bounded:
		return fmt.Sprintf(" from %d to %d", least, most)
	case least == 0:
		return ", 0 or more"
	}
	return ""
}

// Range returns the least and the greatest whole number of a type; bounded is false if it has those of 64 bits, all or
// from 0 on.
func Range(t reflect.Type) (least, most int64, bounded bool) {
	bits := t.Bits()
	switch v := reflect.Zero(t); {
	case bits == 64 && v.CanUint():
		return 0, math.MaxInt64, false
	case bits == 64:
		return math.MinInt64, math.MaxInt64, false
	case v.CanUint():
		return 0, 1<<bits - 1, true
	}
	return -1 << (bits - 1), 1<<(bits-1) - 1, true
}

// wholeFloat sets a whole number that is written as a fraction, such as 5.0; false = it is none, or the type of the
// value does not have it.
func wholeFloat(n *yaml.Node, into reflect.Value) bool {
	var f float64
	if n.Decode(&f) != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return false
	}
	if into.CanUint() {
		if f < 0 || into.OverflowUint(uint64(f)) {
			return false
		}
		into.SetUint(uint64(f))
		return true
	}
	if into.OverflowInt(int64(f)) {
		return false
	}
	into.SetInt(int64(f))
	return true
}

// ReadsText reports whether a type reads its values from text by itself.
func ReadsText(t reflect.Type) bool {
	return t != durationType && t.Kind() != reflect.Pointer &&
		reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func (r *Reader) unmarshal(n *yaml.Node, path string, into reflect.Value) {
	if n.Kind != yaml.ScalarNode {
		r.Fail(path, "got %s, want text", Describe(n))
		return
	}
	if err := into.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value)); err != nil {
		r.Fail(path, "got %s: %s", Describe(n), clip.Value(err.Error()))
	}
}

func (r *Reader) duration(n *yaml.Node, path string, into reflect.Value) {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || err != nil {
		r.Fail(path, "got %s, want a duration such as 500ms or 60s", Describe(n))
		return
	}
	into.SetInt(int64(d))
}

func (r *Reader) quantity(n *yaml.Node, path string, into reflect.Value) {
	q, err := parseQuantity(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!bool" || err != nil {
		r.Fail(path, "got %s, want a quantity such as 5000, 512Mi or 1G", Describe(n))
		return
	}
	into.SetInt(int64(q))
}

func (r *Reader) text(n *yaml.Node, path string, into reflect.Value) {
	if n.Kind != yaml.ScalarNode || null(n) || n.ShortTag() == "!!binary" {
		r.Fail(path, "got %s, want text", Describe(n))
		return
	}
	into.SetString(n.Value)
}

func null(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// Describe returns what a node is, in the words of a problem.
func Describe(n *yaml.Node) string {
	if null(n) {
		return "nothing"
	}
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if tag := n.ShortTag(); tag == "!!str" || tag == "!!timestamp" {
		return strconv.Quote(clip.Value(n.Value))
	}
	return clip.Value(n.Value)
}

// Field is one key of a struct.
type Field struct {
	Name   string
	Index  []int
	Type   reflect.Type
	Effect string // "" = it works; "warning" = it is read and has no effect; "none" = only its default is accepted
	Names  string // type of the plugin that the value names; "" = it names none
	Older  string // "" = it is no older name; else the present path in the outermost struct
}

// FieldsOf returns the keys of a struct in their order, including those of embedded structs.
func FieldsOf(t reflect.Type) []Field {
	var list []Field
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			list = append(list, Field{name, f.Index, f.Type, f.Tag.Get("effect"), f.Tag.Get("names"),
				f.Tag.Get("older")})
		}
	}
	return list
}
