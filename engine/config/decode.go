package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	quantityType = reflect.TypeFor[quantity]()
	nodeType     = reflect.TypeFor[*yaml.Node]()
)

// decode reads a node onto a value that holds its defaults: what is absent or null stays. Keys that the value's type has
// not are problems, and so is every value of another kind.
func (r *reader) decode(n *yaml.Node, path string, into reflect.Value) {
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
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	switch {
	case into.Type() == durationType:
		r.duration(n, path, into)
	case into.Type() == quantityType:
		r.quantity(n, path, into)
	case into.Kind() == reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		r.decode(n, path, into.Elem())
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

// object reads a mapping onto a struct.
func (r *reader) object(n *yaml.Node, path string, into reflect.Value) {
	if n.Kind != yaml.MappingNode {
		r.fail(path, "got %s, want a mapping", describe(n))
		return
	}
	fields := fieldsOf(into.Type())
	for _, p := range r.pairs(n, path, 0) {
		at := join(path, clip(p.name))
		r.lines[at] = p.line
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == p.name })
		if i < 0 {
			r.fail(at, "unknown key, %s", knownKeys(p.name, fields))
			continue
		}
		r.decode(p.value, at, into.FieldByIndex(fields[i].index))
	}
}

func knownKeys(name string, fields []field) string {
	if len(fields) == 0 {
		return "there are none"
	}
	var names, without []string
	for _, f := range fields {
		if f.effect == "" {
			names = append(names, f.name)
		} else {
			without = append(without, f.name)
		}
	}
	if len(names) == 0 {
		return "there are none with an effect yet"
	}
	return didYouMean(name, names, without)
}

// mapping reads a mapping onto a map from string to string.
func (r *reader) mapping(n *yaml.Node, path string, into reflect.Value) {
	if n.Kind != yaml.MappingNode {
		r.fail(path, "got %s, want a mapping", describe(n))
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for _, p := range r.pairs(n, path, 0) {
		at := join(path, clip(p.name))
		r.lines[at] = p.line
		value := reflect.New(into.Type().Elem()).Elem()
		r.decode(p.value, at, value)
		into.SetMapIndex(reflect.ValueOf(p.name), value)
	}
}

func (r *reader) list(n *yaml.Node, path string, into reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		r.fail(path, "got %s, want a list", describe(n))
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
		r.decode(item, at, value)
		into.Set(reflect.Append(into, value))
	}
}

func (r *reader) scalar(n *yaml.Node, path string, into reflect.Value) {
	tag, ok := n.ShortTag(), false
	want := "a string"
	if n.Kind == yaml.ScalarNode {
		switch into.Kind() {
		case reflect.String:
			if ok = tag == "!!str" || tag == "!!timestamp"; ok {
				into.SetString(n.Value)
			}
		case reflect.Bool:
			ok = (tag == "!!bool" || tag == "!!str" && n.Style == 0) && n.Decode(into.Addr().Interface()) == nil
		case reflect.Int:
			ok = tag == "!!int" && n.Decode(into.Addr().Interface()) == nil
		case reflect.Float64:
			ok = (tag == "!!int" || tag == "!!float") && n.Decode(into.Addr().Interface()) == nil
		}
	}
	switch into.Kind() {
	case reflect.Bool:
		want = "true or false"
	case reflect.Int:
		want = "a whole number"
	case reflect.Float64:
		want = "a number"
	}
	if !ok {
		r.fail(path, "got %s, want %s", describe(n), want)
	}
}

func (r *reader) duration(n *yaml.Node, path string, into reflect.Value) {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || err != nil {
		r.fail(path, "got %s, want a duration such as 500ms or 60s", describe(n))
		return
	}
	into.SetInt(int64(d))
}

func (r *reader) quantity(n *yaml.Node, path string, into reflect.Value) {
	q, err := parseQuantity(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!bool" || err != nil {
		r.fail(path, "got %s, want a quantity such as 5000, 512Mi or 1G", describe(n))
		return
	}
	into.SetInt(int64(q))
}

// describe says what a node is, in the words of a problem.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if tag := n.ShortTag(); tag == "!!str" || tag == "!!timestamp" {
		return strconv.Quote(clip(n.Value))
	}
	return clip(n.Value)
}

// field is one key of a struct.
type field struct {
	name   string
	index  []int
	typ    reflect.Type
	effect string // "" = it works; "warning" = it is read and has no effect; "none" = only its default is accepted
	names  string // type of the plugin that the value names; "" = it names none
}

// fieldsOf lists the keys of a struct in their order, those of embedded structs included.
func fieldsOf(t reflect.Type) []field {
	var list []field
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			list = append(list, field{name, f.Index, f.Type, f.Tag.Get("effect"), f.Tag.Get("names")})
		}
	}
	return list
}

// quantity is a number as Kubernetes writes it: 5000, "512Mi", 1G, 1e9. Fractions are rounded up.
type quantity int64

var quantityUnits = []struct {
	suffix string
	factor float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50}, {"Ei", 1 << 60},
	{"n", 1e-9}, {"u", 1e-6}, {"m", 1e-3}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}, {"E", 1e18},
}

var errNoQuantity = errors.New("not a quantity")

func parseQuantity(s string) (quantity, error) {
	factor := 1.0
	for _, u := range quantityUnits {
		if number, ok := strings.CutSuffix(s, u.suffix); ok {
			s, factor = number, u.factor
			break
		}
	}
	if strings.Trim(s, "+-.0123456789eE") != "" { // so that hexadecimal numbers, underscores, inf and nan are none
		return 0, errNoQuantity
	}
	if factor == 1 {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return quantity(n), nil
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	if n = math.Ceil(n * factor); err != nil || math.Abs(n) >= 1<<63 {
		return 0, errNoQuantity
	}
	return quantity(n), nil
}
