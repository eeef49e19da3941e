package capacity_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// pool is a few servers with room for some requests each, of which a test draws what happens: who comes and leaves,
// which servers join and leave, and what the settings say. Cycles are played as they are: the one whose turn it is
// looks for room, takes it, and tells so a while later, or tells that its turn failed, and to which class it belongs by
// then.
type pool struct {
	*scene
	version uint64 // of the set of servers
	servers []*server
	waiting map[messages.RequestID]*asker // and not trying
	trying  *asker                        // nil = none
	tells   messages.CapacityMsg          // what the one that tries will say; nil = it has not looked yet
	running []*server                     // of each request that runs, its server
	last    messages.RequestID
}

type server struct {
	id       messages.EndpointID
	in       bool
	most     int
	inflight int
}

// asker is a request: it may use some servers, whether they are in the pool or not.
type asker struct {
	id         messages.RequestID
	key        messages.FlowKey
	may        int    // a bit for each server
	class      uint64 // 0 = unknown
	classified uint64 // version
	share      float64
}

const mostServers = 3

func newPool(t *testing.T, rt *rapid.T) *pool {
	p := &pool{scene: newScene(t, flow.Limits{}), version: 1, waiting: map[messages.RequestID]*asker{}}
	for i := range mostServers {
		p.servers = append(p.servers, &server{
			id: place(uint32(i)), in: rapid.Bool().Draw(rt, "in"), most: 2 * rapid.IntRange(1, 2).Draw(rt, "places"),
		})
	}
	p.settings.Flows = rapid.SampledFrom([]int{0, 1, 2}).Draw(rt, "flows")
	p.configure(rt)
	return p
}

// configure draws settings: least shares, policies, and whether flows that crowd may fill all room.
func (p *pool) configure(t *rapid.T) {
	b := p.settings.Default
	b.Fairness = rapid.SampledFrom([]flow.Fairness{
		new(fairness.RoundRobin), new(fairness.ProgramAware), &fairness.Token{LocalityTokens: 50},
	}).Draw(t, "fairness")
	b.MinShare = rapid.SampledFrom([]float64{0, .3}).Draw(t, "least share")
	p.settings.Default, p.settings.Negative = b, b
	p.settings.UsageLimit, p.settings.Priorities = nil, nil
	if rapid.Bool().Draw(t, "crowds leave room") {
		p.settings.UsageLimit, p.settings.Priorities = half{}, []int{1, 0, -1}
	}
	p.actor.Tell(messages.QueueingReplaced{})
}

// TestNoRequestWaitsWhileThereIsRoomForIt draws what happens at several servers with requests of several bands and many
// flows, each of which may use some of the servers: whenever none tries, no server has room for a request that waits.
func TestNoRequestWaitsWhileThereIsRoomForIt(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newPool(t, rt)
		moves := map[string]func(*rapid.T){
			"comes": p.comes, "comes too": p.comes, "looks": p.looks, "says": p.says, "says it": p.says, "ends": p.ends,
			"leaves": p.leaves, "changes": p.changes, "configure": p.configure, "": p.look,
		}
		for range 4 {
			rt.Repeat(moves)
		}
		for p.trying != nil { // until nothing moves
			if p.tells == nil {
				p.looks(rt)
			}
			p.says(rt)
			p.look(rt)
		}
	})
}

// name returns the class of a request as a cycle finds it: of the servers that are in the pool and would do.
func (p *pool) name(r *asker) {
	reach := uint64(0)
	for i, s := range p.servers {
		if s.in && r.may&(1<<i) != 0 {
			reach |= 1 << i
		}
	}
	of := flow.Reach{Pool: p.version, Would: reach}
	r.class, r.classified = uint64(flow.ClassOf("m", messages.Subset{}, of)), p.version
}

func (p *pool) comes(t *rapid.T) {
	p.last++
	r := &asker{
		id: p.last, may: rapid.IntRange(1, 1<<mostServers-1).Draw(t, "servers"),
		key: messages.FlowKey{
			Fairness: fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "flow")),
			Priority: rapid.IntRange(-1, 1).Draw(t, "priority"),
		},
	}
	if rapid.Bool().Draw(t, "classified") {
		p.name(r)
	}
	p.waiting[r.id] = r
	p.cycles[r.id] = runtimetest.NewProbe[messages.CycleMsg](p.TB)
	p.actor.Tell(messages.WaitRequested{
		Request: r.id, Flow: r.key, Class: r.class, Prompt: rapid.IntRange(0, 40).Draw(t, "prompt"),
		Arrived: p.actor.Clock(), Deadline: p.actor.Clock().Add(time.Minute), Cycle: p.cycles[r.id],
		Prefix: messages.Prefix{
			Model: "m", Salt: "s", Blocks: messages.ListOf(rapid.Uint64Range(0, 3).Draw(t, "held")),
		},
	})
}

