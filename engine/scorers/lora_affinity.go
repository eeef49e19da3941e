package scorers

import (
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// Scores of a server by what it takes it to run an adapter.
const (
	adapterInSlot   = 1
	adapterFromHost = 0.9 // a slot is free, and the adapter lies in the memory of the host
	adapterFreeSlot = 0.8
	adapterHot      = 0.75 // an idle adapter makes way for one that has to be at more servers
	adapterQueued   = 0.7  // it lies in a slot, but requests wait there, and it has to be at more servers
	adapterWaits    = 0.6  // it waits for a slot already, or lies in the memory of the host
	adapterOldest   = 0.5  // that adapter makes way which no request has had for the longest time
	adapterNewest   = 0.2  // that adapter makes way of which that is least true
)

// LoRAAffinity prefers servers that have the request's LoRA adapter in a slot, so that no other has to make way for it.
// The adapter is the model that the request names.
//
// A server scores 1 if the adapter is in a slot, 0.9 or 0.8 if a slot is free (0.9 if the adapter is in the memory of
// the host), 0.6 if the adapter waits for a slot or would come from that memory, 0.5 to 0.2 if an idle adapter would
// make way, the more the longer that one was idle, and 0 if requests use all slots. If requests wait at each server
// that has the adapter, others come first: free slots with 0.8, then those where an idle adapter makes way with 0.75,
// then the servers that have it with 0.7.
//
// Which adapters are in slots a server says in vllm:lora_adapter_loaded. Of one that does not, those count that it
// runs, and the last ones that requests were sent there for, as many as it has slots: running adapters alone tell of
// activity, and an idle adapter stays in its slot. A request for the base model scores 1 wherever that is served. A
// server that does not report its adapters scores 0: one that was started without LoRA reports none. A server whose
// answer is stale is passed by; while all are stale, in-flight load stands in.
type LoRAAffinity struct {
	// HotEndpoints is to how many servers an adapter spreads while requests wait at all that have it; 1 = it does not.
	HotEndpoints int `json:"hotEndpoints"`

	slots, queued          attributes.NumberSlot
	active, waiting        attributes.NamesSlot
	resident, host, pinned attributes.NamesSlot
	base                   attributes.NamesSlot
	adapter                schedule.Private[bool] // the request is for one
	recent                 memory.Adapters
}

// Validate returns what is wrong with the parameters.
func (s *LoRAAffinity) Validate() error {
	if s.HotEndpoints < 1 {
		return fmt.Errorf("hotEndpoints: got %d, want 1 or more", s.HotEndpoints)
	}
	return nil
}

// Declare asks for the adapters, and for the queue.
func (s *LoRAAffinity) Declare(r *attributes.Reader) {
	s.slots, s.queued = r.Number(attributes.MaxLoRAs.Name, ""), r.Number(attributes.QueuedRequests.Name, "")
	s.active, s.waiting = r.Names(attributes.ActiveLoRAs.Name, ""), r.Names(attributes.WaitingLoRAs.Name, "")
	s.resident, s.host = r.Names(attributes.ResidentLoRAs.Name, ""), r.Names(attributes.HostLoRAs.Name, "")
	s.pinned, s.base = r.Names(attributes.PinnedLoRAs.Name, ""), r.Names(attributes.BaseModels.Name, "")
	s.adapter = schedule.NewPrivate[bool](r)
}

// place is how a candidate comes to run the adapter.
type place uint8

const (
	unreported place = iota
	inSlot
	freeSlot
	idleSlot // one makes way
	busySlots
)

// adapters is what one request asks, and what the candidates say.
type adapters struct {
	*LoRAAffinity
	model         string
	key           uint64
	slots, queued schedule.Numbers
	told          told
	candidates    schedule.Candidates
	memory        memory.View
	spread
}

// told are the lists of adapters that candidates have.
type told struct{ active, waiting, resident, host, pinned schedule.Names }

// spread is what the scores of all candidates depend on.
type spread struct {
	holders        int
	idle           bool   // a holder has no requests that wait
	oldest, newest uint64 // uses of adapters that would make way; newest 0 = none would
}

// Score looks for the request's model among the adapters of each candidate.
func (s *LoRAAffinity) Score(in *schedule.Input, scores []float32) {
	model, base := in.Request().Model(), in.Names(s.base)
	for i := range scores {
		if base.Contains(i, model) {
			s.scoreBase(base, model, scores)
			return
		}
	}
	a := adapters{
		LoRAAffinity: s, model: model, key: s.recent.Key(model),
		slots: in.Numbers(s.slots), queued: in.Numbers(s.queued),
		told: told{
			in.Names(s.active), in.Names(s.waiting), in.Names(s.resident), in.Names(s.host), in.Names(s.pinned),
		},
		candidates: in.Candidates(), memory: in.Memory(),
	}
	known := false
	for i := range scores {
		p := a.place(i)
		scores[i], known = float32(p), known || p != unreported // the place stands there until all are known
		a.look(i, p)
	}
	s.adapter.Set(in, known && model != "")
	for i := range scores {
		scores[i] = a.score(i, place(scores[i]))
	}
}

// scoreBase scores a model that needs no slot.
func (*LoRAAffinity) scoreBase(base schedule.Names, model string, scores []float32) {
	for i := range scores {
		scores[i] = 0
		if base.Contains(i, model) {
			scores[i] = 1
		}
	}
}

// place returns how a candidate comes to run the adapter.
func (a *adapters) place(i int) place {
	slots, says := a.slots.At(i), a.told.resident.Count(i) >= 0
	recent := a.recent.Of(a.memory, a.candidates.At(i).ID())
	rank := recent.Rank(a.key)
	inUse := max(a.told.active.Count(i), 0)
	filled := max(inUse+max(a.told.waiting.Count(i), 0), recent.Len())
	if says {
		filled = a.told.resident.Count(i)
	}
	switch {
	case a.told.resident.Contains(i, a.model), a.told.active.Contains(i, a.model):
		return inSlot
	case !(slots > 0):
		return unreported
	case !says && rank >= 0 && float64(rank) < slots:
		return inSlot
	case float64(filled) < slots:
		return freeSlot
	case float64(inUse+a.idlePinned(i)) >= slots:
		return busySlots
	}
	return idleSlot
}

// idlePinned counts the adapters that make way for no other, and that no request uses.
func (a *adapters) idlePinned(i int) (n int) {
	for _, name := range a.told.pinned.Of(i).All() {
		if !a.told.active.Contains(i, name) {
			n++
		}
	}
	return n
}

// look notes what the scores of all candidates depend on.
func (a *adapters) look(i int, p place) {
	switch p {
	case inSlot:
		a.holders++
		a.idle = a.idle || !(a.queued.At(i) > 0)
	case idleSlot:
		last := a.makesWay(i)
		if a.newest == 0 || last < a.oldest {
			a.oldest = last
		}
		a.newest = max(a.newest, last, 1)
	}
}

// makesWay returns when the adapter was last used that would make way; 0 = long ago.
func (a *adapters) makesWay(i int) uint64 {
	recent := a.recent.Of(a.memory, a.candidates.At(i).ID())
	if slots := int(min(a.slots.At(i), float64(recent.Len()+1))); slots <= recent.Len() {
		return recent.Last(slots - 1)
	}
	return 0
}

// score returns the score of a candidate, once all are looked at.
func (a *adapters) score(i int, p place) float32 {
	hot := a.holders > 0 && a.holders < a.HotEndpoints && !a.idle
	fromHost := a.told.host.Contains(i, a.model)
	switch {
	case p == inSlot && !hot:
		return adapterInSlot
	case p == inSlot:
		return adapterQueued
	case p == freeSlot && fromHost:
		return adapterFromHost
	case p == freeSlot:
		return adapterFreeSlot
	case p == idleSlot && hot:
		return adapterHot
	case p != unreported && (a.told.waiting.Contains(i, a.model) || p == idleSlot && fromHost):
		return adapterWaits
	case p == idleSlot:
		age := float32(a.newest-a.makesWay(i)) / float32(max(a.newest-a.oldest, 1))
		return adapterNewest + (adapterOldest-adapterNewest)*age
	}
	return 0
}

// PreRequest notes the adapter at the server that runs it.
func (s *LoRAAffinity) PreRequest(p *schedule.Picked, _ *schedule.Headers) schedule.Refusal {
	if adapter, _ := s.adapter.Get(p); adapter {
		serves, _ := p.Destination(0)
		s.recent.Keep(p.Notes(), serves.ID(), p.Request().Model())
	}
	return schedule.Refusal{}
}
