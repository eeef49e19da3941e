package config

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// referenceType is a plugin type of the reference.
type referenceType struct {
	name       string
	parameters []string          // by name, in its order
	defaults   map[string]string // of its code, of those that have one
}

// referenceTypes reads the list of the reference's plugin types.
func referenceTypes(t *testing.T) (types []referenceType) {
	t.Helper()
	const name = "testdata/reference-types.txt"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if len(words) < 2 {
			t.Fatalf("%s: %q names no type", name, line)
		}
		r := referenceType{name: words[1], defaults: map[string]string{}}
		for _, word := range words[2:] {
			parameter, standard, has := strings.Cut(word, "=")
			r.parameters = append(r.parameters, parameter)
			if has {
				r.defaults[parameter] = standard
			}
		}
		types = append(types, r)
	}
	return types
}

// ownTypes are those that the reference does not have.
var ownTypes = []string{
	"document-data-source",
	"expected-completion",
	"json-extractor",
	"learning-detector",
	"longest-flow-displacement-policy",
	"newest-request-displacement-policy",
	"list-queue",
	"max-min-heap",
	"prometheus-extractor",
	"reserve-policy",
	"shortest-work-ordering-policy",
	"token-fairness-policy",
}

// documentedOtherwise has defaults of the reference that its documentation and its code do not agree on: those of the
// documentation, which is README.md of dataproducer/approximateprefix. The code counts, and the list of its types has
// what that says. The fourth is the list of parsers in README.md of requesthandling/parsers.
var documentedOtherwise = []struct{ plugin, parameter, documented string }{
	{"approx-prefix-cache-producer", "blockSizeTokens", "0"},
	{"approx-prefix-cache-producer", "maxPrefixBlocksToMatch", "0"},
	{"approx-prefix-cache-producer", "lruCapacityPerServer", "0"},
}

// Each type of the reference is there, or is refused with a reason; each type that is there is one of the reference or
// an own one.
func TestCatalogueIsTheReferences(t *testing.T) {
	theirs := map[string]bool{}
	for _, r := range referenceTypes(t) {
		if theirs[r.name] {
			t.Errorf("%s stands twice", r.name)
		}
		theirs[r.name] = true
		is := 0
		for _, there := range []bool{
			construct(r.name) != nil, renamed[r.name] != "", unsupported[r.name] != "", removed[r.name] != "",
		} {
			if there {
				is++
			}
		}
		if is != 1 {
			t.Errorf("%s is %d of: there, renamed, unsupported, removed; want one of them", r.name, is)
		}
	}
	for _, typ := range knownTypes() {
		if theirs[typ] == slices.Contains(ownTypes, typ) {
			t.Errorf("%s: testdata/reference-types.txt has it %v, and so has ownTypes; want it in one of them", typ,
				theirs[typ])
		}
	}
	for _, table := range []map[string]string{unsupported, removed, renamed} {
		for typ := range table {
			if !theirs[typ] {
				t.Errorf("%s is refused or renamed, and no type of the reference", typ)
			}
		}
	}
}

// Each parameter of the reference is there. One that is not has to be named in differences.md, which names the rest by
// itself.
func TestParametersAreTheReferences(t *testing.T) {
	for _, r := range referenceTypes(t) {
		if construct(r.name) == nil {
			continue
		}
		ours := parametersOf(r.name)
		for _, name := range r.parameters {
			if _, ok := ours[name]; !ok {
				t.Errorf("%s lacks the parameter %s", r.name, name)
			}
		}
	}
}

// parametersOf returns the parameters of a type by name.
func parametersOf(typ string) map[string]Parameter {
	all := map[string]Parameter{}
	for _, f := range (*Catalogue)(nil).Describe() {
		for _, p := range f.Plugins {
			if p.Type != typ {
				continue
			}
			for _, q := range p.Parameters {
				all[q.Name] = q
			}
		}
	}
	return all
}

// Where the reference's documentation contradicts its code, the code counts.
func TestDefaultsFollowTheReferencesCode(t *testing.T) {
	code := map[string]string{}
	for _, r := range referenceTypes(t) {
		for name, standard := range r.defaults {
			code[r.name+"."+name] = standard
		}
	}
	for _, d := range documentedOtherwise {
		got, want := parametersOf(d.plugin)[d.parameter].Default, code[d.plugin+"."+d.parameter]
		if got != want || want == d.documented {
			t.Errorf("%s.%s is %s, want %s, and not the documented %s", d.plugin, d.parameter, got, want, d.documented)
		}
	}
	c, err := Load([]byte(newHead), three) // the fourth: the documentation has no parser for what is left
	if err != nil {
		t.Fatal(err)
	}
	if want := "[openai-parser anthropic-parser vllmhttp-parser]"; fmt.Sprint(c.Parsers) != want {
		t.Errorf("parsers %v, want %s, and what no parser is for is forwarded", c.Parsers, want)
	}
}

// differingParameters returns the items of the list of differences that follow from the parameters of types that both
// have.
func differingParameters(t *testing.T) (items []string) {
	t.Helper()
	var more, fixed, idle, other []string
	for _, r := range referenceTypes(t) {
		if construct(r.name) == nil {
			continue
		}
		ours := parametersOf(r.name)
		for _, name := range slices.Sorted(maps.Keys(ours)) {
			q, of := ours[name], "`"+name+"` of `"+r.name+"`"
			standard, has := r.defaults[name]
			own := strings.Trim(q.Default, `"`)
			switch {
			case !slices.Contains(r.parameters, name) && q.Kind == "object": // its keys are parameters of their own
			case !slices.Contains(r.parameters, name):
				more = append(more, of)
			case q.Effect == "none":
				fixed = append(fixed, of)
			case q.Effect == "warning":
				idle = append(idle, of)
			}
			if has && !sameValue(standard, own) {
				other = append(other, of+" ("+cmp.Or(own, "none")+", not "+standard+")")
			}
		}
	}
	for _, list := range []struct {
		begins string
		of     []string
	}{
		{"Parameters that only Signalbox has: ", more},
		{"Parameters of the reference of which only the default is accepted: ", fixed},
		{"Parameters of the reference that are accepted and have no effect: ", idle},
		{"Defaults of parameters that differ: ", other},
	} {
		slices.Sort(list.of)
		items = append(items, wrap("- ", list.begins+strings.Join(list.of, ", ")+"."))
	}
	var documented []string
	for _, d := range documentedOtherwise {
		documented = append(documented, fmt.Sprintf("`%s` of `%s` is %s, not %s", d.parameter, d.plugin,
			parametersOf(d.plugin)[d.parameter].Default, d.documented))
	}
	return append(items, wrap("- ", "In four defaults the reference's documentation, its README files of the prefix "+
		"producer and of the parsers, contradicts its code, and Signalbox follows the code: "+
		strings.Join(documented, "; ")+"; and where a file names no parsers, a request that none of them is for is "+
		"forwarded, while the documentation leaves `passthrough-parser` out."))
}

// sameValue reports whether two defaults are the same, which durations may be in different spellings.
func sameValue(a, b string) bool {
	x, wrong := time.ParseDuration(a)
	y, err := time.ParseDuration(b)
	return a == b || wrong == nil && err == nil && x == y
}

// ownTypesItem returns the item of the list of differences that names the types of Signalbox alone.
func ownTypesItem() string {
	var quoted []string
	for _, typ := range slices.Sorted(slices.Values(ownTypes)) {
		quoted = append(quoted, "`"+typ+"`")
	}
	return wrap("- ", "Plugin types that only Signalbox has: "+strings.Join(quoted, ", ")+".")
}
