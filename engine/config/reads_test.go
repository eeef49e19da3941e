package config

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
)

// readsByParameter says what plugins read that a parameter names.
var readsByParameter = map[string]string{
	"endpoint-attribute-filter":        "the attribute that `attributeKey` names",
	"endpoint-attribute-scorer":        "the attribute that `attributeKey` names",
	"endpoint-attribute-weight-scorer": "the attribute that `attributeKey` names",
	"header-label-affinity-scorer":     "the header that `headerName` names",
	"max-saturation-detector":          "what its `detectors` read",
	"session-affinity-filter":          "with `sessionIdConfig.sources` what these name",
	"session-affinity-scorer":          "with `sessionIdConfig.sources` what these name",
	"session-id-producer":              "the header or the cookie that the parameters name",
	"session-state-producer":           "what its `producer` reads",
	"topology-affinity-filter":         "the header that `peerTopologyHeader` names",
	"topology-affinity-scorer":         "the header that `peerTopologyHeader` names",
	"utilization-filter":               "the attributes that its conditions name",
}

// originNotes says where the attributes of plugins are from, and what they are if nothing is known.
var originNotes = []struct {
	attributes.Origin
	words string
}{
	{attributes.Sampled, "unknown if the server does not report it"},
	{attributes.Counted, "always known"},
	{attributes.Matched, "0 if the server holds nothing"},
	{attributes.Produced, "unknown unless its producer tells it"},
}

// readsWith has parameters with which plugins read something else than with their defaults, and how to say so.
var readsWith = map[string]struct{ parameters, when string }{
	"concurrency-detector":    {`{"concurrencyMode": "tokens"}`, "with `concurrencyMode` tokens or hybrid "},
	"prefix-cache-scorer":     {`{"yieldAboveRequests": 1}`, "with `yieldAboveRequests` "},
	"session-affinity-filter": {`{"strategy": "session_id"}`, "with `strategy` session_id and no sources "},
	"session-affinity-scorer": {`{"strategy": "session_id"}`, "with `strategy` session_id and no sources "},
}

// readsOf lists what a plugin reads, with what it reads where there is nothing.
func readsOf(typ string) (names []string) {
	if reader, ok := construct(typ).(schedule.Reader); ok {
		names = declared(typ, reader)
	}
	if with, ok := readsWith[typ]; ok {
		plugin := construct(typ)
		if err := json.Unmarshal([]byte(with.parameters), plugin); err != nil {
			panic(err)
		}
		for _, name := range declared(typ, plugin.(schedule.Reader)) {
			if !slices.Contains(names, name) {
				names = append(names, with.when+name)
			}
		}
	}
	if by := readsByParameter[typ]; by != "" {
		names = append(names, by)
	}
	return names
}

// Whatever values a plugin's parameters have, it reads nothing that its documentation does not name.
func TestReadsByAnyParameterAreNamed(t *testing.T) {
	for _, typ := range knownTypes() {
		reader, reads := construct(typ).(schedule.Reader)
		if !reads {
			continue
		}
		said, more := strings.Join(readsOf(typ), " "), false
		var names []string
		for path, q := range parametersOf(typ) {
			names = append(names, namesWith(typ, path, q)...)
		}
		for _, name := range names {
			more = more || !slices.Contains(quotedNames(declared(typ, reader)), name)
			if !strings.Contains(said, name) {
				t.Errorf("%s reads %s by a parameter, and is said to read %s", typ, name, said)
			}
		}
		if _, listed := readsWith[typ]; listed && !more {
			t.Errorf("%s reads nothing else with any value of a parameter", typ)
		}
	}
}

// namesWith lists what a plugin reads with any of the values that a parameter may have.
func namesWith(typ, path string, q Parameter) (names []string) {
	if strings.Contains(path, "[]") {
		return nil
	}
	values := []any{0.0, 1.0}
	if prose := regexp.MustCompile("^(the|a) "); q.Range != "" && !prose.MatchString(q.Range) {
		for _, word := range regexp.MustCompile(`[A-Za-z_]+`).FindAllString(q.Range, -1) {
			values = append(values, word)
		}
	}
	for _, value := range values {
		plugin := construct(typ)
		if setAt(reflect.ValueOf(plugin).Elem(), path, value) {
			names = append(names, quotedNames(declared(typ, plugin.(schedule.Reader)))...)
		}
	}
	return names
}

