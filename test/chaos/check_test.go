package chaos

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	calmRequests = 300
	calmRounds   = 2
	calmLeavers  = 10 * 13 // some for each of the points
	// growth is how many bytes of live heap there may be more than at the start: 2 MB of records, 2 MB of metrics, by
	// flow and model as far as those have labels of their own, events and tables of plugins. It is the same after
	// 40 000 requests as after 20 000.
	growth = 7 << 20
)

// state is what a process holds.
type state struct {
	goroutines int
	heap       int64
}

// look collects what is garbage, pools included, and looks at the rest.
func look() state {
	for range 4 {
		runtime.GC()
	}
	return state{runtime.NumGoroutine(), liveHeap()}
}

// settle waits until no goroutine ends any more, and gives how many are left.
func settle() int {
	for n := runtime.NumGoroutine(); ; {
		<-time.After(50 * time.Millisecond)
		if now := runtime.NumGoroutine(); now >= n {
			return n
		} else {
			n = now
		}
	}
}

func all() []int {
	var all []int
	for i := range servers {
		all = append(all, i)
	}
	return all
}

// discover tells the pool that these servers are there.
func (s *session) discover(these ...int) {
	s.tellPool(s.version.Add(1), these)
}

func (s *session) tellPool(version uint64, these []int) {
	var specs []messages.EndpointSpec
	for _, i := range these {
		specs = append(specs, messages.EndpointSpec{Name: "server-" + strconv.Itoa(i), Namespace: "chaos",
			Address: addressOf(i), Labels: messages.MapOf(map[string]string{"llm-d.ai/role": roles[i]})})
	}
	s.picker.Discovery().Post(messages.EndpointsDiscovered{
		Version: version, Endpoints: messages.TakeList(specs), Whole: len(these) == 0, // none is away at the end
	})
}

// churn changes the endpoints until it is over.
func (s *session) churn(over <-chan struct{}) {
	for {
		dice := s.faults.next("churn")
		select {
		case <-over:
			return
		case <-time.After(upTo(dice, 60*time.Millisecond)):
		}
		switch p := dice.IntN(40); {
		case p < 2:
			s.faults.met("no endpoints")
			s.discover()
			<-time.After(5 * time.Millisecond)
			s.discover(all()...)
		case p < 5:
			s.faults.met("old endpoints")
			s.tellPool(s.version.Load()-1, nil)
		default:
			s.faults.met("endpoints changed")
			s.discover(dice.Perm(servers)[:1+dice.IntN(servers)]...)
		}
	}
}

// replace changes the configuration until it is over.
func (s *session) replace(over <-chan struct{}) {
	for {
		dice := s.faults.next("replace")
		select {
		case <-over:
			return
		case <-time.After(upTo(dice, 40*time.Millisecond)):
			s.reload(dice)
		}
	}
}

// until waits, and fails the test if it is in vain.
func (s *session) until(what string, so func() bool) {
	s.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	patience := 10 * time.Second
	if s.Failed() { // what follows need not take long
		patience = time.Second
	}
	for late := time.Now().Add(patience); !so(); <-look.C {
		if time.Now().After(late) {
			s.Errorf("not within %v: %s", patience, what)
			return
		}
	}
}

// leave comes when the faults have ended: clients leave at each point, and nothing is held for them. What was held for
// those before may have been forgotten by an actor that fell later.
func (s *session) leave() {
	from := s.last + 1
	s.last += calmLeavers
	s.crowd(lines, from, s.last+1, func(n int) *script {
		return writeTo(s.seed, n, cancels, points[n%len(points)])
	})
}

// calm comes when the faults have ended: each client that comes is served, and leaves nothing. Deadlines are short, and
// a busy machine may stop for longer than one: clients that were not served are told, and others must all be served
// then.
func (s *session) calm() {
	s.Helper()
	s.discover(all()...)
	s.until("all servers are in the pool", func() bool { return len(s.picker.Pool().Snapshot().Endpoints) == servers })
	s.until("no stream is open", func() bool { return s.streams.Open() == 0 })
	for round := range calmRounds {
		from := s.last + 1
		s.last += calmRequests
		s.crowd(lines, from, s.last+1, func(n int) *script {
			one := write(s.seed, n, true)
			one.fate, one.entry, one.config.Observe = stays, entryComes, false
			one.body = `{"model":"model-1","stream":true,"prompt":"calm"}`
			return one
		})
		unserved := s.unserved(from)
		if unserved == nil {
			break
		}
		for _, what := range unserved {
			if round < calmRounds-1 {
				s.Log(what)
			} else {
				s.Errorf("%s", what)
			}
		}
	}
	for n := range s.ledger.lines {
		if l := s.ledger.line(n); l.picks.Load()+l.refusals.Load() > 1 {
			s.Errorf("request %d: its cycle told its stream %d picks and %d refusals", n, l.picks.Load(),
				l.refusals.Load())
		}
	}
}

