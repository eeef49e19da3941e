package pool_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/pool"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// scene is the pool between a probe for prefix and one probe for each scraper.
type scene struct {
	*testing.T
	actor    *runtimetest.Stage[messages.PoolMsg]
	prefix   *runtimetest.Probe[messages.PrefixMsg]
	scrapers map[messages.EndpointID]*runtimetest.Probe[messages.ScraperMsg]
	pool     *endpoints.Published
	deps     pool.Deps
	registry *prometheus.Registry
	version  uint64
	found    time.Time // of the next set
}

func newScene(t *testing.T) *scene {
	s := &scene{
		T: t, actor: runtimetest.NewStage[messages.PoolMsg](t), prefix: runtimetest.NewProbe[messages.PrefixMsg](t),
		pool:     endpoints.NewPublished(),
		registry: prometheus.NewRegistry(),
	}
	s.deps = pool.Deps{
		Pool: endpoints.Publisher{Published: s.pool}, Prefix: s.prefix, Scrape: s.scrape,
		Metrics: pool.NewMetrics(s.registry),
	}
	s.start()
	return s
}

// start begins an incarnation: scrapers are children, so none is left of the one before.
func (s *scene) start() {
	s.scrapers = map[messages.EndpointID]*runtimetest.Probe[messages.ScraperMsg]{}
	s.actor.Play(pool.New(s.deps))
	s.actor.Tell(messages.PoolStarted{})
}

func (s *scene) scrape(_ messages.Sink[messages.PoolMsg], e *endpoints.Endpoint,
	first messages.EndpointAssigned) (messages.Sink[messages.ScraperMsg], bool) {
	if s.scrapers[e.ID] != nil || first.Endpoint != e.ID || first.Spec.Address != e.Spec.Address ||
		first.Pool != s.actor.Self() {
		s.Errorf("second scraper of %v, or one that was told %+v", e.ID, first)
	}
	s.scrapers[e.ID] = runtimetest.NewProbe[messages.ScraperMsg](s.T)
	return s.scrapers[e.ID], true
}

func (s *scene) discover(specs ...messages.EndpointSpec) {
	s.version++
	s.actor.Tell(messages.EndpointsDiscovered{Version: s.version, Found: s.found, Endpoints: messages.ListOf(specs...)})
}