// quotedNames returns the names in a list of what a plugin reads, with their quotes.
func quotedNames(list []string) []string {
	return regexp.MustCompile("`[^`]+`").FindAllString(strings.Join(list, " "), -1)
}

// What a plugin makes of a server of which no producer tells: the last one of three, of which two are known.
var unknownProduced = map[string]struct {
	parameters, says string
	want             []float32 // for a filter, 1 = kept
}{
	"endpoint-attribute-filter": {`{"attributeKey": "llm-d.ai/mm-embeddings-cached-ratio", "algorithm": {"threshold": ` +
		`{"operator": "LessThan", "value": 0.4}}}`, "does not report it: Pass", []float32{1, 0, 1}},
	"endpoint-attribute-scorer": {`{"attributeKey": "llm-d.ai/mm-embeddings-cached-ratio"}`,
		"scores the mean of those that do", []float32{1, 0, .5}},
	"latency-observation-scorer-hub": {`{"explorationRate": 0}`, "that of the best server", []float32{1, 0, 1}},
	"mm-embeddings-cache-scorer":     {"{}", "0 where that is unknown", []float32{.25, .5, 0}},
}

// Each plugin that reads what a producer computes says what it makes of a server of which that is unknown.
func TestPluginsSayWhatTheyMakeOfUnknownProduced(t *testing.T) {
	known := func(seconds, share float64) scheduletest.Endpoint {
		return scheduletest.Endpoint{Inflight: 8, Produced: map[string]float64{
			attributes.FirstTokenFloor.Name: .1, attributes.FirstTokenTypical.Name: seconds,
			attributes.FirstTokenTypicalLoad.Name: 8, attributes.MediaCached.Name: share,
		}}
	}
	for _, typ := range knownTypes() {
		plugin := construct(typ)
		reader, reads := plugin.(schedule.Reader)
		c, listed := unknownProduced[typ]
		if !listed {
			if reads && strings.Contains(strings.Join(declared(typ, reader), " "), "unless its producer") {
				t.Errorf("%s reads what is produced, and is not listed", typ)
			}
			continue
		}
		if err := json.Unmarshal([]byte(c.parameters), plugin); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 3)
		scheduletest.Show(t, plugin, scheduletest.Request(), func(in *schedule.Input) {
			if s, ok := plugin.(schedule.Scorer); ok {
				s.Score(in, got)
				return
			}
			keep := []bool{true, true, true}
			plugin.(schedule.Filter).Filter(in, keep)
			for i, kept := range keep {
				if kept {
					got[i] = 1
				}
			}
		}, known(.6, .25), known(.9, .5), scheduletest.Endpoint{Inflight: 8})
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v of servers of which the last is unknown, want %v", typ, got, c.want)
		}
		if text := textOf(typ); !strings.Contains(text, c.says) {
			t.Errorf("%s does not say %q: %s", typ, c.says, text)
		}
	}
}

// textOf returns the text of a type, and those of its parameters.
func textOf(typ string) (text string) {
	for _, family := range pluginDocs {
		for _, p := range family.Plugins {
			if p.Type != typ {
				continue
			}
			text = p.Text
			for _, q := range p.Parameters {
				text += " " + q.Text
			}
		}
	}
	return text
}

// declared lists what a plugin asks for.
func declared(typ string, reader schedule.Reader) (names []string) {
	var b attributes.Binding
	b.Emit("built in", attributes.BuiltIn()...)
	b.Emit("a producer", attributes.Shared()...)
	r := b.Reader(typ)
	reader.Declare(r)
	layout, _ := b.Layout() // of those whose attribute a parameter names, it lacks that
	for _, origin := range originNotes {
		var of []string
		for _, slot := range r.Slots() {
			if a := layout.At(slot); a.Name != "" && a.Origin == origin.Origin {
				of = append(of, "`"+a.Name+"`")
			}
		}
		if len(of) > 0 {
			names = append(names, strings.Join(of, ", ")+" ("+origin.words+")")
		}
	}
	for _, header := range layout.Headers() {
		if header != "" {
			names = append(names, "the header `"+header+"` (empty if the request has none)")
		}
	}
	return names
}
