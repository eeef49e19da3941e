package modelserver

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

func TestExtractFields(t *testing.T) {
	const page = `{"power":{"watts":250.5},"gpus":[{"up":true},{"up":false}],"name":"a","none":null,"7":7,
		"hints":{"10.0.0.1:8000":{"cost":3},"b":{"cost":4},"{endpoint}":{"cost":5},"pod":{"cost":6},
		"ranked-rank-1":{"cost":7},"ranked":{"cost":8},"x-rank-y":{"cost":9}},"both":{"10.0.0.1:8000":1,"b":2}}`
	of := messages.EndpointSpec{Address: "10.0.0.1:8000", Name: "b"}
	for path, want := range map[string]float64{
		"power.watts": 250.5, "gpus.0.up": 1, "gpus.1.up": 0, "7": 7,
		"power": -1, "power.volts": -1, "gpus.2.up": -1, "gpus.-1.up": -1, "gpus.x.up": -1, "name": -1, "none": -1,
		"power.watts.x": -1, "hints.{endpoint}.cost": 3, "both.{endpoint}": 1, "power.{endpoint}": -1,
	} {
		list := []Extraction{{Attribute: "a/b", Producer: "mine", Field: path}}
		c, err := document([]byte(page), list)
		got := extractFields(c.root, list, of)
		if err != nil || want < 0 && got != nil || want >= 0 && !slices.Equal(got, []messages.Extracted{
			{Attribute: "a/b", Producer: "mine", Value: want},
		}) {
			t.Errorf("%s: got %+v, %v, want %v", path, got, err, want)
		}
	}
	list := []Extraction{{Attribute: "a/b", Field: "hints.{endpoint}.cost"}}
	c, _ := document([]byte(page), list)
	of.Address = "10.0.0.2:8000"
	if got := extractFields(c.root, list, of); len(got) != 1 || got[0].Value != 4 {
		t.Errorf("got %v for an endpoint that the document has by name, want 4", got)
	}
	for name, want := range map[string]float64{
		"pod-rank-0": 6, "pod-rank-12": 6, "ranked-rank-1": 7, "ranked-rank-0": 8, "x-rank-y": 9, "pod": 6,
		"pod-rank-": -1, "pod-rank-x": -1, "pod-rank--1": -1, "rank-0": -1, "": -1, "c": -1,
	} {
		of.Name = name
		got := extractFields(c.root, list, of)
		if want < 0 && got != nil || want >= 0 && (len(got) != 1 || got[0].Value != want) {
			t.Errorf("%q: got %v, want %v: that of its name, or else of its pod", name, got, want)
		}
	}
	if _, err := document([]byte(`{"a":`), list); err == nil {
		t.Error("half a document is taken")
	}
}

