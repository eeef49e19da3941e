package chaos

import (
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// ledger is what is written down about all requests and streams of a rig.
type ledger struct {
	lines []line // by the client's number for the request
	alive atomic.Int64
	began atomic.Int64 // streams

	mu   sync.Mutex
	seen map[messages.EndpointID]*endpoints.Endpoint // that were in the pool, but for those that left without load
}

// line is what the tree told one request's stream.
type line struct {
	picks, refusals, revocations atomic.Int32
	why                          atomic.Int32 // a messages.Reason: that of the last refusal
}

func newLedger(requests int) *ledger {
	return &ledger{lines: make([]line, requests), seen: map[messages.EndpointID]*endpoints.Endpoint{}}
}

func (g *ledger) line(n int) *line { return &g.lines[n] }

// met notes the endpoints that there are now, and from time to time forgets those that are gone and carry nothing.
func (g *ledger) met(now *endpoints.Snapshot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range now.Endpoints {
		g.seen[e.ID] = e
	}
	if len(g.seen) > 256 {
		maps.DeleteFunc(g.seen, func(id messages.EndpointID, e *endpoints.Endpoint) bool {
			return e.Inflight() == 0 && now.ByID(id) == nil
		})
	}
}

// loaded are the endpoints that carry something.
func (g *ledger) loaded() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []string
	for _, e := range g.seen {
		if l := e.Counters(); l != (endpoints.Counters{}) {
			all = append(all, fmt.Sprintf("%s %v: %d requests, %d tokens, %d since its sample", e.Spec.Address, e.ID,
				l.Inflight, l.Tokens, l.Since))
		}
	}
	return all
}

func nameOf(n int) string { return "chaos-" + strconv.Itoa(n) }

// numberOf reads the client's number for a request. False: another one's.
func numberOf(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, "chaos-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(rest)
	return n, err == nil
}

// overheard is a stream's address whose messages are counted.
type overheard struct {
	messages.Sink[messages.StreamMsg]
	line *line
}

func (o overheard) Tell(m messages.StreamMsg) bool {
	switch m := m.(type) {
	case messages.PickMade:
		o.line.picks.Add(1)
	case messages.PickFailed:
		o.line.refusals.Add(1)
		o.line.why.Store(int32(m.Reason))
	case messages.ServingRevoked:
		o.line.revocations.Add(1)
	case messages.AnswerDue:
	}
	return o.Sink.Tell(m)
}

// tracked serves streams and notes when nothing refers to one any more: neither its cycle, nor a timer,
// a ring or a goroutine.
type tracked struct {
	*extproc.Server
	ledger *ledger
}

func (t tracked) Process(w wire.Stream) error {
	one := &trackedStream{w}
	t.ledger.began.Add(1)
	t.ledger.alive.Add(1)
	runtime.AddCleanup(one, func(g *ledger) { g.alive.Add(-1) }, t.ledger)
	return t.Server.Process(one)
}

type trackedStream struct{ wire.Stream }
