// Command my-picker is a picker with a scorer that keeps a prefix index of its own.
package main

import (
	"sync"

	"github.com/signalbox-epp/signalbox/cmd/signalbox/app"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// Blocks prefers the server that was sent most of the prompt before.
type Blocks struct {
	mu   sync.RWMutex
	sent map[block]messages.EndpointID // the newest of each
}

// block is one of prompts of a model.
type block struct {
	model, salt string
	hash        uint64
}

// Score gives each candidate the share of the prompt that it was sent.
func (b *Blocks) Score(in *schedule.Input, scores []float32) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	r := in.Request()
	for i, hash := range r.Blocks().All() {
		at, found := b.sent[block{r.Model(), r.Salt(), hash}]
		if !found {
			return
		}
		for c, candidate := range in.Candidates().All() {
			if candidate.ID() == at {
				scores[c] = float32(i+1) / float32(r.Blocks().Len())
			}
		}
	}
}

// PreRequest notes where the prompt is sent.
func (b *Blocks) PreRequest(p *schedule.Picked, _ *schedule.Headers) schedule.Refusal {
	b.mu.Lock()
	defer b.mu.Unlock()
	serves, _ := p.Destination(0)
	r := p.Request()
	for _, hash := range r.Blocks().All() {
		b.sent[block{r.Model(), r.Salt(), hash}] = serves.ID()
	}
	return schedule.Refusal{}
}

func main() {
	app.Main(app.Plugins(config.PluginType{Type: "example.com/blocks", New: func() any {
		return &Blocks{sent: map[block]messages.EndpointID{}}
	}}))
}
