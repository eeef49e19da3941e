package points

import (
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// EmbeddingsCache keeps which images, sounds and files of messages each server was sent, by the hash of their data or
// URL: servers keep what they have computed of them. It emits llm-d.ai/mm-embeddings-cached-ratio, the share of a
// request's media that a server was sent before, each counted once, of the first 64. Of a request with encode servers
// these keep them, of one with a prefill server alone that one does, and else the server that serves. The share is
// unknown for a request without media. It reads the messages of chat completions, responses and Anthropic's messages.
type EmbeddingsCache struct {
	// CacheSizeInMBPerServer is the memory that a server has for them, in MiB, of which each takes 2; 2 to 131072.
	// Those that were not sent for the longest time make way, give or take an eighth.
	CacheSizeInMBPerServer int `json:"cacheSizeInMBPerServer"`
	// CacheSizeInMB is the older name of cacheSizeInMBPerServer.
	CacheSizeInMB *int `json:"cacheSizeInMB" older:"cacheSizeInMBPerServer"`

	media memory.Media
}

const (
	itemMB    = 2
	mostSizes = 131_072
)

// Validate returns which parameters are out of range.
func (c *EmbeddingsCache) Validate() error {
	if n := c.CacheSizeInMBPerServer; n < itemMB || n > mostSizes {
		return fmt.Errorf("cacheSizeInMBPerServer: got %d, want %d to %d", n, itemMB, mostSizes)
	}
	return nil
}

// Declare asks for what servers were sent.
func (c *EmbeddingsCache) Declare(r *attributes.Reader) { c.media = memory.NewMedia(r) }

// Emits returns the name of the attribute.
func (*EmbeddingsCache) Emits() []string { return []string{attributes.MediaCached.Name} }

// Produce counts what each server was sent.
func (c *EmbeddingsCache) Produce(in *schedule.Input, out *schedule.Produced) {
	items, view := in.Request().Items(), in.Memory()
	if items.Len() == 0 {
		return
	}
	var all messages.MediaCounts
	for j := range items.Len() {
		all[items.At(j).Kind]++
	}
	out.MediaAsked(all)
	for i, server := range in.Candidates().All() {
		sent, found := c.media.Of(view, server.ID()), messages.MediaCounts{}
		for j := range items.Len() {
			if m := items.At(j); sent.Has(m.Hash) {
				found[m.Kind]++
			}
		}
		out.MediaFound(i, found, all)
		out.Set(0, i, float64(found.Sum())/float64(items.Len()))
	}
}

// TellsMedia says that Produce counts media.
func (*EmbeddingsCache) TellsMedia() {}

// PreRequest keeps what is sent.
func (c *EmbeddingsCache) PreRequest(p *schedule.Picked, _ *schedule.Headers) schedule.Refusal {
	if p.Request().Items().Len() == 0 {
		return schedule.Refusal{}
	}
	for _, prompt := range []bool{false, true} {
		found := false
		for _, s := range p.Stages().All() {
			if s.Prompt == prompt {
				found = true
				c.keep(p, p.Endpoint(s.At).ID())
			}
		}
		if found {
			return schedule.Refusal{}
		}
	}
	serves, _ := p.Destination(0)
	c.keep(p, serves.ID())
	return schedule.Refusal{}
}

func (c *EmbeddingsCache) keep(p *schedule.Picked, at messages.EndpointID) {
	for _, item := range p.Request().Items().All() {
		c.media.Keep(p.Notes(), at, item.Hash, c.CacheSizeInMBPerServer/itemMB)
	}
}
