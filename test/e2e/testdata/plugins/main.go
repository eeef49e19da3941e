// Command my-picker is Signalbox with four plugins of its own.
package main

import (
	"bytes"

	"github.com/signalbox-epp/signalbox/cmd/signalbox/app"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// sameZone prefers endpoints in the zone that a header of the request names.
type sameZone struct {
	HeaderName string `json:"headerName" doc:"The header that names the zone."`

	header attributes.HeaderSlot
}

func (s *sameZone) Declare(r *attributes.Reader) { s.header = r.Header(s.HeaderName) }

func (s *sameZone) Score(in *schedule.Input, scores []float32) {
	zone, given := in.Header(s.header)
	for i, endpoint := range in.Candidates().All() {
		if of, ok := endpoint.Label("topology.kubernetes.io/zone"); given && ok && of == zone {
			scores[i] = 1
		}
	}
}

// notBusy drops endpoints with a queue, unless all have one.
type notBusy struct {
	MaxQueue float64 `json:"maxQueue" doc:"Requests that may wait."`

	queue attributes.NumberSlot
}

func (f *notBusy) Declare(r *attributes.Reader) {
	f.queue = r.Number(attributes.QueuedRequests.Name, "")
}

func (f *notBusy) Filter(in *schedule.Input, keep []bool) {
	queues, left := in.Numbers(f.queue), 0
	for i := range keep {
		keep[i] = !(queues.At(i) > f.MaxQueue) // an unknown queue, which is NaN, is none
		if keep[i] {
			left++
		}
	}
	for i := range keep {
		keep[i] = keep[i] || left == 0
	}
}

// zoneNeeded refuses requests that name no zone, and tells the server that the others were checked.
type zoneNeeded struct{ zone attributes.HeaderSlot }

func (z *zoneNeeded) Declare(r *attributes.Reader) { z.zone = r.Header("x-zone") }

func (z *zoneNeeded) RequestHeaders(in *schedule.Input, set *schedule.Headers) schedule.Refusal {
	if _, given := in.Header(z.zone); !given {
		return schedule.Refusal{Reason: messages.InvalidRequest, Detail: "the header x-zone is missing"}
	}
	set.Set("x-zone-checked", "yes")
	return schedule.Refusal{}
}

// lines is an extractor that counts the lines of the metrics page.
type lines struct{}

func (lines) Emits() []string { return []string{"example.com/lines"} }

func (lines) Extract(page []byte, values []float64) error {
	values[0] = float64(bytes.Count(page, []byte("\n")))
	return nil
}

func main() {
	app.Main(app.Named("my-picker", "v1.0.0"), app.Plugins(
		config.PluginType{
			Type: "example.com/same-zone", Text: "Prefers endpoints in the zone that a header names.",
			New: func() any { return &sameZone{HeaderName: "x-zone"} },
		},
		config.PluginType{
			Type: "example.com/not-busy", Text: "Drops endpoints with a queue, unless all have one.",
			New: func() any { return &notBusy{} },
		},
		config.PluginType{
			Type: "example.com/zone-needed", Text: "Refuses requests that name no zone.",
			New: func() any { return &zoneNeeded{} },
		},
		config.PluginType{
			Type: "example.com/lines-extractor", Text: "Counts the lines of the metrics page.",
			New: func() any { return &lines{} },
		},
	))
}