func (s *scene) holds(version uint64, want ...messages.EndpointID) {
	s.Helper()
	snap := s.pool.Snapshot()
	var got []messages.EndpointID
	for _, e := range snap.Endpoints {
		got = append(got, e.ID)
		if s.pool.Address(e.ID) != e.Spec.Address || snap.ByAddress(e.Spec.Address) != e {
			s.Errorf("%v is known as %q", e.ID, s.pool.Address(e.ID))
		}
	}
	if snap.Version != version || len(got) != len(want) {
		s.Fatalf("version %d with %v, want %d with %v", snap.Version, got, version, want)
	}
	for i := range want {
		if got[i] != want[i] {
			s.Errorf("endpoint %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func (s *scene) left(ids ...messages.EndpointID) {
	s.Helper()
	var want []messages.PrefixMsg
	for _, id := range ids {
		want = append(want, messages.EndpointLeft{Endpoint: id, Pool: s.actor})
	}
	s.prefix.Got(want...)
}

// listed checks which endpoints prefix is told at once to have left, and which of them it is asked to clear.
func (s *scene) listed(left []messages.EndpointID, asked ...messages.EndpointID) {
	s.Helper()
	want := []messages.PrefixMsg{messages.DeparturesListed{Endpoints: messages.ListOf(left...)}}
	for _, id := range asked {
		want = append(want, messages.EndpointLeft{Endpoint: id, Pool: s.actor})
	}
	s.prefix.Got(want...)
}

func ids(list ...messages.EndpointID) []messages.EndpointID { return list }

func spec(a messages.Address, labels ...string) messages.EndpointSpec {
	e := messages.EndpointSpec{Name: "n", Address: a}
	if len(labels) > 0 {
		e.Labels = messages.MapOf(map[string]string{labels[0]: labels[1]})
	}
	return e
}

func id(slot, generation uint32) messages.EndpointID {
	return messages.EndpointID{Slot: slot, Generation: generation}
}

const a, b, c = messages.Address("10.0.0.1:1"), messages.Address("10.0.0.2:1"), messages.Address("10.0.0.3:1")

func TestEachSetIsAVersionAndOlderOnesDrop(t *testing.T) {
	s := newScene(t)
	s.holds(0)
	s.discover(spec(a), spec(b))
	s.holds(1, id(0, 1), id(1, 2))
	s.actor.Tell(messages.EndpointsDiscovered{Version: 1})
	s.actor.Tell(messages.EndpointsDiscovered{Version: 0})
	s.holds(1, id(0, 1), id(1, 2))
	s.left()
	if len(s.scrapers) != 2 {
		t.Errorf("%d scrapers, want 2", len(s.scrapers))
	}
}

func TestSameSpecStaysTheSameIncarnation(t *testing.T) {
	s := newScene(t)
	s.discover(spec(a, "role", "decode"), spec(b))
	before := s.pool.Snapshot().Endpoints[0]
	s.discover(spec(b), spec(a, "role", "decode"))
	s.holds(2, id(1, 2), id(0, 1))
	if s.pool.Snapshot().Endpoints[1] != before {
		t.Error("the endpoint lost its load and its sample")
	}
	s.scrapers[id(0, 1)].Got()
	s.left()
}

func TestChangedSpecIsAnotherIncarnation(t *testing.T) {
	renamed := spec(a, "role", "decode")
	renamed.Name = "other"
	moved := spec(a, "role", "decode")
	moved.Namespace = "other"
	for name, next := range map[string]messages.EndpointSpec{
		"value": spec(a, "role", "prefill"), "key": spec(a, "kind", "decode"), "no labels": spec(a), "name": renamed,
		"namespace": moved,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.discover(spec(a, "role", "decode"))
			old := s.scrapers[id(0, 1)]
			s.discover(next)
			s.holds(2, id(1, 2))
			old.Got(messages.EndpointWithdrawn{})
			s.left(id(0, 1))
		})
	}
}

func TestAddressThatStandsTwiceCountsOnceAndTheLastWins(t *testing.T) {
	s := newScene(t)
	s.discover(spec(a, "role", "decode"), spec(b), spec(a, "role", "prefill"))
	s.holds(1, id(0, 1), id(1, 2))
	if got := s.pool.Snapshot().Endpoints[0].Labels["role"]; got != "prefill" {
		t.Errorf("role %q, want prefill", got)
	}
}

func TestSlotIsGivenOutAgainOnlyWhenPrefixHasClearedIt(t *testing.T) {
	s := newScene(t)
	s.discover(spec(a))
	s.discover()
	s.left(id(0, 1))
	s.discover(spec(b))
	s.holds(3, id(1, 2))
	s.actor.Tell(messages.SlotCleared{Endpoint: id(0, 9)}) // of another incarnation: says nothing of this one
	s.discover(spec(b), spec(c))
	s.holds(4, id(1, 2), id(2, 3))
	s.actor.Tell(messages.SlotCleared{Endpoint: id(0, 1)})
	s.actor.Tell(messages.SlotCleared{Endpoint: id(0, 1)})
	s.discover(spec(b), spec(c), spec(a), spec("10.0.0.4:1"))
	s.holds(5, id(1, 2), id(2, 3), id(0, 4), id(3, 5))
	if got := s.pool.Address(id(0, 1)); got != a {
		t.Errorf("the incarnation that left is known as %q, want %q", got, a)
	}
}

func TestRestartedServerIsAnotherIncarnationInItsPlace(t *testing.T) {
	s := newScene(t)
	s.discover(spec(a), spec(b))
	old := s.scrapers[id(0, 1)]
	s.actor.Tell(messages.EndpointRestarted{Endpoint: id(0, 1)})
	s.holds(2, id(2, 3), id(1, 2))
	old.Got(messages.EndpointWithdrawn{})
	s.left(id(0, 1))
	if s.scrapers[id(2, 3)] == nil {
		t.Error("the new incarnation has no scraper")
	}
	s.actor.Tell(messages.EndpointRestarted{Endpoint: id(0, 1)}) // told twice: it is gone
	s.holds(2, id(2, 3), id(1, 2))
	s.left()
}

func TestLostPrefixFreesWhatItHadToClear(t *testing.T) {
	s := newScene(t)
	s.discover(spec(a), spec(b))
	s.discover()
	s.left(id(0, 1), id(1, 2))
	s.actor.Die(s.prefix)
	s.listed(ids(id(0, 1), id(1, 2))) // the next incarnation must know
	s.discover(spec(a), spec(b))
	s.holds(3, id(1, 3), id(0, 4))
	s.actor.Tell(messages.SlotCleared{Endpoint: id(0, 1)}) // was on its way
	s.discover(spec(a), spec(b), spec(c))
	s.holds(4, id(1, 3), id(0, 4), id(2, 5))
	s.actor.Tell(messages.PrefixLost{})
	s.listed(ids(id(0, 1), id(1, 2))) // also of slots that others have
}

func TestRestartGoesOnFromTheSnapshot(t *testing.T) {
	s := newScene(t)
	s.discover(spec(a), spec(b), spec(c))
	s.discover(spec(b))
	s.left(id(0, 1), id(2, 3))
	kept := s.pool.Snapshot().Endpoints[0]
	s.actor.Crash()
	s.holds(2, id(1, 2))
	s.start()
	s.listed(ids(id(0, 1), id(2, 3)), id(0, 1)) // asks again, for an answer may have been lost
	if s.scrapers[id(1, 2)] == nil || len(s.scrapers) != 1 {
		t.Errorf("scrapers %v, want one of the endpoint that is left", s.scrapers)
	}
	s.discover(spec(b), spec(a)) // of two incarnations that are gone, neither slot nor generation may be used
	s.holds(3, id(1, 2), id(3, 4))
	if s.pool.Snapshot().Endpoints[0] != kept {
		t.Error("the endpoint lost its load and its sample")
	}
	if got := s.pool.Address(id(2, 3)); got != c {
		t.Errorf("the incarnation that left before is known as %q, want %q", got, c)
	}
	s.actor.Tell(messages.SlotCleared{Endpoint: id(2, 3)})
	s.discover(spec(b), spec(a), spec(c))
	s.holds(4, id(1, 2), id(3, 4), id(2, 5))
}

func TestRestartAsksForOneSlotAfterTheOther(t *testing.T) {
	s := newScene(t)
	s.discover(spec(a), spec(b), spec(c))
	s.discover(spec(b))
	s.discover()
	s.left(id(0, 1), id(2, 3), id(1, 2))
	s.actor.Crash()
	s.start()
	s.listed(ids(id(0, 1), id(1, 2), id(2, 3)), id(0, 1))
	s.actor.Tell(messages.SlotCleared{Endpoint: id(2, 3)}) // the answer to the incarnation before
	s.prefix.Got()
	s.actor.Tell(messages.SlotCleared{Endpoint: id(0, 1)})
	s.left(id(1, 2))
	s.actor.Tell(messages.SlotCleared{Endpoint: id(0, 1)}) // once more
	s.prefix.Got()
	s.actor.Tell(messages.SlotCleared{Endpoint: id(1, 2)})
	s.prefix.Got()
	s.discover(spec(a), spec(b), spec(c))
	s.holds(4, id(1, 4), id(0, 5), id(2, 6))
}

func TestNamesOfGoneIncarnationsAreBounded(t *testing.T) {
	s := newScene(t)
	for range 4100 {
		s.discover(spec(a))
		s.discover()
	}
	if n := len(s.pool.Names()); n != 4096 {
		t.Errorf("%d names kept, want 4096", n)
	}
	if s.pool.Address(s.last()) != a {
		t.Error("the newest is not known")
	}
}

// last returns the incarnation that prefix was asked to clear last.
func (s *scene) last() messages.EndpointID {
	told := s.prefix.Told()
	return told[len(told)-1].(messages.EndpointLeft).Endpoint
}

func TestAnotherConfigurationIsToldToTheScrapersThatRun(t *testing.T) {
	s := newScene(t)
	s.discover(spec(a), spec(b))
	s.discover(spec(a))
	replaced := messages.ScrapingReplaced{Number: 2, Scraping: messages.Scraping{Metrics: true, Interval: time.Second}}
	s.actor.Tell(messages.ConfigurationReplaced{Scraping: replaced})
	s.scrapers[id(0, 1)].Got(replaced)
	s.scrapers[id(1, 2)].Got(messages.EndpointWithdrawn{})
	s.holds(2, id(0, 1))
}
