package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/admitters"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/ceilings"
	"github.com/signalbox-epp/signalbox/engine/deciders"
	"github.com/signalbox-epp/signalbox/engine/detectors"
	"github.com/signalbox-epp/signalbox/engine/displacements"
	"github.com/signalbox-epp/signalbox/engine/evictions"
	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/engine/orderings"
	"github.com/signalbox-epp/signalbox/engine/pickers"
	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/profiles"
	"github.com/signalbox-epp/signalbox/engine/queues"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/scorers"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

var update = flag.Bool("update", false, "rewrite generated files")

// TestPluginDocs fails when plugins_doc_gen.go differs from the doc comments.
func TestPluginDocs(t *testing.T) {
	const name = "plugins_doc_gen.go"
	want := generate(t)
	if *update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is out of date (%v); run: go generate ./engine/config", name, err)
	}
}

// TestPluginsPage fails when deploy/docs/plugins.md differs from what Describe says.
func TestPluginsPage(t *testing.T) {
	const name = "../../deploy/docs/plugins.md"
	want := pluginsPage()
	if *update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is out of date (%v); run: go generate ./engine/config", name, err)
	}
}

// pluginsPage returns the page of all plugins.
func pluginsPage() []byte {
	var b bytes.Buffer
	b.WriteString("# Plugins\n\n" + wrap("", "Every plugin type that a configuration may name, with its parameters "+
		"and "+
		"their defaults. `signalbox plugins TYPE` prints the same. Another module can add types: see "+
		"`write-a-plugin.md`. `differences.md` lists the types of the reference "+
		"that are refused.") + "\n\n" + wrap("", "What a plugin takes for each candidate is the shortest of many "+
		"rounds of `BenchmarkCosts` in `engine/config`: "+CostsMeasured+". Each tells these candidates apart. The prompt "+
		"has 1 KB, and 16 KB for the `approx-prefix-cache-producer`. What all plugins of a profile share, such as "+
		"reading attributes into columns, is not part of it.") + "\n")
	for _, family := range (*Catalogue)(nil).Describe() {
		fmt.Fprintf(&b, "\n## %s\n", strings.ToUpper(family.Name[:1])+family.Name[1:])
		for _, p := range family.Plugins {
			fmt.Fprintf(&b, "\n### `%s`\n\n", p.Type)
			for _, paragraph := range strings.Split(p.Text, "\n\n") {
				b.WriteString(wrap("", paragraph) + "\n\n")
			}
			b.Truncate(b.Len() - 1)
			for _, line := range p.Facts() {
				b.WriteString("\n" + wrap("", line) + "\n")
			}
			b.WriteString(parameterLines(p.Parameters))
		}
	}
	return b.Bytes()
}

// parameterLines returns the list of a plugin's parameters, behind a blank line.
func parameterLines(list []Parameter) (lines string) {
	for _, q := range list {
		lines += wrap("- ", parameterLine(q)) + "\n"
	}
	if lines != "" {
		lines = "\n" + lines
	}
	return lines
}

// parameterLine returns the item of a parameter.
func parameterLine(q Parameter) string {
	line := "`" + q.Name + "` (" + q.Kind
	if q.Default != "" {
		line += ", default `" + q.Default + "`"
	}
	if allowed := q.Allowed(); allowed != "" {
		line += "; " + allowed
	}
	line += "): " + q.Text
	switch q.Effect {
	case "none":
		line += " Only the default is accepted."
	case "warning":
		line += " It has no effect."
	}
	return strings.TrimRight(line, " ")
}

// TestDescribeIsComplete fails when a plugin or a parameter has no documentation.
func TestDescribeIsComplete(t *testing.T) {
	var types []string
	for _, family := range (*Catalogue)(nil).Describe() {
		for _, p := range family.Plugins {
			types = append(types, p.Type)
			complete(t, p)
		}
	}
	want := knownTypes()
	slices.Sort(types)
	slices.Sort(want)
	if !slices.Equal(types, want) {
		t.Errorf("documented are %v, want %v", types, want)
	}
}

// A plugin that reads what servers report says what it makes of an answer that lacks it, and of one that is stale.
func TestPluginsSayWhatUnknownAndStaleMean(t *testing.T) {
	named := []byte(`{"attributeKey": "waiting-requests", "headerName": "x-any"}`)
	found := 0
	for _, family := range (*Catalogue)(nil).Describe() {
		for _, p := range family.Plugins {
			plugin := construct(p.Type)
			reader, ok := plugin.(schedule.Reader)
			if !ok {
				continue
			}
			_ = json.Unmarshal(named, plugin) // of those that read whatever is named
			var b attributes.Binding
			b.Emit("built in", attributes.BuiltIn()...)
			b.Emit("a producer", attributes.Shared()...)
			reader.Declare(b.Reader(p.Type))
			layout, faults := b.Layout()
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			if !slices.ContainsFunc(slices.Concat(layout.Of(attributes.Number), layout.Of(attributes.Names)),
				func(a attributes.Attribute) bool { return a.Origin == attributes.Sampled }) {
				continue
			}
			found++
			text := p.Text
			for _, q := range p.Parameters {
				text += q.Text
			}
			if !regexp.MustCompile("not report|not tell|reports neither").MatchString(text) ||
				!regexp.MustCompile("stale|fresh").MatchString(text) {
				t.Errorf("%s: it does not say what unknown and stale mean: %s", p.Type, text)
			}
		}
	}
	if found < 9 {
		t.Errorf("%d plugins read what servers report, want all of them", found)
	}
}

