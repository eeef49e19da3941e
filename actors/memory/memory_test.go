package memory_test

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/memory"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	tables "github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

var (
	a1 = messages.EndpointID{Slot: 0, Generation: 1}
	b1 = messages.EndpointID{Slot: 1, Generation: 1}
)

// scene is the memory actor, and the tables that a plugin reads.
type scene struct {
	*testing.T
	tables   *tables.Tables
	registry *prometheus.Registry
	metrics  *memory.Metrics
	actor    *runtimetest.Stage[messages.MemoryMsg]
	sessions tables.Sessions
	uses     tables.Uses
}

func newScene(t *testing.T) *scene {
	r := new(attributes.Binding).Reader("plugin")
	s := &scene{
		T: t, tables: tables.NewTables(), registry: prometheus.NewRegistry(),
		actor:    runtimetest.NewStage[messages.MemoryMsg](t),
		sessions: tables.NewSessions(r), uses: tables.NewUses(r),
	}
	var err error
	if s.metrics, err = memory.NewMetrics(s.registry); err != nil {
		t.Fatal(err)
	}
	s.play()
	return s
}

// play puts a new incarnation on the stage.
func (s *scene) play() {
	s.actor.Play(memory.New(s.tables, s.metrics))
	s.actor.Tell(messages.MemoryStarted{})
}

// bind keeps a session at an endpoint for a second, and counts that as a use of the endpoint.
func (s *scene) bind(session string, at messages.EndpointID) {
	var n tables.Notes
	s.sessions.Keep(&n, session, at, time.Second)
	s.uses.Keep(&n, at)
	s.actor.Tell(messages.PickKept{Request: 1, Kept: n.Take()})
}

func (s *scene) bound(session string) messages.EndpointID {
	at, _ := s.sessions.Endpoint(s.tables.At(s.actor.Clock()), session)
	return at
}

func (s *scene) used(e messages.EndpointID) uint64 {
	return s.uses.Last(s.tables.At(s.actor.Clock()), e)
}

// shows checks the metrics.
func (s *scene) shows(sessions, uses, evicted float64) {
	s.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	want := map[string]float64{
		"signalbox_memory_entries sessions": sessions, "signalbox_memory_entries uses": uses,
		"signalbox_memory_entries adapters": 0, "signalbox_memory_evicted_total adapters": 0,
		"signalbox_memory_entries turns": 0, "signalbox_memory_evicted_total turns": 0,
		"signalbox_memory_entries media": 0, "signalbox_memory_evicted_total media": 0,
		"signalbox_memory_entries first-tokens": 0, "signalbox_memory_evicted_total first-tokens": 0,
		"signalbox_memory_evicted_total sessions": evicted, "signalbox_memory_evicted_total uses": 0,
	}
	if !maps.Equal(got, want) {
		s.Errorf("metrics %v, want %v", got, want)
	}
}

func TestPicksAreKept(t *testing.T) {
	s := newScene(t)
	s.bind("x", a1)
	s.bind("y", b1)
	if s.bound("x") != a1 || s.bound("y") != b1 || s.used(a1) == 0 || s.used(a1) >= s.used(b1) {
		t.Errorf("sessions at %v and %v, uses %d and %d", s.bound("x"), s.bound("y"), s.used(a1), s.used(b1))
	}
	s.bind("x", b1)
	if s.bound("x") != b1 {
		t.Errorf("a session that moved is at %v, want %v", s.bound("x"), b1)
	}
	s.shows(2, 2, 0)
	s.actor.Advance(time.Second + 1)
	if got := s.bound("x"); got != (messages.EndpointID{}) || s.used(b1) == 0 {
		t.Errorf("a second later the session is at %v, want nowhere; the use is %d", got, s.used(b1))
	}
}

func TestCrashLeavesEmptyTablesForTheNextIncarnation(t *testing.T) {
	s := newScene(t)
	s.bind("x", a1)
	s.actor.Crash()
	if got := s.bound("x"); got != (messages.EndpointID{}) || s.used(a1) != 0 {
		t.Errorf("after a crash the session is at %v, the use %d; want nowhere and 0", got, s.used(a1))
	}
	s.shows(0, 0, 0)
	s.play()
	s.bind("y", b1)
	if s.bound("y") != b1 || s.bound("x") != (messages.EndpointID{}) {
		t.Errorf("the next incarnation has %v and %v", s.bound("y"), s.bound("x"))
	}
	s.shows(1, 1, 0)
}

// More sessions than there is room for leave as many as there is room for.
func TestTablesStopGrowing(t *testing.T) {
	s := newScene(t)
	const sessions = 400_000
	for i := range sessions {
		s.bind(strconv.Itoa(i), a1)
	}
	held := s.tables.Stats(messages.SessionTable)
	if held.Entries > 131_072 || s.bound(strconv.Itoa(sessions-1)) != a1 {
		t.Errorf("%+v of %d sessions, the last one at %v; want at most 131072", held, sessions,
			s.bound(strconv.Itoa(sessions-1)))
	}
	s.shows(float64(held.Entries), 1, float64(held.Evicted))
}

func TestMetricsRegisterOnce(t *testing.T) {
	s := newScene(t)
	if _, err := memory.NewMetrics(s.registry); err == nil {
		t.Error("second registration: no error, want one")
	}
}
