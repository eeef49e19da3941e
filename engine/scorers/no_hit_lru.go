package scorers

import (
	"fmt"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// NoHitLRU spreads prompts that no server holds the beginning of, each of which fills a prefix cache. For such a
// request the server scores 1 that was picked for one the longest ago, or never, and the others the less the later they
// were; the last one scores 0. For other requests all score 0.5.
type NoHitLRU struct {
	// LRUSize is how many servers count as picked before, those that were picked last; at least 1.
	LRUSize int `json:"lruSize"`
	// PrefixMatchInfoProducerName names the approx-prefix-cache-producer whose index is read; empty = the only one.
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName" names:"approx-prefix-cache-producer"`
	// PrefixPluginType was the type of the prefix scorer.
	PrefixPluginType string `json:"prefixPluginType" effect:"warning"`
	// PrefixPluginName was the name of the prefix scorer.
	PrefixPluginName string `json:"prefixPluginName" effect:"warning"`

	blocks attributes.NumberSlot
	cold   schedule.Private[bool] // no server holds the beginning of the request's prompt, in no profile so far
	uses   memory.Uses            // by cold requests
}

// Validate returns which parameters are out of range.
func (s *NoHitLRU) Validate() error {
	if s.LRUSize < 1 {
		return fmt.Errorf("lruSize: got %d, want 1 or more", s.LRUSize)
	}
	return nil
}

// Declare asks for the matching blocks, and for the order of servers.
func (s *NoHitLRU) Declare(r *attributes.Reader) {
	s.blocks = r.Number(attributes.PrefixBlocks.Name, s.PrefixMatchInfoProducerName)
	s.cold, s.uses = schedule.NewPrivate[bool](r), memory.NewUses(r)
}

// Score orders the candidates by their last use, if the request is a cold one.
func (s *NoHitLRU) Score(in *schedule.Input, scores []float32) {
	blocks, hit := in.Numbers(s.blocks), false
	for i := range scores {
		hit = hit || blocks.At(i) > 0
	}
	before, known := s.cold.Get(in)
	s.cold.Set(in, !hit && (before || !known))
	if hit {
		for i := range scores {
			scores[i] = 0.5
		}
		return
	}
	view, candidates := in.Memory(), in.Candidates()
	order := in.Ascending(func(i int) uint64 { return s.uses.Last(view, candidates.At(i).ID()) })
	if forgotten := len(order) - s.LRUSize; forgotten > 0 { // as many others were used since: as if they never were
		slices.Sort(order[:forgotten])
	}
	for rank, i := range order {
		scores[i] = 1 - float32(rank)/float32(max(len(order)-1, 1))
	}
}

// PreRequest notes which servers a cold request goes to: the one that serves it, and the one of the profile prefill.
func (s *NoHitLRU) PreRequest(p *schedule.Picked, _ *schedule.Headers) schedule.Refusal {
	if cold, _ := s.cold.Get(p); !cold {
		return schedule.Refusal{}
	}
	serves, _ := p.Destination(0)
	s.uses.Keep(p.Notes(), serves.ID())
	for _, r := range p.Results().All() {
		if r.Profile == "prefill" && r.Ranked.Len() > 0 {
			if prefill := p.Endpoint(int(r.Ranked.At(0))).ID(); prefill != serves.ID() {
				s.uses.Keep(p.Notes(), prefill)
			}
		}
	}
	return schedule.Refusal{}
}
