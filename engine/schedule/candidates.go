package schedule

import (
	"iter"
	"slices"

	"github.com/signalbox-epp/signalbox/messages"
)

// Endpoint is what one request sees of an endpoint. Its values are read once, so that every plugin sees the same.
// Plugins read it through a Candidate.
type Endpoint struct {
	ID      messages.EndpointID
	Address messages.Address
	Labels  map[string]string // nil reads as empty

	Fresh   bool // the sample is not older than the staleness threshold
	Failing bool // the scrape after the sample failed
	Waiting int  // requests in the server's queue: those of the sample, and those that were picked for it since
	Sampled Sampled

	Inflight     Inflight
	PrefixBlocks int // lead blocks of the request that the endpoint holds; 0 unless a plugin reads it
}

// Sampled is what the newest sample says; zero without one.
type Sampled struct {
	Running      int      // requests in the server's batch
	KVUsed       float64  // 0 to 1; below 0 = the server does not say
	ActiveLoRAs  []string // adapters in use
	WaitingLoRAs []string // adapters that requests wait for
	MaxLoRAs     int      // adapter slots; 0 = none, or unknown
}

// Inflight is the work that this process sent to an endpoint and has not seen end.
type Inflight struct {
	Requests int
	Tokens   int // prompt tokens of the requests, estimated
}

// Candidates are the endpoints that are left for a request. Plugins can only read them, because the runs of other
// profiles and the next requests read the same memory.
type Candidates struct{ list []Endpoint }

// CandidatesOf returns candidates that are backed by list. It is for tests of plugins.
func CandidatesOf(list ...Endpoint) Candidates { return Candidates{list} }

// Len returns the number of candidates.
func (c Candidates) Len() int { return len(c.list) }

// At returns candidate i, counted from 0.
func (c Candidates) At(i int) Candidate { return Candidate{&c.list[i]} }

// All returns an iterator over all candidates in their order.
func (c Candidates) All() iter.Seq2[int, Candidate] {
	return func(yield func(int, Candidate) bool) {
		for i := range c.list {
			if !yield(i, Candidate{&c.list[i]}) {
				return
			}
		}
	}
}

// Candidate is one of Candidates. It is valid until the call of the plugin returns.
type Candidate struct{ endpoint *Endpoint }

// ID returns the endpoint's slot and generation.
func (c Candidate) ID() messages.EndpointID { return c.endpoint.ID }

// Address returns where the endpoint listens.
func (c Candidate) Address() messages.Address { return c.endpoint.Address }

// Label returns the value of a label, and whether the endpoint has it.
func (c Candidate) Label(key string) (string, bool) {
	value, ok := c.endpoint.Labels[key]
	return value, ok
}

// Waiting returns the number of requests in the server's queue: those of the sample, and those picked for it since.
func (c Candidate) Waiting() int { return c.endpoint.Waiting }

// Running returns the number of requests in the server's batch, sampled.
func (c Candidate) Running() int { return c.endpoint.Sampled.Running }

// KVUsed returns the share of the KV cache in use, 0 to 1, sampled; below 0 = the server does not say.
func (c Candidate) KVUsed() float64 { return c.endpoint.Sampled.KVUsed }

// ActiveLoRAs returns the adapters in use, sampled.
func (c Candidate) ActiveLoRAs() Names { return Names{c.endpoint.Sampled.ActiveLoRAs} }

// WaitingLoRAs returns the adapters that requests wait for, sampled.
func (c Candidate) WaitingLoRAs() Names { return Names{c.endpoint.Sampled.WaitingLoRAs} }

// MaxLoRAs returns the number of adapter slots, sampled; 0 = none, or unknown.
func (c Candidate) MaxLoRAs() int { return c.endpoint.Sampled.MaxLoRAs }

// InflightRequests returns the number of requests that this process sent to the endpoint and has not seen end.
func (c Candidate) InflightRequests() int { return c.endpoint.Inflight.Requests }

// InflightTokens returns the number of prompt tokens of the requests in flight, estimated.
func (c Candidate) InflightTokens() int { return c.endpoint.Inflight.Tokens }

// PrefixBlocks returns the number of lead blocks of the request that the endpoint holds. It is 0 unless a plugin of the
// plan declares ReadsPrefix.
func (c Candidate) PrefixBlocks() int { return c.endpoint.PrefixBlocks }

// Names is an immutable list of names.
type Names struct{ list []string }

// Len returns the number of names.
func (n Names) Len() int { return len(n.list) }

// Contains reports whether a name is among them.
func (n Names) Contains(name string) bool { return slices.Contains(n.list, name) }
