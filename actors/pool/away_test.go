package pool_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/messages"
)

const awayFor = 5 * time.Minute

// tells has the newest page of an endpoint say when its process started; 0 = it does not say.
func (s *scene) tells(e *endpoints.Endpoint, started float64) {
	told := endpointstest.Told{}
	if started > 0 {
		told[attributes.StartTime] = started
	}
	endpoints.SampleWriter{Endpoint: e}.Publish(&endpoints.Sample{At: s.actor.Clock(), Values: told.Values()})
}

// whole tells a set of a source that knows which endpoints are gone, with those that are not ready.
func (s *scene) whole(ready, unready []messages.EndpointSpec) {
	s.version++
	s.actor.Tell(messages.EndpointsDiscovered{
		Version: s.version, Endpoints: messages.ListOf(ready...), Unready: messages.ListOf(unready...), Whole: true,
	})
}

func specs(list ...messages.EndpointSpec) []messages.EndpointSpec { return list }

// One that is away is in no snapshot, and is scraped on. If it comes back as the same process it is the incarnation
// that it was, with all that it holds.
func TestEndpointThatWasAwayIsTheSame(t *testing.T) {
	for name, c := range map[string]struct {
		started float64
		leave   func(*scene)
	}{
		"its page says when it started": {17, func(s *scene) { s.discover(spec(b)) }},
		"its source says so":            {0, func(s *scene) { s.whole(specs(spec(b)), specs(spec(a))) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.discover(spec(a), spec(b))
			it := s.pool.Snapshot().Endpoints[0]
			s.tells(it, c.started)
			c.leave(s)
			s.holds(2, id(1, 2))
			s.left()
			s.scrapers[id(0, 1)].Got()
			s.actor.Advance(awayFor - 1)
			s.discover(spec(a), spec(b))
			s.holds(3, id(0, 1), id(1, 2))
			if s.pool.Snapshot().Endpoints[0] != it || s.scrapers[id(0, 1)] == nil {
				t.Error("it lost what it held, or has no scraper")
			}
			s.actor.Advance(time.Hour) // the time of its absence is over
			s.discover(spec(a), spec(b))
			s.holds(4, id(0, 1), id(1, 2))
			s.left()
		})
	}
}

// What may be another process is gone at once, and so is what the source says is.
func TestEndpointThatIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		started float64
		leave   func(*scene)
		back    messages.EndpointSpec
	}{
		"nothing tells its process": {0, func(s *scene) { s.discover() }, spec(a)},
		"its source says so":        {17, func(s *scene) { s.whole(nil, specs(spec(b))) }, spec(a)},
		"its source says so later": {17, func(s *scene) {
			s.whole(nil, specs(spec(a)))
			s.whole(nil, nil)
		}, spec(a)},
		"it was away for too long": {17, func(s *scene) {
			s.discover()
			s.actor.Advance(awayFor)
		}, spec(a)},
		"its last page says so": {17, func(s *scene) {
			s.discover()
			s.actor.Tell(messages.EndpointRestarted{Endpoint: id(0, 1)})
		}, spec(a)},
		"it is another one": {17, func(s *scene) { s.discover() }, spec(a, "role", "decode")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.discover(spec(a))
			s.tells(s.pool.Snapshot().Endpoints[0], c.started)
			c.leave(s)
			s.discover(c.back)
			s.left(id(0, 1))
			if got := s.pool.Snapshot().Endpoints[0].ID; got != id(1, 2) {
				t.Errorf("it is %v, want a new one", got)
			}
		})
	}
}

// One that restarted while it was away shows it by its first page.
func TestEndpointThatComesBackRestartedIsAnother(t *testing.T) {
	s := newScene(t)
	s.discover(spec(a))
	s.tells(s.pool.Snapshot().Endpoints[0], 17)
	s.discover()
	s.discover(spec(a))
	s.holds(3, id(0, 1))
	s.actor.Tell(messages.EndpointRestarted{Endpoint: id(0, 1)})
	s.holds(4, id(1, 2))
	s.left(id(0, 1))
}

// An endpoint that leaves again is away from then on.
func TestEachAbsenceHasItsTime(t *testing.T) {
	s := newScene(t)
	s.discover(spec(a))
	s.tells(s.pool.Snapshot().Endpoints[0], 17)
	s.discover()
	s.actor.Advance(awayFor - 1)
	s.discover(spec(a))
	s.discover()
	s.actor.Advance(awayFor - 1)
	s.left()
	s.actor.Advance(1)
	s.left(id(0, 1))
}

func TestThoseAwayTheLongestMakeWay(t *testing.T) {
	const most = 1024
	s := newScene(t)
	var all []messages.EndpointSpec
	for i := range most + 2 {
		all = append(all, spec(messages.Address(fmt.Sprintf("10.1.%d.%d:1", i/256, i%256))))
	}
	s.discover(all...)
	for _, e := range s.pool.Snapshot().Endpoints {
		s.tells(e, 17)
	}
	s.discover(all[1:]...)
	s.actor.Advance(time.Second)
	s.discover()
	s.left(id(0, 1), id(1, 2))
}

// A pool that was restarted does not know who was away: they are gone.
func TestRestartOfThePoolEndsAbsences(t *testing.T) {
	s := newScene(t)
	s.discover(spec(a), spec(b))
	s.tells(s.pool.Snapshot().Endpoints[0], 17)
	s.discover(spec(b))
	s.actor.Crash()
	s.start()
	s.listed(ids(id(0, 1)), id(0, 1))
	s.discover(spec(a), spec(b))
	s.holds(3, id(2, 3), id(1, 2))
}
