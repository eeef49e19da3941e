// Command counted is Signalbox with a plugin that writes a line for each of its calls to the file $CALLS.
package main

import (
	"fmt"
	"os"

	"github.com/signalbox-epp/signalbox/cmd/signalbox/app"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// note writes which point was called for which request.
func note(point string, id messages.RequestID, of any) {
	file, err := os.OpenFile(os.Getenv("CALLS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	fmt.Fprintf(file, "%d %s %v\n", id, point, of)
}

// counted serves every point. It keeps requests from the endpoint that listens on port 9.
type counted struct {
	prompt attributes.HeaderSlot
	id     schedule.Private[messages.RequestID]
}

func (c *counted) Declare(r *attributes.Reader) {
	c.prompt, c.id = r.Header("x-prompt"), schedule.NewPrivate[messages.RequestID](r)
}

func (c *counted) RequestHeaders(in *schedule.Input, set *schedule.Headers) schedule.Refusal {
	prompt, _ := in.Header(c.prompt)
	note("RequestHeaders", in.Request().ID(), prompt)
	c.id.Set(in, in.Request().ID())
	set.Set("x-counted", "yes")
	return schedule.Refusal{}
}

func (c *counted) Screen(in *schedule.Input, keep []bool) {
	note("Screen", in.Request().ID(), in.Candidates().Len())
	for i, candidate := range in.Candidates().All() {
		keep[i] = candidate.Address() != "127.0.0.1:9"
	}
}

func (c *counted) Admit(in *schedule.Input) schedule.Refusal {
	note("Admit", in.Request().ID(), in.Candidates().Len())
	return schedule.Refusal{}
}

func (c *counted) PreRequest(p *schedule.Picked, _ *schedule.Headers) schedule.Refusal {
	id, _ := c.id.Get(p)
	note("PreRequest", id, p.Destinations())
	return schedule.Refusal{}
}

func (c *counted) ResponseHeaders(p *schedule.Picked, destination int, _ *schedule.Headers) {
	note("ResponseHeaders", p.Request().ID(), destination)
}

func (c *counted) FirstToken(b *schedule.Begun) {
	id, _ := c.id.Get(b)
	note("FirstToken", id, b.Took())
}

func (c *counted) ResponseEnd(e *schedule.Ended) {
	note("ResponseEnd", e.Request().ID(), e.Record().Status)
}

// order has the longest prompt go last.
type order struct{}

func (order) Key(e *flow.Entry) int64 {
	note("Key", e.Request, e.Prompt)
	return int64(e.Prompt)
}

func (order) Needs() flow.Ability { return flow.KeyOrder }

// broken is an ordering that panics.
type broken struct{}

func (broken) Key(*flow.Entry) int64 { panic("it has no key") }

func (broken) Needs() flow.Ability { return flow.KeyOrder }

func main() {
	app.Main(app.Named("counted", "v1.0.0"), app.Plugins(
		config.PluginType{
			Type: "example.com/counted", Text: "Writes its calls to a file.", New: func() any { return new(counted) },
		},
		config.PluginType{
			Type: "example.com/order", Text: "Has the longest prompt go last.", New: func() any { return new(order) },
		},
		config.PluginType{
			Type: "example.com/broken", Text: "Panics.", New: func() any { return new(broken) },
		},
	))
}
