// Package endpoints holds what many read and few write: the snapshot of the pool, and of each endpoint the newest
// sample, the load, and the status as an outlier. A snapshot never changes, but its endpoints do. Each kind of writer
// has a handle type of its own in writers.go, and whatever has no handle reads. It decides nothing.
package endpoints

import (
	"iter"
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// Sample holds what one scrape said. It is immutable.
type Sample struct {
	At       time.Time     // when the scrape began
	Interval time.Duration // to the next one; after three of them, or the threshold if longer, the sample is stale
	Number   uint32        // of the scrape

	Engine       string
	Waiting      int
	Running      int
	KVUsed       float64 // 0 to 1; messages.Unknown (below 0) = the page does not say
	ActiveLoRAs  []string
	WaitingLoRAs []string
	MaxLoRAs     int
	BlockTokens  int
	Blocks       int
	StartedAt    float64 // unix seconds
	Models       []string
}

// Fresh reports whether the sample still counts at now.
func (s *Sample) Fresh(now time.Time, threshold time.Duration) bool {
	return s != nil && !now.After(s.FreshUntil(threshold))
}

// FreshUntil returns the last moment at which the sample counts.
func (s *Sample) FreshUntil(threshold time.Duration) time.Time {
	return s.At.Add(max(threshold, 3*s.Interval))
}

// Endpoint is one incarnation of a model server address. Identity and labels never change. Any goroutine reads the
// rest, and only through a writer's handle does it change: SampleWriter, LoadWriter, OutlierWriter.
type Endpoint struct {
	ID     messages.EndpointID
	Spec   messages.EndpointSpec
	Labels map[string]string // Spec.Labels, for reading only

	sample  atomic.Pointer[Sample]         // SampleWriter
	failing atomic.Bool                    // SampleWriter: the newest scrape failed
	outlier atomic.Pointer[outlier.Status] // OutlierWriter
	load    load                           // LoadWriter; SampleWriter moves the scrape that it counts from
	answers answers                        // LoadWriter
	picks   atomic.Uint64                  // LoadWriter: since its incarnation
	models  Tally                          // LoadWriter: the same picks, by model
}

// New returns an endpoint without a sample.
func New(id messages.EndpointID, spec messages.EndpointSpec) *Endpoint {
	labels := make(map[string]string, spec.Labels.Len())
	for k, v := range spec.Labels.All() {
		labels[k] = v
	}
	return &Endpoint{ID: id, Spec: spec, Labels: labels}
}

// Sample returns the newest sample, nil before the first.
func (e *Endpoint) Sample() *Sample { return e.sample.Load() }

// Failing reports whether the newest scrape failed.
func (e *Endpoint) Failing() bool { return e.failing.Load() }

// Outlier returns the endpoint's status as an outlier; nil = it is healthy.
func (e *Endpoint) Outlier() *outlier.Status { return e.outlier.Load() }

// Inflight returns how many requests were sent to the endpoint and have not ended.
func (e *Endpoint) Inflight() int { return e.load.inflight() }

// Counters returns what the endpoint carries at the moment. The three are read one after the other: a pick may be in
// some of them.
func (e *Endpoint) Counters() Counters {
	return Counters{Inflight: e.load.inflight(), Tokens: e.load.promptTokens(), Since: e.load.since()}
}

// Picks returns how many requests were sent to this incarnation.
func (e *Endpoint) Picks() uint64 { return e.picks.Load() }

// Models yields the models for which the endpoint was picked, and how often, in no order.
func (e *Endpoint) Models() iter.Seq2[string, uint64] { return e.models.All() }

// Snapshot is the endpoint set at one version.
type Snapshot struct {
	Version   uint64
	Endpoints []*Endpoint // dense, in the order of discovery
	byAddress map[messages.Address]*Endpoint
	maxSlot   int
}

// NewSnapshot returns a snapshot of es, which it keeps.
func NewSnapshot(version uint64, es []*Endpoint) *Snapshot {
	byAddress := make(map[messages.Address]*Endpoint, len(es))
	s := &Snapshot{Version: version, Endpoints: es, byAddress: byAddress, maxSlot: -1}
	for _, e := range es {
		s.byAddress[e.Spec.Address] = e
		s.maxSlot = max(s.maxSlot, int(e.ID.Slot))
	}
	return s
}

// ByAddress returns the endpoint of an address, nil if the pool has none.
func (s *Snapshot) ByAddress(a messages.Address) *Endpoint { return s.byAddress[a] }

// ByID returns the endpoint of an incarnation, nil if the snapshot does not have it.
func (s *Snapshot) ByID(id messages.EndpointID) *Endpoint {
	for _, e := range s.Endpoints {
		if e.ID == id {
			return e
		}
	}
	return nil
}

const (
	// shownBytes is what the endpoints' series may take of the metrics page, those by model aside.
	shownBytes = 2 << 20
	// seriesBytes is what the series of one endpoint take there, without its names.
	seriesBytes = 1100
)

// Shown returns the endpoints that have series of their own on the metrics page: the first ones, some two thousand.
func (s *Snapshot) Shown() []*Endpoint {
	room := shownBytes
	for i, e := range s.Endpoints {
		room -= seriesBytes + 3*(len(e.Spec.Name)+len(e.Spec.Namespace))
		if room < 0 {
			return s.Endpoints[:i]
		}
	}
	return s.Endpoints
}

// Slots returns one more than the highest slot in use.
func (s *Snapshot) Slots() int { return s.maxSlot + 1 }

// Pool is where the newest snapshot stands. Only PoolWriter changes it.
type Pool struct {
	snapshot atomic.Pointer[Snapshot]
	names    atomic.Pointer[map[messages.EndpointID]messages.Address]
}

// NewPool returns an empty pool.
func NewPool() *Pool {
	p := &Pool{}
	p.snapshot.Store(NewSnapshot(0, nil))
	p.names.Store(&map[messages.EndpointID]messages.Address{})
	return p
}

// Snapshot returns the newest one, never nil.
func (p *Pool) Snapshot() *Snapshot { return p.snapshot.Load() }

// Names returns the addresses of all incarnations that a record may name. The map is for reading only.
func (p *Pool) Names() map[messages.EndpointID]messages.Address { return *p.names.Load() }

// Address returns the address of an incarnation, also of one that is gone; "" if it is no longer known.
func (p *Pool) Address(id messages.EndpointID) messages.Address { return (*p.names.Load())[id] }

// Incarnations returns all that had an address, in no order, as far as they are known.
func (p *Pool) Incarnations(a messages.Address) []messages.EndpointID {
	var ids []messages.EndpointID
	for id, address := range *p.names.Load() {
		if address == a {
			ids = append(ids, id)
		}
	}
	return ids
}
