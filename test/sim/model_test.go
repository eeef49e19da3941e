package sim_test

import (
	"maps"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// model is what must be so, kept by the plainest means: a line for each thing that a live request holds.
type model struct {
	pool   *endpoints.Published
	held   map[*line]holding
	staged map[*line][]holding           // load at stages
	away   map[*line]*endpoints.Endpoint // whose load requests were part of, while no entry of their proxy has come
	picks  uint64                        // so far; they number the holdings
	splits int                           // stages that were load
	pages  map[messages.EndpointID]*pages

	scraping messages.EndpointID // whose scraper runs now
	prefix   *promptModel
	kept     keptModel
}

// holding is the endpoint whose load a request is part of.
type holding struct {
	endpoint *endpoints.Endpoint
	tokens   int
	number   uint64
}

// pages are the scrapes of one endpoint: how many picks there had been when each began.
type pages struct {
	began   map[uint32]uint64
	inForce uint64
}

func newModel(pool *endpoints.Published, capacity int) *model {
	return &model{
		pool: pool, held: map[*line]holding{}, staged: map[*line][]holding{}, away: map[*line]*endpoints.Endpoint{},
		pages:  map[messages.EndpointID]*pages{},
		prefix: newPromptModel(capacity), kept: keptModel{},
	}
}

// picked follows the pick to the endpoint that it named first, and to the stages.
func (m *model) picked(l *line) {
	m.hold(l, m.pool.Snapshot().ByAddress(l.reached(l.first)))
	for _, id := range l.stages {
		for _, e := range m.pool.Snapshot().Endpoints {
			if e.ID == id {
				m.picks++
				m.splits++
				m.staged[l] = append(m.staged[l], holding{e, l.tokens, m.picks})
			}
		}
	}
}

// moved follows the response headers: the load goes to the endpoint that served.
func (m *model) moved(l *line, to messages.Address) {
	if _, ok := m.held[l]; ok && to != "" && to != l.first {
		m.hold(l, m.pool.Snapshot().ByAddress(l.reached(to)))
	}
}

// parted follows the end of a stream whose proxy has sent no entry: the request is no load.
func (m *model) parted(l *line) {
	m.away[l] = m.held[l].endpoint // nil = no endpoint of the pool works for it
	delete(m.held, l)
	delete(m.staged, l)
}

// returned follows an entry that says that such a request runs.
func (m *model) returned(l *line) {
	if e, ok := m.away[l]; ok {
		m.hold(l, e)
		delete(m.away, l)
	}
}

func (m *model) hold(l *line, e *endpoints.Endpoint) {
	delete(m.held, l)
	if e != nil {
		m.picks++
		m.held[l] = holding{e, l.tokens, m.picks}
	}
}

func (m *model) of(id messages.EndpointID) *pages {
	if m.pages[id] == nil {
		m.pages[id] = &pages{began: map[uint32]uint64{}}
	}
	return m.pages[id]
}

// begun follows the first token: the prompt is no load any more.
func (m *model) begun(l *line) {
	l.tokens = 0
	if h, ok := m.held[l]; ok {
		h.tokens = 0
		m.held[l] = h
	}
}

// sums are the loads that the holdings come to, if no endpoint holds anything of a prompt.
type sums struct{ requests, tokens, since int }

func (m *model) sums() map[*endpoints.Endpoint]sums {
	out := map[*endpoints.Endpoint]sums{}
	count := func(h holding) {
		s := out[h.endpoint]
		s.requests++
		s.tokens += h.tokens
		s.since += one(h.number > m.of(h.endpoint.ID).inForce)
		out[h.endpoint] = s
	}
	for _, h := range m.held {
		count(h)
	}
	for _, all := range m.staged {
		for _, h := range all {
			count(h)
		}
	}
	return out
}

// exact compares the tree with the model. Loads are right after each message; what is told to others, once it has
// arrived.
func (w *world) exact() {
	w.Helper()
	want := w.model.sums()
	for _, id := range slices.SortedFunc(maps.Keys(w.ledger.endpoints), byGeneration) {
		e := w.ledger.endpoints[id]
		got, most := sums{e.Counters().Inflight, e.Counters().Tokens, e.Counters().Since}, want[e]
		if got.requests != most.requests || got.since != most.since || got.tokens < 0 || got.tokens > most.tokens {
			w.Errorf("endpoint %v: load %+v, want %+v, or fewer tokens, at %v", id, got, most, w.sys.Now().Sub(start))
		}
	}
	live := w.picker.Running()
	running := 0
	for _, l := range w.ledger.lines {
		running += l.begun - l.ends
	}
	if live != running {
		w.Errorf("%d cycles in the books, %d run", live, running)
	}
	if runtimetest.Inspect(w.sys).Waiting() > 0 {
		return
	}
	w.quiet++
	if w.faults.down["pool"] == 0 { // else it has yet to tell prefix which endpoints left
		w.prompts()
	}
	if w.quiet%20 == 0 || w.faults.off { // to gather all metrics takes its time
		w.gauge("llm_d_epp_request_running", running-len(w.model.away))
		w.gauge("signalbox_prefix_placed_prompts", len(w.model.prefix.placed))
		w.gauge("signalbox_memory_entries", len(w.model.kept))
	}
}

// gauge checks a gauge, summed over its labels. One that nothing was ever counted by is not there.
func (w *world) gauge(name string, want int) {
	w.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.Fatal(err)
	}
	sum, found := 0.0, false
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			found = true
			sum += m.GetGauge().GetValue()
		}
	}
	if sum != float64(want) || !found && w.served() > 0 {
		w.Errorf("%s: %v, want %d, at %v", name, sum, want, w.sys.Now().Sub(start))
	}
}