// room returns a server that has room up to a share of its places; nil = none has.
func (p *pool) room(may int, share float64) *server {
	for i, s := range p.servers {
		if s.in && may&(1<<i) != 0 && float64(s.inflight) < share*float64(s.most) {
			return s
		}
	}
	return nil
}

// looks has the request whose turn it is look for room, and take it.
func (p *pool) looks(t *rapid.T) {
	r := p.trying
	if r == nil || p.tells != nil {
		t.Skip()
	}
	s := p.room(r.may, r.share)
	if s == nil {
		if r.classified != p.version {
			p.name(r)
		}
		p.tells = messages.TurnFailed{Request: r.id, Class: r.class, Cycle: p.cycles[r.id]}
		return
	}
	s.inflight++
	p.running = append(p.running, s)
	p.tells = messages.WaitEnded{Request: r.id, Endpoint: s.id}
}

func (p *pool) says(t *rapid.T) {
	if p.tells == nil {
		t.Skip()
	}
	r, m := p.trying, p.tells
	p.trying, p.tells = nil, nil
	if _, failed := m.(messages.TurnFailed); failed {
		p.waiting[r.id] = r
	}
	p.actor.Tell(m)
}

// ring tells that there may be room, as flow.Bell does.
func (p *pool) ring(at messages.EndpointID) {
	if p.line.Waits() {
		p.actor.Tell(messages.RoomChanged{Endpoint: at})
	}
}

func (p *pool) ends(t *rapid.T) {
	if len(p.running) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(p.running)-1).Draw(t, "running")
	s := p.running[i]
	p.running = slices.Delete(p.running, i, i+1)
	s.inflight--
	p.ring(s.id)
}

// leaves has the client of a request leave that waits, or whose turn it is.
func (p *pool) leaves(t *rapid.T) {
	id := messages.RequestID(rapid.Uint64Range(0, uint64(p.last)).Draw(t, "request"))
	switch {
	case p.waiting[id] != nil:
		delete(p.waiting, id)
	case p.trying != nil && p.trying.id == id && p.tells == nil:
		p.trying = nil
	default:
		t.Skip()
	}
	p.actor.Tell(messages.WaitEnded{Request: id})
}

// changes has a server join, leave, or come again as another one. What ran there is none of the new one's.
func (p *pool) changes(t *rapid.T) {
	i := rapid.IntRange(0, mostServers-1).Draw(t, "server")
	old := p.servers[i]
	p.servers[i] = &server{id: old.id, most: old.most, in: !old.in || rapid.Bool().Draw(t, "again")}
	p.servers[i].id.Generation++
	p.version++
	p.ring(messages.EndpointID{})
}

// look takes what the cycles were told, and looks whether a request waits for which there is room.
func (p *pool) look(t *rapid.T) {
	for _, id := range slices.Sorted(maps.Keys(p.cycles)) {
		for _, m := range p.cycles[id].Told() {
			p.told(t, id, m)
		}
	}
	if p.trying != nil {
		return
	}
	for _, r := range p.waiting {
		if s := p.room(r.may, p.shareOf(r)); s != nil {
			t.Fatalf("request %d of %v waits, of class %x, and server %d has %d of %d", r.id, r.key, r.class, s.id.Slot,
				s.inflight, s.most)
		}
	}
	p.waits(int64(len(p.waiting)))
}

func (p *pool) told(t *rapid.T, id messages.RequestID, m messages.CycleMsg) {
	switch m := m.(type) {
	case messages.Dispatched:
		r := p.waiting[id]
		if p.trying != nil || r == nil {
			t.Fatalf("request %d has a turn beside another one, or twice", id)
		}
		delete(p.waiting, id)
		p.trying, r.share = r, m.Share
		if m.Share == 0 {
			r.share = 1
		}
	case messages.Queued:
	default:
		t.Fatalf("request %d was told %+v", id, m)
	}
}

// shareOf returns which part of the places a request may fill at least. Those of flows that crowd leave a half, and no
// lower priority goes before them. Where ids share a flow, each may crowd.
func (p *pool) shareOf(r *asker) float64 {
	for _, other := range p.waiting {
		crowds := p.settings.Flows > 0 || other.key == r.key
		if p.settings.UsageLimit != nil && other != r && (crowds || other.key.Priority > r.key.Priority) {
			return .5
		}
	}
	return 1
}
