package config

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/ceilings"
	"github.com/signalbox-epp/signalbox/engine/detectors"
	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/scorers"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// Notations of values that a file has as strings.
const (
	durationPattern = `^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|\x{00b5}s|\x{03bc}s|ms|s|m|h))+)$`
	quantityPattern = `^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?([KMGTPE]i|[numkMGTPE])?$`
)

// required lists the keys that a section must have.
var required = map[reflect.Type][]string{
	reflect.TypeFor[scorers.EndpointAttribute]():       {"attributeKey"},
	reflect.TypeFor[ceilings.PriorityHoldback]():       {"minCeiling"},
	reflect.TypeFor[detectors.MaxSaturation]():         {"detectors"},
	reflect.TypeFor[filters.ByLabel]():                 {"label"},
	reflect.TypeFor[filters.EndpointAttribute]():       {"algorithm"},
	reflect.TypeFor[filters.Utilization]():             {"conditions"},
	reflect.TypeFor[filters.Condition]():               {"metric"},
	reflect.TypeFor[points.LabelProducer]():            {"labels"},
	reflect.TypeFor[points.AttributeReporter]():        {"attributes"},
	reflect.TypeFor[points.ReportedAttribute]():        {"key", "expression"},
	reflect.TypeFor[points.AttributeKey]():             {"name"},
	reflect.TypeFor[points.NamedLabel]():               {"label", "attributeKey"},
	reflect.TypeFor[scorers.EndpointAttributeWeight](): {"attributeKey", "weights"},
	reflect.TypeFor[scorers.HeaderLabelAffinity]():     {"headerName", "labelKey"},
	reflect.TypeFor[PrometheusExtractor]():             {"attributes"},
	reflect.TypeFor[ExtractedAttribute]():              {"name", "metric"},
	reflect.TypeFor[JSONExtractor]():                   {"attributes"},
	reflect.TypeFor[ObjectSource]():                    {"version", "kind"},
	reflect.TypeFor[DocumentAttribute]():               {"name", "field"},
	reflect.TypeFor[EngineSeries]():                    {"name"},
	reflect.TypeFor[CustomSeries]():                    {"attributeKey", "metricSpec"},
	reflect.TypeFor[pluginSection]():                   {"type"},
	reflect.TypeFor[profileSection]():                  {"name"},
	reflect.TypeFor[entrySection]():                    {"pluginRef"},
	reflect.TypeFor[objectiveSection]():                {"name"},
	reflect.TypeFor[rewriteSection]():                  {"name", "rules"},
	reflect.TypeFor[ruleSection]():                     {"targets"},
	reflect.TypeFor[matchSection]():                    {"model"},
	reflect.TypeFor[modelSection]():                    {"value"},
	reflect.TypeFor[targetSection]():                   {"modelRewrite"},
	reflect.TypeFor[sourceSection]():                   {"pluginRef"},
	reflect.TypeFor[pluginRef]():                       {"pluginRef"},
	reflect.TypeFor[FileDiscovery]():                   {"path"},
}

// oneOf lists the keys of which a section must have exactly one.
var oneOf = map[reflect.Type][]string{
	reflect.TypeFor[DocumentSource]():   {"path", "url", "file", "pushed"},
	reflect.TypeFor[points.SessionID](): {"headerName", "cookieName"},
}

