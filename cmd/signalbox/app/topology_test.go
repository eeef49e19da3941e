package app

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// places are four servers by where they stand, as the endpoints file has it: host, rack, zone and region.
var places = [][4]string{
	{"gpu-1.example.com", "r1", "eu-1a", "eu-1"}, {"gpu-2.example.com", "r1", "eu-1a", "eu-1"},
	{"gpu-3.example.com", "r2", "eu-1b", "eu-1"}, {"gpu-4.example.com", "r3", "us-1a", "us-1"},
}

// byPlace has a profile for each label, which the header of a request names.
const byPlace = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: label-selector-filter, name: host, parameters: {matchLabels: {kubernetes.io/hostname: gpu-2.example.com}}}
- {type: label-selector-filter, name: rack, parameters: {matchLabels: {topology.kubernetes.io/rack: r1}}}
- {type: label-selector-filter, name: zone, parameters: {matchLabels: {topology.kubernetes.io/zone: eu-1b}}}
- type: label-selector-filter
  name: region
  parameters: {matchExpressions: [{key: topology.kubernetes.io/region, operator: In, values: [eu-1, af-1]}]}
- {type: max-score-picker, parameters: {maxNumOfEndpoints: 4}}
- {type: header-profile-handler, parameters: {headerName: x-within, defaultProfile: region}}
schedulingProfiles:
- {name: host, plugins: [{pluginRef: host}]}
- {name: rack, plugins: [{pluginRef: rack}]}
- {name: zone, plugins: [{pluginRef: zone}]}
- {name: region, plugins: [{pluginRef: region}]}
`

// Where servers stand reaches picks from the endpoints file by configuration alone.
func TestPlacesOfServersDecide(t *testing.T) {
	entries := ""
	for i, p := range places {
		entries += fmt.Sprintf("\n{name: s%d, address: 127.0.0.1, port: %d, labels: {kubernetes.io/hostname: %s, "+
			"topology.kubernetes.io/rack: %s, topology.kubernetes.io/zone: %s, topology.kubernetes.io/region: %s}}",
			i, 1+i, p[0], p[1], p[2], p[3])
	}
	tr, end := treeOver(t, io.Discard, entries[1:], "--config-text", byPlace)
	defer end()
	for i, c := range []struct {
		within string
		want   []messages.Address
	}{
		{"host", []messages.Address{"127.0.0.1:2"}}, {"rack", []messages.Address{"127.0.0.1:1", "127.0.0.1:2"}},
		{"zone", []messages.Address{"127.0.0.1:3"}},
		{"region", []messages.Address{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}},
	} {
		got := tr.pickedWithin(t, messages.RequestID(1+i), c.within)
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("within the %s: got %v, want %v", c.within, got, c.want)
		}
	}
}

// pickedWithin returns the destinations of a request with this value of the one header that the configuration reads.
func (t *tree) pickedWithin(tt *testing.T, id messages.RequestID, header string) []messages.Address {
	tt.Helper()
	now, answer, under := t.picker.System().Now(), make(listener, 1), t.configuration.streams()
	_, ok := under.Start(messages.RequestArrived{
		Request: messages.Request{ID: id, Headers: messages.ListOf(messages.HeaderValue{Text: header,
			Given: true})},
		Configuration: under.Number, ArrivedAt: now, Deadline: now.Add(time.Hour), Stream: answer,
	})
	if !ok {
		tt.Fatal("the loop has no room")
	}
	select {
	case m := <-answer:
		made, _ := m.(messages.PickMade)
		return made.Destinations.Append(nil)
	case <-time.After(20 * time.Second):
		tt.Fatal("no answer within 20 s")
		return nil
	}
}