// TestEverySectionIsDocumented fails when a key of a section has no documentation.
func TestEverySectionIsDocumented(t *testing.T) {
	for key, text := range sectionDocs {
		if !strings.HasSuffix(text, ".") {
			t.Errorf("%s: got %q, want a sentence", key, text)
		}
	}
	if len(sectionDocs) < 40 {
		t.Errorf("got %d keys of sections, want all of them", len(sectionDocs))
	}
}

// sectionTypes lists the structs that a file of any version is decoded onto, plugins' parameters aside.
func sectionTypes() []reflect.Type {
	var list []reflect.Type
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[document]().PkgPath() ||
			slices.Contains(list, t) {
			return
		}
		list = append(list, t)
		for _, f := range reflect.VisibleFields(t) {
			if f.Tag.Get("json") != "" || f.Anonymous {
				visit(f.Type)
			}
		}
	}
	visit(reflect.TypeFor[document]())
	visit(reflect.TypeFor[documentV1Alpha1]())
	return list
}

// complete wants sentences about a plugin and its parameters, none of them twice.
func complete(t *testing.T, p Plugin) {
	if p.Text == "" {
		t.Errorf("%s: no documentation", p.Type)
	}
	for _, q := range p.Parameters {
		if q.Kind == "" || !strings.HasSuffix(q.Text, ".") {
			t.Errorf("%s.%s: kind %q, text %q, want both, and a sentence", p.Type, q.Name, q.Kind, q.Text)
		}
		if q.Effect == "warning" && strings.Contains(q.Text, "no effect") {
			t.Errorf("%s.%s: %q is followed by: It has no effect.", p.Type, q.Name, q.Text)
		}
	}
}

func TestDescribeNamesDefaults(t *testing.T) {
	for _, family := range (*Catalogue)(nil).Describe() {
		for _, p := range family.Plugins {
			if p.Type != "prefix-cache-scorer" {
				continue
			}
			if got := p.Parameters[1]; got.Name != "matchLengthScaleTokens" || got.Kind != "int" ||
				got.Default != "8192" {
				t.Errorf("got %+v, want matchLengthScaleTokens, int, 8192", got)
			}
			return
		}
	}
	t.Error("prefix-cache-scorer is not described")
}

// generate writes the table from the constructors and the source.
func generate(t *testing.T) []byte {
	how, figures := costs(t)
	var b bytes.Buffer
	b.WriteString("// Code generated by \"go generate ./engine/config\" from doc comments; DO NOT EDIT.\n\npackage " +
		"config\n\n")
	fmt.Fprintf(&b, "// CostsMeasured says when and where the costs of plugins were measured.\nconst CostsMeasured = "+
		"%q\n\n", how)
	b.WriteString("var pluginDocs = []Family{\n")
	for _, f := range []struct {
		name  string
		types []string
	}{
		{"filters", slices.Sorted(maps.Keys(filters.Types))},
		{"scorers", slices.Sorted(maps.Keys(scorers.Types))},
		{"pickers", slices.Sorted(maps.Keys(pickers.Types))},
		{"profile handlers", slices.Sorted(maps.Keys(profiles.Types))},
		{"deciders", slices.Sorted(maps.Keys(deciders.Types))},
		{"admitters", slices.Sorted(maps.Keys(admitters.Types))},
		{"saturation detectors", slices.Sorted(maps.Keys(detectors.Types))},
		{"fairness policies", slices.Sorted(maps.Keys(fairness.Types))},
		{"ordering policies", slices.Sorted(maps.Keys(orderings.Types))},
		{"usage limit policies", slices.Sorted(maps.Keys(ceilings.Types))},
		{"eviction policies", slices.Sorted(maps.Keys(evictions.Types))},
		{"displacement policies", slices.Sorted(maps.Keys(displacements.Types))},
		{"queues", slices.Sorted(maps.Keys(queues.Types))},
		{"request control", slices.Sorted(maps.Keys(points.Types))},
		{"built in", slices.Sorted(maps.Keys(others))},
	} {
		fmt.Fprintf(&b, "{Name: %q, Plugins: []Plugin{\n", f.name)
		for _, typ := range f.types {
			v := reflect.ValueOf(construct(typ)).Elem()
			docs := sourceOf(t, v.Type())
			maps.Copy(docs, sourceOf(t, embedded(v.Type())))
			source := sourceFile(t, v.Type())
			if strings.HasSuffix(typ, "-parser") { // whose parameters stand apart from what they do
				source = "adapters/parsers/formats.go"
			}
			fmt.Fprintf(&b, "{Type: %q, Text: %q, Source: %q, ", typ, docs[v.Type().Name()], source)
			facts(&b, typ, figures[typ])
			if len(strictyaml.FieldsOf(v.Type())) > 0 {
				b.WriteString("Parameters: []Parameter{\n")
				parameters(&b, typ, docs, "", v)
				b.WriteString("}")
			}
			b.WriteString("},\n")
		}
		b.WriteString("}},\n")
	}
	b.WriteString("}\n\n// sectionDocs has the keys of sections by the names of their structs.\nvar sectionDocs = " +
		"map[string]string{\n")
	docs := sourceOf(t, reflect.TypeFor[document]())
	for _, section := range sectionTypes() {
		for _, f := range reflect.VisibleFields(section) {
			if key := f.Tag.Get("json"); key != "" && len(f.Index) == 1 {
				fmt.Fprintf(&b, "%q: %q,\n", section.Name()+"."+key, docs[section.Name()+"."+f.Name])
			}
		}
	}
	b.WriteString("}\n")
	out, err := format.Source(b.Bytes())
	if err != nil {
		t.Fatalf("%v in %s", err, b.String())
	}
	return out
}