// Schema returns the JSON schema of a configuration file in each of its versions, for editors. It holds what Load
// checks of keys and kinds of values; what Load checks of ranges, and of plugins that name each other, it does not.
func Schema(c *Catalogue) ([]byte, error) {
	old := schemaOf(reflect.ValueOf(newV1Alpha1()), sectionDoc)
	old.Properties["apiVersion"].Enum = []any{v1alpha1, oldGroup}
	current := schemaOf(reflect.ValueOf(newDocument()), sectionDoc)
	current.Properties["apiVersion"].Enum = []any{v1}
	for _, s := range []*jsonschema.Schema{old, current} {
		s.Required = []string{"apiVersion", "kind"}
		s.Properties["kind"].Enum = []any{"EndpointPickerConfig"}
		s.Properties["featureGates"].Items = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
			{Enum: gateValues()}, {Type: "string", Pattern: gatePattern()},
		}}
		s.Properties["plugins"].Items = &jsonschema.Schema{Ref: "#/definitions/plugin"}
	}
	isOld := &jsonschema.Schema{
		Required:   []string{"apiVersion"},
		Properties: map[string]*jsonschema.Schema{"apiVersion": {Enum: []any{v1alpha1, oldGroup}}},
	}
	text, err := json.MarshalIndent(&jsonschema.Schema{
		Schema: "http://json-schema.org/draft-07/schema#",
		Title:  "EndpointPickerConfig",
		Definitions: map[string]*jsonschema.Schema{
			"plugin": pluginSchema(c), "v1": current, "v1alpha1": old,
		},
		If:   isOld,
		Then: &jsonschema.Schema{Ref: "#/definitions/v1alpha1"},
		Else: &jsonschema.Schema{Ref: "#/definitions/v1"},
	}, "", "  ")
	return append(text, '\n'), err
}

// pluginSchema returns the schema of an entry of plugins, whose parameters depend on its type.
func pluginSchema(c *Catalogue) *jsonschema.Schema {
	s := schemaOf(reflect.ValueOf(pluginSection{}), sectionDoc)
	types := s.Properties["type"]
	for _, family := range c.Describe() {
		for _, p := range family.Plugins {
			names := typeNames(p.Type)
			types.Enum = append(types.Enum, names...)
			s.AllOf = append(s.AllOf, &jsonschema.Schema{
				If: &jsonschema.Schema{
					Required:   []string{"type"},
					Properties: map[string]*jsonschema.Schema{"type": {Enum: names}},
				},
				Then: c.parametersSchema(p),
			})
		}
	}
	return s
}

// typeNames returns a plugin's type and its former names, which Load accepts too.
func typeNames(typ string) []any {
	names := []any{typ}
	for _, older := range slices.Sorted(maps.Keys(renamed)) {
		if renamed[older] == typ {
			names = append(names, older)
		}
	}
	return names
}

// parametersSchema returns the part of the schema of an entry of plugins that depends on the plugin's type.
func (c *Catalogue) parametersSchema(p Plugin) *jsonschema.Schema {
	docs := map[string]string{}
	for _, q := range p.Parameters {
		docs[q.Name] = q.Text
	}
	parameters := schemaOf(reflect.ValueOf(c.construct(p.Type)).Elem(),
		func(_ reflect.Type, path string) string { return docs[path] })
	parameters.Description = p.Text
	s := &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"parameters": parameters}}
	if must(parameters) {
		s.Required = []string{"parameters"}
	}
	return s
}

// sectionDoc returns the documentation of one key of a section.
func sectionDoc(owner reflect.Type, path string) string {
	return sectionDocs[owner.Name()+"."+path[strings.LastIndex(path, ".")+1:]]
}

// schemaOf returns the schema of a struct, whose fields hold the defaults. doc returns the documentation of a key, from
// the type of the struct that has it and from its path in the outermost struct.
func schemaOf(v reflect.Value, doc func(owner reflect.Type, path string) string) *jsonschema.Schema {
	b := schemaBuilder{doc}
	s := b.object(v, "")
	if must(s) {
		s.Type, s.Types = "object", nil
	}
	return s
}

// must reports whether a section must have some keys.
func must(s *jsonschema.Schema) bool { return len(s.Required)+len(s.OneOf) > 0 }

type schemaBuilder struct {
	doc func(owner reflect.Type, path string) string
}

