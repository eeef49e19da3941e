// Package reclaim holds the requests that run and may be ended for those that wait, and chooses among them. It owns no
// clock and no answer: an actor feeds it and tells requests. The contract of the policies stands here.
package reclaim

import (
	"cmp"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Running is a request that is served, and may be ended for one that waits.
type Running struct {
	Request  messages.RequestID
	Flow     messages.FlowKey
	Endpoint messages.EndpointID // that serves it
	Since    time.Time           // when it was picked
	Cycle    messages.Sink[messages.CycleMsg]
}

// Eviction decides over running requests. A configuration has several, which decide together.
type Eviction interface {
	// Evictable reports whether a request may be ended. Each of the policies must say so.
	Evictable(r *Running) bool

	// Compare is below 0 if a is ended rather than b, above 0 if b is, and 0 if the policy has no say in it: then the
	// next policy has, and after the last one the newer request is ended.
	Compare(a, b *Running) int
}

// Policy is an Eviction of a configuration.
type Policy struct {
	Type string // as the configuration names it
	Eviction
}

// Victims holds the requests that run and may be ended. The actor that owns it is the only one that calls it.
type Victims struct {
	all      map[messages.RequestID]*Running
	at       map[messages.EndpointID]map[messages.RequestID]*Running
	panicked func(by Policy, value any)
}

// NewVictims returns one that holds nothing. panicked is called with each panic of a policy, while it unwinds.
func NewVictims(panicked func(by Policy, value any)) *Victims {
	return &Victims{
		all: map[messages.RequestID]*Running{}, at: map[messages.EndpointID]map[messages.RequestID]*Running{},
		panicked: panicked,
	}
}

// Len returns how many requests it holds.
func (v *Victims) Len() int { return len(v.all) }

// Put enters a request, in place of what was known of it.
func (v *Victims) Put(r *Running) {
	v.Remove(r.Request)
	v.all[r.Request] = r
	if v.at[r.Endpoint] == nil {
		v.at[r.Endpoint] = map[messages.RequestID]*Running{}
	}
	v.at[r.Endpoint][r.Request] = r
}

// Remove takes out a request, and returns it; nil = it is not there.
func (v *Victims) Remove(id messages.RequestID) *Running {
	r := v.all[id]
	if r == nil {
		return nil
	}
	delete(v.all, id)
	there := v.at[r.Endpoint]
	if delete(there, id); len(there) == 0 {
		delete(v.at, r.Endpoint)
	}
	return r
}

// Choose returns the requests to end for one of a priority that would do with room at one of these endpoints: at most
// so many, all of lower priority, the first to end first. If a policy panics there are none.
func (v *Victims) Choose(
	policies []Policy, most, priority int, at messages.List[messages.EndpointID],
) (chosen []*Running) {
	asks := asking{policies: policies}
	defer func() {
		if value := recover(); value != nil {
			v.panicked(asks.now, value)
			chosen = nil
		}
	}()
	for _, id := range at.All() {
		for _, r := range v.at[id] {
			if r.Flow.Priority < priority && asks.evictable(r) {
				chosen = asks.insert(chosen, most, r)
			}
		}
	}
	return chosen
}

// asking are policies that are asked one after the other.
type asking struct {
	policies []Policy
	now      Policy // the one that is asked
}

func (a *asking) evictable(r *Running) bool {
	for _, a.now = range a.policies {
		if !a.now.Evictable(r) {
			return false
		}
	}
	return true
}

// insert puts a request where it belongs among those chosen, of which at most so many stay. No two requests are equal,
// so the order in which they come does not matter.
func (a *asking) insert(chosen []*Running, most int, r *Running) []*Running {
	at := len(chosen)
	for at > 0 && a.compare(r, chosen[at-1]) < 0 {
		at--
	}
	if at == most {
		return chosen
	}
	chosen = append(chosen, nil)
	copy(chosen[at+1:], chosen[at:])
	chosen[at] = r
	return chosen[:min(len(chosen), most)]
}

func (a *asking) compare(one, other *Running) int {
	for _, a.now = range a.policies {
		if c := a.now.Compare(one, other); c != 0 {
			return c
		}
	}
	return cmp.Compare(other.Request, one.Request)
}
