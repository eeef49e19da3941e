// Command my-picker is a picker with two orderings, each of which goes by what a request asks for.
package main

import (
	"math"
	"strconv"

	"github.com/signalbox-epp/signalbox/cmd/signalbox/app"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/flow"
)

// byDeadline goes by a header.
type byDeadline struct{ deadline attributes.HeaderSlot }

func (o *byDeadline) Declare(r *attributes.Reader) { o.deadline = r.Header("X-Deadline") }

func (o *byDeadline) Key(e *flow.Entry) int64 {
	text, _ := e.Header(o.deadline)
	if at, err := strconv.ParseInt(text, 10, 64); err == nil {
		return at
	}
	return math.MaxInt64
}

func (*byDeadline) Needs() flow.Ability { return flow.Needed | flow.KeyOrder }

// adapterFirst has requests of one model go first.
type adapterFirst struct {
	Model string `json:"model" doc:"The model that goes first."`
}

func (o *adapterFirst) Key(e *flow.Entry) int64 {
	if e.Model == o.Model {
		return 0
	}
	return 1
}

func (*adapterFirst) Needs() flow.Ability { return flow.Needed | flow.KeyOrder }

func main() {
	app.Main(app.Plugins(
		config.PluginType{Type: "example.com/by-deadline", New: func() any { return new(byDeadline) }},
		config.PluginType{Type: "example.com/adapter-first", New: func() any { return new(adapterFirst) }},
	))
}
