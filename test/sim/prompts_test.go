package sim_test

import (
	"maps"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// promptModel is the prefix index as one would write it down: for each incarnation of an endpoint a list of blocks,
// the most recently used first. It hears what the prefix actor handles, knows each incarnation by its id and not by
// its slot, and remembers for ever which endpoints have left.
type promptModel struct {
	capacity int
	blocks   map[messages.EndpointID][]block
	left     map[messages.EndpointID]bool
	placed   map[messages.RequestID]*placed
	stamp    int
	used     map[messages.EndpointID]int // blocks that were made the newest, all together
	recent   []blockindex.Prompt         // to look up
}

type block struct {
	name  blockName
	stamp int
}

type blockName struct {
	model, salt string
	hash        uint64
}

// placed is the prompt of a live request. Blocks from to upTo-1 are its own.
type placed struct {
	at         messages.EndpointID
	prompt     blockindex.Prompt
	served     bool
	from, upTo int
	stamp      int
	used       int  // by the endpoint, right after
	follows    bool // its end is a use, too
	stages     []*placed
}

func newPromptModel(capacity int) *promptModel {
	return &promptModel{
		capacity: capacity, blocks: map[messages.EndpointID][]block{}, left: map[messages.EndpointID]bool{},
		placed: map[messages.RequestID]*placed{}, used: map[messages.EndpointID]int{},
	}
}

func names(p blockindex.Prompt) []blockName {
	var out []blockName
	for _, h := range p.Blocks.All() {
		out = append(out, blockName{p.Model, p.Salt, h})
	}
	return out
}

func (m *promptModel) position(at messages.EndpointID, name blockName) int {
	return slices.IndexFunc(m.blocks[at], func(b block) bool { return b.name == name })
}

// lead is how many of the first blocks of a prompt an endpoint holds.
func (m *promptModel) lead(at messages.EndpointID, p blockindex.Prompt) (n int) {
	for _, name := range names(p) {
		if m.position(at, name) < 0 {
			break
		}
		n++
	}
	return n
}

// use makes the first n blocks of a prompt the newest, the first block last; what is too much then goes.
func (m *promptModel) use(at messages.EndpointID, p blockindex.Prompt, n int) {
	m.stamp++
	list := m.blocks[at]
	for _, name := range slices.Backward(names(p)[:n]) {
		list = slices.DeleteFunc(list, func(b block) bool { return b.name == name })
		list = slices.Insert(list, 0, block{name, m.stamp})
	}
	m.blocks[at] = list[:min(len(list), m.capacity)]
	m.used[at] += n
}

func (m *promptModel) enter(at messages.EndpointID, p *placed) {
	p.at, p.from, p.upTo = at, m.lead(at, p.prompt), p.prompt.Blocks.Len()
	m.use(at, p.prompt, p.upTo)
	p.stamp, p.used = m.stamp, m.used[at]
}

func (m *promptModel) enterStages(stages messages.List[messages.EndpointID], p *placed) {
	for _, e := range stages.All() {
		if m.has(e) {
			s := &placed{prompt: p.prompt}
			p.stages = append(p.stages, s)
			m.enter(e, s)
		}
	}
}

// withdraw forgets a request, and takes its own blocks out from the end, up to the first that was used since, at its
// endpoint and at its stages.
func (m *promptModel) withdraw(id messages.RequestID) {
	p := m.placed[id]
	delete(m.placed, id)
	if p == nil {
		return
	}
	m.remove(p)
	for _, s := range p.stages {
		m.remove(s)
	}
}

func (m *promptModel) remove(p *placed) {
	all := names(p.prompt)
	for i := p.upTo - 1; i >= p.from; i-- {
		at := m.position(p.at, all[i])
		if at < 0 {
			continue
		}
		if m.blocks[p.at][at].stamp != p.stamp {
			return
		}
		m.blocks[p.at] = slices.Delete(m.blocks[p.at], at, at+1)
	}
}

// has reports whether an endpoint may hold blocks, after what was heard of it.
func (m *promptModel) has(e messages.EndpointID) bool { return e.Generation > 0 && !m.left[e] }

func (m *promptModel) heard(msg messages.PrefixMsg) {
	switch msg := msg.(type) {
	case messages.PrefixStarted:
	case messages.PromptPlaced:
		m.withdraw(msg.Request)
		p := &placed{prompt: blockindex.Prompt{Model: msg.Model, Salt: msg.Salt, Blocks: msg.Blocks}}
		p.follows = msg.Sizes.Follows
		m.recent = append(m.recent[max(0, len(m.recent)-7):], p.prompt)
		if m.has(msg.Endpoint) {
			m.placed[msg.Request] = p
			m.enter(msg.Endpoint, p)
			m.enterStages(msg.Stages, p)
		}
	case messages.PromptServed:
		m.served(msg)
	case messages.PromptEnded:
		p := m.placed[msg.Request]
		if p == nil || msg.Failed || !p.served {
			m.withdraw(msg.Request)
			return
		}
		delete(m.placed, msg.Request)
		if p.follows && m.has(p.at) && m.used[p.at]-p.used >= m.capacity/16 { // else it is among the newest still
			m.use(p.at, p.prompt, m.lead(p.at, p.prompt))
		}
	case messages.EndpointLeft:
		m.leave(msg.Endpoint)
	case messages.DeparturesListed:
		for _, e := range msg.Endpoints.All() {
			m.leave(e)
		}
	}
}

func (m *promptModel) leave(e messages.EndpointID) {
	m.left[e] = true
	delete(m.blocks, e)
}

func (m *promptModel) served(msg messages.PromptServed) {
	p := m.placed[msg.Request]
	switch {
	case p == nil:
	case p.at == msg.Endpoint && m.has(p.at):
		p.served = true
	case !m.has(msg.Endpoint):
		m.withdraw(msg.Request)
	default:
		m.remove(p)
		m.enter(msg.Endpoint, p)
		p.served = true
	}
}

// heeded is a prefix actor whose messages the model hears, too, once they were handled.
type heeded struct {
	runtime.Actor[messages.PrefixMsg]
	model *promptModel
}

func (h *heeded) Receive(ctx runtime.Context[messages.PrefixMsg], m messages.PrefixMsg) {
	h.Actor.Receive(ctx, m)
	h.model.heard(m)
}

// Stopped loses everything but which endpoints have left.
func (h *heeded) Stopped(ctx runtime.Context[messages.PrefixMsg]) {
	h.Actor.Stopped(ctx)
	clear(h.model.blocks)
	clear(h.model.placed)
}

// prompts compares the index with the model, by size and by what readers find.
func (w *world) prompts() {
	w.Helper()
	m, snap := w.model.prefix, w.pool.Snapshot()
	want, known := 0, map[uint32]int{}
	for id, list := range m.blocks {
		want += len(list)
		known[id.Slot] += len(list)
	}
	for _, slot := range slices.Sorted(maps.Keys(known)) {
		if got := w.index.Held(slot); got != known[slot] {
			w.Errorf("slot %d holds %d blocks, want %d, at %v", slot, got, known[slot], w.sys.Now().Sub(start))
		}
	}
	if got := w.index.Stats().Held; got != want {
		w.Errorf("the prefix index holds %d blocks, want %d, at %v", got, want, w.sys.Now().Sub(start))
	}
	if len(m.recent) == 0 || snap.Slots() == 0 {
		return
	}
	p := m.recent[w.quiet%len(m.recent)]
	got := make([]int, snap.Slots())
	w.index.Match(p, got)
	for _, e := range snap.Endpoints {
		if want := m.lead(e.ID, p); got[e.ID.Slot] != want {
			w.Errorf("endpoint %v holds %d lead blocks of a prompt, want %d", e.ID, got[e.ID.Slot], want)
		}
	}
}