// facts writes what a plugin costs, reads and writes.
func facts(b *bytes.Buffer, typ, cost string) {
	if cost != "" {
		fmt.Fprintf(b, "Cost: %q, ", cost)
	}
	if reads := readsOf(typ); len(reads) > 0 {
		fmt.Fprintf(b, "Reads: %#v, ", reads)
	}
	if writes := writesOf[typ]; len(writes) > 0 {
		fmt.Fprintf(b, "Writes: %#v, ", writes)
	}
}

// parameters writes the keys of a struct, and those of the structs in its lists.
func parameters(b *bytes.Buffer, typ string, docs map[string]string, prefix string, v reflect.Value) {
	for _, f := range strictyaml.FieldsOf(v.Type()) {
		owner, last := v.Type(), len(f.Index)-1
		if last > 0 {
			owner = owner.FieldByIndex(f.Index[:last]).Type
		}
		value := v.FieldByIndex(f.Index)
		text := docs[owner.Name()+"."+owner.Field(f.Index[last]).Name]
		standard := show(value)
		if standard == "none" || standard == `""` {
			standard = ""
		}
		fmt.Fprintf(b, "{Name: %q, Kind: %q, Default: %q, Range: %q, Text: %q, Effect: %q},\n", prefix+f.Name,
			kind(f.Type), standard, rangeOf(typ, prefix+f.Name), text, f.Effect)
		switch t := f.Type; {
		case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
			parameters(b, typ, docs, prefix+f.Name+"[].", reflect.New(t.Elem()).Elem())
		case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
			parameters(b, typ, docs, prefix+f.Name+".", reflect.New(t.Elem()).Elem())
		case t.Kind() == reflect.Struct:
			parameters(b, typ, docs, prefix+f.Name+".", value)
		}
	}
}

// sourceOf reads the package of a type: Name -> doc comment, Name.Field -> the field's comment. A plugin's comment
// loses its Go name, which no user knows.
func sourceOf(t *testing.T, typ reflect.Type) map[string]string {
	files, err := filepath.Glob(filepath.Join("..", path.Base(typ.PkgPath()), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source of %v: %v", typ, err)
	}
	docs := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
				typeDocs(docs, g)
			}
		}
	}
	return docs
}

// embedded returns the type whose parameters a plugin has beside its own; the plugin's own type = it has none.
func embedded(plugin reflect.Type) reflect.Type {
	for i := range plugin.NumField() {
		if f := plugin.Field(i); f.Anonymous {
			return f.Type
		}
	}
	return plugin
}

func typeDocs(docs map[string]string, g *ast.GenDecl) {
	for _, spec := range g.Specs {
		ts := spec.(*ast.TypeSpec)
		doc := ts.Doc
		if doc == nil {
			doc = g.Doc
		}
		docs[ts.Name.Name] = sentence(doc.Text(), ts.Name.Name)
		st, ok := ts.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range st.Fields.List {
			text := f.Doc.Text() + f.Comment.Text()
			for _, id := range f.Names {
				docs[ts.Name.Name+"."+id.Name] = sentence(text, id.Name)
			}
		}
	}
}

// sentence returns a comment without the Go name that it begins with, paragraphs on one line each.
func sentence(text, name string) string {
	paragraphs := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, p := range paragraphs {
		paragraphs[i] = strings.Join(strings.Fields(p), " ")
	}
	text = strings.Join(paragraphs, "\n\n")
	for _, verb := range []string{"is ", "are ", ""} {
		if rest, ok := strings.CutPrefix(text, name+" "+verb); ok && rest != "" {
			return strings.ToUpper(rest[:1]) + rest[1:]
		}
	}
	return text
}