// object returns the schema of a struct, which allows no other keys.
func (b schemaBuilder) object(v reflect.Value, prefix string) *jsonschema.Schema {
	s := &jsonschema.Schema{Types: orNull("object"), Properties: map[string]*jsonschema.Schema{},
		Required: required[v.Type()], AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
	for _, f := range strictyaml.FieldsOf(v.Type()) {
		owner := v.Type()
		if last := len(f.Index) - 1; last > 0 {
			owner = owner.FieldByIndex(f.Index[:last]).Type
		}
		value, path := v.FieldByIndex(f.Index), prefix+f.Name
		p := b.value(value, path)
		p.Description = b.doc(owner, path)
		switch f.Effect {
		case "none":
			p.Description += " It has no effect yet: only its default is accepted."
		case "warning":
			p.Description += " It has no effect."
		}
		p.Default = standard(value)
		if slices.Contains(s.Required, f.Name) {
			p.Types = p.Types[:len(p.Types)-1] // null is as absent
			p.MinLength, p.MinItems = new(1), new(1)
			p.Default = nil
		}
		s.Properties[f.Name] = p
		s.PropertyOrder = append(s.PropertyOrder, f.Name)
	}
	for _, key := range oneOf[v.Type()] {
		is := &jsonschema.Schema{Type: "string", MinLength: new(1)}
		if slices.Contains(s.Properties[key].Types, "boolean") {
			is = &jsonschema.Schema{Enum: []any{true}}
		}
		s.OneOf = append(s.OneOf, &jsonschema.Schema{Required: []string{key},
			Properties: map[string]*jsonschema.Schema{key: is}})
	}
	return s
}

// value returns the schema of one value. Null is allowed everywhere, and stands for the default.
func (b schemaBuilder) value(v reflect.Value, path string) *jsonschema.Schema {
	t := v.Type()
	switch {
	case t == reflect.TypeFor[*yaml.Node]():
		return &jsonschema.Schema{}
	case t == reflect.TypeFor[time.Duration]():
		return &jsonschema.Schema{Types: orNull("string"), Pattern: durationPattern}
	case t == reflect.TypeFor[strictyaml.Quantity]():
		return &jsonschema.Schema{Types: orNull("number", "string"), Pattern: quantityPattern}
	case strictyaml.ReadsText(t):
		return &jsonschema.Schema{Types: orNull("string", "number", "boolean")}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.value(reflect.New(t.Elem()).Elem(), path)
	case reflect.Struct:
		return b.object(v, path+".")
	case reflect.Slice:
		items := b.value(reflect.New(t.Elem()).Elem(), path+"[]")
		if must(items) {
			items.Type, items.Types = "object", nil // null is as absent
		}
		return &jsonschema.Schema{Types: orNull("array"), Items: items}
	case reflect.Map:
		return &jsonschema.Schema{Types: orNull("object"),
			AdditionalProperties: b.value(reflect.New(t.Elem()).Elem(), path)}
	case reflect.Bool:
		return &jsonschema.Schema{Types: orNull("boolean")}
	}
	switch {
	case v.CanInt() || v.CanUint():
		return wholeSchema(t)
	case v.CanFloat():
		return &jsonschema.Schema{Types: orNull("number")}
	}
	return &jsonschema.Schema{Types: orNull("string")}
}

// wholeSchema returns the schema of the whole numbers that a type has.
func wholeSchema(t reflect.Type) *jsonschema.Schema {
	s := &jsonschema.Schema{Types: orNull("integer")}
	least, most, bounded := strictyaml.Range(t)
	if bounded || least == 0 {
		s.Minimum = new(float64(least))
	}
	if bounded {
		s.Maximum = new(float64(most))
	}
	return s
}

func orNull(types ...string) []string { return append(types, "null") }

// standard returns a default as JSON; nil = there is none to show.
func standard(v reflect.Value) json.RawMessage {
	switch x := v.Interface().(type) {
	case time.Duration:
		if x != 0 {
			return json.RawMessage(`"` + x.String() + `"`)
		}
		return nil
	case strictyaml.Quantity:
		if x == 0 {
			return nil
		}
		return encoded(x)
	}
	if written, ok := strictyaml.Written(v); ok {
		return encoded(written)
	}
	switch {
	case v.Kind() == reflect.String && v.IsZero():
		return nil
	case v.Kind() == reflect.String || v.Kind() == reflect.Bool || v.CanInt() || v.CanUint() || v.CanFloat():
		return encoded(v.Interface())
	}
	return nil
}

func encoded(x any) json.RawMessage {
	text, err := json.Marshal(x)
	if err != nil {
		return nil // a number that JSON does not have, such as infinity
	}
	return text
}
