// Package endpoints holds what many read and one writes: the snapshot of the pool, the newest sample of each endpoint, and
// its load cell. A snapshot never changes; its endpoints' samples and loads do. It decides nothing.
package endpoints

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// Sample is what one scrape said. Immutable.
type Sample struct {
	At       time.Time     // when the scrape began
	Interval time.Duration // to the next one: three of them, or the threshold if that is longer, and the sample is stale
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

// Fresh says whether the sample still counts at now.
func (s *Sample) Fresh(now time.Time, threshold time.Duration) bool {
	return s != nil && !now.After(s.FreshUntil(threshold))
}

// FreshUntil is the last moment at which the sample counts.
func (s *Sample) FreshUntil(threshold time.Duration) time.Time {
	return s.At.Add(max(threshold, 3*s.Interval))
}

// Endpoint is one incarnation of a model server address. Identity and labels never change.
type Endpoint struct {
	ID      messages.EndpointID
	Spec    messages.EndpointSpec
	Labels  map[string]string // Spec.Labels, for reading only
	sample  atomic.Pointer[Sample]
	outlier atomic.Pointer[outlier.Status]
	load    Load
	answers answers
	Picks   atomic.Uint64 // since its incarnation
	Models  Tally         // the same picks, by model
	Failing atomic.Bool   // the newest scrape failed
}

// New is an endpoint without a sample.
func New(id messages.EndpointID, spec messages.EndpointSpec) *Endpoint {
	labels := make(map[string]string, spec.Labels.Len())
	for k, v := range spec.Labels.All() {
		labels[k] = v
	}
	return &Endpoint{ID: id, Spec: spec, Labels: labels}
}

// Sample is the newest one, nil before the first.
func (e *Endpoint) Sample() *Sample { return e.sample.Load() }

// Publish puts a sample in the place of the one before. Only the endpoint's scraper calls it.
func (e *Endpoint) Publish(s *Sample) { e.sample.Store(s) }

// Load is the endpoint's load cell.
func (e *Endpoint) Load() *Load { return &e.load }

// Snapshot is the endpoint set at one version.
type Snapshot struct {
	Version   uint64
	Endpoints []*Endpoint // dense, in the order of discovery
	byAddress map[messages.Address]*Endpoint
	maxSlot   int
}

// NewSnapshot makes a snapshot of es, which it keeps.
func NewSnapshot(version uint64, es []*Endpoint) *Snapshot {
	s := &Snapshot{Version: version, Endpoints: es, byAddress: make(map[messages.Address]*Endpoint, len(es)), maxSlot: -1}
	for _, e := range es {
		s.byAddress[e.Spec.Address] = e
		s.maxSlot = max(s.maxSlot, int(e.ID.Slot))
	}
	return s
}

// ByAddress is the endpoint of an address, nil if the pool has none.
func (s *Snapshot) ByAddress(a messages.Address) *Endpoint { return s.byAddress[a] }

const (
	// shownBytes is what the endpoints' series may take of the metrics page, those by model aside.
	shownBytes = 2 << 20
	// seriesBytes is what the series of one endpoint take there, without its names.
	seriesBytes = 1100
)

// Shown are the endpoints that have series of their own on the metrics page: the first ones, some two thousand.
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

// Slots is one more than the highest slot in use.
func (s *Snapshot) Slots() int { return s.maxSlot + 1 }

// Pool is where the newest snapshot stands. The pool actor is its only writer.
type Pool struct {
	snapshot atomic.Pointer[Snapshot]
	names    atomic.Pointer[map[messages.EndpointID]messages.Address]
}

// NewPool is an empty pool.
func NewPool() *Pool {
	p := &Pool{}
	p.snapshot.Store(NewSnapshot(0, nil))
	p.names.Store(&map[messages.EndpointID]messages.Address{})
	return p
}

// Snapshot is the newest one, never nil.
func (p *Pool) Snapshot() *Snapshot { return p.snapshot.Load() }

// Publish puts a snapshot in force. names are the addresses of all incarnations that a record may still name.
func (p *Pool) Publish(s *Snapshot, names map[messages.EndpointID]messages.Address) {
	p.names.Store(&names)
	p.snapshot.Store(s)
}

// Names are the addresses of all incarnations that a record may name. Nobody changes the map.
func (p *Pool) Names() map[messages.EndpointID]messages.Address { return *p.names.Load() }

// Address is the address of an incarnation, also of one that is gone; "" if it is no longer known.
func (p *Pool) Address(id messages.EndpointID) messages.Address { return (*p.names.Load())[id] }

// Incarnations are all that had an address, in no order, as far as they are known.
func (p *Pool) Incarnations(a messages.Address) []messages.EndpointID {
	var ids []messages.EndpointID
	for id, address := range *p.names.Load() {
		if address == a {
			ids = append(ids, id)
		}
	}
	return ids
}
