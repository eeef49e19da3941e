package points

import (
	"errors"
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// CacheSource names a server from which the sidecar of the picked one can fetch the KV blocks of the prompt: the header
// x-kv-cache-source-host-port has the address of one that holds more of the prompt than the server which is to compute
// it. Among the servers that hold the most, or one block less, one is drawn, the less often the more requests it has in
// flight. No ejected server is named.
type CacheSource struct {
	// PrefixMatchInfoProducerName names the approx-prefix-cache-producer whose index is read; empty = the only one.
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName" names:"approx-prefix-cache-producer"`
	// MinCachedTokenDelta is how many tokens of the prompt more than the computing server the other one must hold; at
	// least 1.
	MinCachedTokenDelta int `json:"minCachedTokenDelta"`
	// PrefillProfileName names the profile whose server computes the prompt; if it has not picked, that is the server
	// which serves.
	PrefillProfileName string `json:"prefillProfileName"`

	blocks, requests attributes.NumberSlot
}

// Validate returns which parameters are missing or out of range.
func (s *CacheSource) Validate() error {
	var errs []error
	if s.MinCachedTokenDelta < 1 {
		errs = append(errs, fmt.Errorf("minCachedTokenDelta: got %d, want 1 or more", s.MinCachedTokenDelta))
	}
	if s.PrefillProfileName == "" {
		errs = append(errs, errors.New("prefillProfileName: missing; name a profile"))
	}
	return errors.Join(errs...)
}

// Declare asks for the matching blocks, and for the requests in flight.
func (s *CacheSource) Declare(r *attributes.Reader) {
	s.blocks = r.Number(attributes.PrefixBlocks.Name, s.PrefixMatchInfoProducerName)
	s.requests = r.Number(attributes.InflightRequests.Name, "")
}

// PreRequest sets the header, if a server holds enough more of the prompt.
func (s *CacheSource) PreRequest(p *schedule.Picked, set *schedule.Headers) schedule.Refusal {
	computes, _ := p.Destination(0)
	for _, r := range p.Results().All() {
		if r.Profile == s.PrefillProfileName && r.Ranked.Len() > 0 {
			computes = p.Endpoint(int(r.Ranked.At(0)))
		}
	}
	own, most := 0.0, 0.0
	for at := range p.Len() {
		if p.Endpoint(at).ID() == computes.ID() {
			own = p.Number(s.blocks, at)
		} else if !p.Ejected(at) {
			most = max(most, p.Number(s.blocks, at))
		}
	}
	at := s.draw(p, computes.ID(), most)
	if at >= 0 && int(p.Number(s.blocks, at)-own)*blockindex.BlockTokens >= s.MinCachedTokenDelta {
		set.Set(messages.CacheSourceHeader, string(p.Endpoint(at).Address()))
	}
	return schedule.Refusal{}
}

// draw returns one of the endpoints that hold most blocks, or one less; -1 = none holds any.
func (s *CacheSource) draw(p *schedule.Picked, computes messages.EndpointID, most float64) int {
	drawn, sum := -1, 0.0
	if most == 0 {
		return drawn
	}
	for at := range p.Len() {
		blocks := p.Number(s.blocks, at)
		if blocks == 0 || blocks < most-1 || p.Endpoint(at).ID() == computes || p.Ejected(at) {
			continue
		}
		weight := 1 / (1 + p.Number(s.requests, at))
		if sum += weight; p.Rand().Float64()*sum < weight {
			drawn = at
		}
	}
	return drawn
}