func TestExtract(t *testing.T) {
	const page = `# TYPE gpu_watts gauge
gpu_watts{gpu="0"} 100
gpu_watts{gpu="1"} 250
gpu_watts_limit 700
gpu_temperature{gpu="1",site="a\\b"} -4
requests_total{code="200"} 30
requests_total{code="500"} 10
errors_total 0
broken NaN
{"dotted.name",gpu="1"} 7
cut_off 5`
	for name, c := range map[string]struct {
		extraction Extraction
		want       float64
		absent     bool
	}{
		"last":             {Extraction{Metric: "gpu_watts"}, 250, false},
		"sum":              {Extraction{Metric: "gpu_watts", Aggregation: Sum}, 350, false},
		"max":              {Extraction{Metric: "gpu_watts", Aggregation: Max}, 250, false},
		"max below zero":   {Extraction{Metric: "gpu_temperature", Aggregation: Max}, -4, false},
		"a label":          {Extraction{Metric: "gpu_watts", Labels: []Label{{"gpu", "0"}}}, 100, false},
		"an escaped label": {Extraction{Metric: "gpu_temperature", Labels: []Label{{"site", `a\b`}}}, -4, false},
		"two labels": {Extraction{Metric: "gpu_temperature", Labels: []Label{{"gpu", "1"}, {"x", "y"}}}, 0,
			true},
		"no such label":      {Extraction{Metric: "gpu_watts", Labels: []Label{{"gpu", "2"}}}, 0, true},
		"a name in quotes":   {Extraction{Metric: "dotted.name", Labels: []Label{{"gpu", "1"}}}, 7, false},
		"no such metric":     {Extraction{Metric: "gpu_watt"}, 0, true},
		"no number":          {Extraction{Metric: "broken"}, 0, true},
		"a line without end": {Extraction{Metric: "cut_off"}, 0, true},
		"a total":            {Extraction{Metric: "requests_total", Aggregation: Rate}, 40, false},
		"a ratio": {Extraction{Metric: "gpu_watts", Aggregation: Ratio, Per: "gpu_watts_limit"}, 0.5,
			false},
		"a ratio to itself":  {Extraction{Metric: "gpu_watts", Aggregation: Ratio, Per: "gpu_watts"}, 1, false},
		"a ratio to 0":       {Extraction{Metric: "gpu_watts", Aggregation: Ratio, Per: "errors_total"}, 0, true},
		"a ratio to nothing": {Extraction{Metric: "gpu_watts", Aggregation: Ratio, Per: "gone"}, 0, true},
		"a ratio of nothing": {Extraction{Metric: "gone", Aggregation: Ratio, Per: "gpu_watts"}, 0, true},
		"a ratio with a label": {Extraction{Metric: "requests_total", Labels: []Label{{"code", "500"}},
			Aggregation: Ratio, Per: "requests_total"}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.extraction.Attribute, c.extraction.Producer = "example.com/x", "mine"
			got := extract([]byte(page), []Extraction{c.extraction})
			var want []messages.Extracted
			if !c.absent {
				want = []messages.Extracted{{
					Attribute: "example.com/x", Producer: "mine", Value: c.want,
					Total: c.extraction.Aggregation == Rate,
				}}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
	if got := extract([]byte(page), nil); got != nil {
		t.Errorf("got %+v where nothing is wanted", got)
	}
}

// lengths is an extractor of another module: the length of the page, what is unknown, and what is no number.
type lengths struct{ fails error }

func (lengths) Emits() []string { return []string{"x/length", "x/unknown", "x/infinite"} }

func (l lengths) Extract(page []byte, values []float64) error {
	values[0], values[2] = float64(len(page)), math.Inf(1)
	return l.fails
}

func TestExtractorsOfOtherModules(t *testing.T) {
	by := &lengths{}
	list := []Extraction{
		{Attribute: "x/watts", Producer: "own", Metric: "watts", Field: "watts"},
		{Attribute: "x/length", Producer: "theirs", By: by}, {Attribute: "x/unknown", Producer: "theirs", By: by,
			At: 1},
		{Attribute: "x/infinite", Producer: "theirs", By: by, At: 2},
	}
	taken := func(page string, list []Extraction, json bool) (messages.List[messages.Extracted], error) {
		c, err := contents{page: []byte(page)}, error(nil)
		if json {
			c, err = document([]byte(page), list)
		}
		if err != nil {
			return messages.List[messages.Extracted]{}, err
		}
		return c.taken(list, messages.EndpointSpec{})
	}
	for page, document := range map[string]bool{"watts 7\n": false, `{"watts":7}`: true} {
		got, err := taken(page, list, document)
		want := messages.ListOf(messages.Extracted{Attribute: "x/watts", Producer: "own", Value: 7},
			messages.Extracted{Attribute: "x/length", Producer: "theirs", Value: float64(len(page))})
		if err != nil || !reflect.DeepEqual(got.Append(nil), want.Append(nil)) {
			t.Errorf("%s: got %v, %v; want %v", page, got, err, want)
		}
	}
	if got, err := taken("no JSON", list[1:2], true); err != nil || got.Len() != 1 {
		t.Errorf("a document for others alone: %v, %v", got, err)
	}
	if _, err := taken("no JSON", list, true); err == nil {
		t.Error("a document that is none was read")
	}
	by.fails = errors.New("no such page")
	if _, err := taken("watts 7\n", list, false); err == nil || err.Error() != "theirs: no such page" {
		t.Errorf("an extractor that fails gave the error %v", err)
	}
	if list[1].equal(list[2]) || !list[1].equal(list[1]) {
		t.Error("equal does not compare extractors")
	}
}