// unserved returns what became of the clients that came after all faults and were not served, from a number on.
func (s *session) unserved(from int) (list []string) {
	for n := from; n <= s.last; n++ {
		if l := s.ledger.line(n); l.picks.Load() != 1 || l.refusals.Load() != 0 {
			why := messages.Reason(l.why.Load())
			list = append(list, fmt.Sprintf("request %d came after all faults: %d picks, %d refusals (%v)", n,
				l.picks.Load(), l.refusals.Load(), why))
		}
	}
	return list
}

// gauges are those that count what is under way.
var gauges = []string{
	"signalbox_streams", "llm_d_epp_extproc_streams_inflight", "llm_d_epp_request_running",
	"signalbox_prefix_placed_prompts",
}

// emptied takes the endpoints away: nothing is left that could happen.
func (s *session) emptied() {
	s.Helper()
	s.until("no load on any endpoint", func() bool { return len(s.ledger.loaded()) == 0 })
	for _, l := range s.ledger.loaded() {
		s.Errorf("load is left on %s", l)
	}
	s.discover()
	s.until("the pool is empty", func() bool { return len(s.picker.Pool().Snapshot().Endpoints) == 0 })
	if held := s.streams.Held(); held != 0 {
		s.Errorf("%d bytes of bodies are held", held)
	}
	for _, name := range gauges {
		s.until(name+" is 0", func() bool { return s.gauge(name) == 0 })
	}
	s.until("no timer is set", func() bool {
		return s.atRest(func(i int) int { return runtimetest.Inspect(s.picker.System()).Timers(i) }) == 0
	})
	if n := s.atRest(func(i int) int { return s.picker.System().Stats(i).Inbox }); n != 0 {
		s.Errorf("%d items wait in the loops", n)
	}
	if n := s.picker.Running(); n != 0 { // the loops stand still
		s.Errorf("%d cycles are in the books", n)
	}
	if held := s.gauge("signalbox_prefix_held_blocks"); held != 0 {
		s.Errorf("%v blocks of prompts of no endpoint", held)
	}
}

// atRest adds up something of each loop, once the loop ran everything that came before.
func (s *session) atRest(of func(loop int) int) int {
	n := 0
	for i := range loops {
		if _, err := runtimetest.Inspect(s.picker.System()).Events(context.Background(), i); err != nil {
			s.Error(err)
		}
		n += of(i)
	}
	return n
}

// gauge adds up all series of a gauge.
func (s *session) gauge(name string) float64 {
	families, err := s.registry.Gather()
	if err != nil {
		s.Error(err)
	}
	sum, found := 0.0, false
	for _, f := range families {
		if f.GetName() == name && f.GetType() == dto.MetricType_GAUGE {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue()
			}
			found = true
		}
	}
	if !found {
		s.Fatalf("there is no gauge %s", name)
	}
	return sum
}

// end closes the clients, then the server, and compares with how it began. What was told is held meanwhile.
func (s *session) end(held told) {
	s.Helper()
	for _, l := range s.lines {
		if err := l.close(); err != nil {
			s.Error(err)
		}
	}
	s.lines = nil
	s.until("no more goroutines than before the first request",
		func() bool { return runtime.NumGoroutine() <= s.start.goroutines })
	now := look()
	if now.goroutines > s.start.goroutines {
		s.Errorf("%d goroutines, %d before the first request:\n%s", now.goroutines, s.start.goroutines, stacks())
	}
	s.until("no stream is referred to", func() bool {
		runtime.GC()
		return s.ledger.alive.Load() == 0
	})
	if n := s.ledger.alive.Load(); n != 0 {
		s.Errorf("%d of %d streams are still referred to", n, s.ledger.began.Load())
	}
	s.Logf("live heap %.1f MB, %.1f MB before the first request; %d goroutines, %d before; %d streams referred to",
		float64(now.heap)/1e6, float64(s.start.heap)/1e6, now.goroutines, s.start.goroutines, s.ledger.alive.Load())
	if now.heap > s.start.heap+growth {
		s.Errorf("the live heap grew from %d to %d bytes, want %d more at most", s.start.heap, now.heap, growth)
	}
	runtime.KeepAlive(held)
	s.close()
	s.until("all goroutines have ended", func() bool { return runtime.NumGoroutine() <= s.outset })
	if n := runtime.NumGoroutine(); n > s.outset {
		s.Errorf("%d goroutines at the end, %d at the outset:\n%s", n, s.outset, stacks())
	}
}

func stacks() string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // a buffer takes everything
	return b.String()
}

// String says what a request was, for the reader of a complaint.
func (s *script) String() string {
	return strings.Join([]string{
		"request " + s.config.Request.Body.String(), "response " + s.config.Response.Body.String(),
		strconv.Itoa(len(s.body)) + " bytes",
		"client " + s.fate + s.where(), s.entry, "observed " + strconv.FormatBool(s.config.Observe),
	}, ", ")
}

// where is where the client leaves, if it does.
func (s *script) where() string {
	if !s.leaves() {
		return ""
	}
	return " " + s.steps()[s.cut].at
}
