package cycle_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	turnLimit  = 20 * time.Second
	emptyLimit = 5 * time.Second
)

// bounded is a gate: an endpoint has room for one request.
type bounded struct{ *scene }

func (bounded) Saturation(*schedule.Input) float64 { return 0 }
func (bounded) Bounds(float64) endpoints.Room      { return endpoints.Room{Requests: 1} }
func (b bounded) Room(in *schedule.Input, keep []bool) {
	for i := range keep {
		keep[i] = b.pool.Snapshot().ByID(in.Candidates().At(i).ID()).Inflight() == 0
	}
}

// gated returns a scene whose requests wait for room, one request at each endpoint, and whose request is about to come.
func gated(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	s.queueing = &flow.Settings{Default: flow.BandSettings{TTL: turnLimit}, Without: emptyLimit}
	s.plan.HaveWait(bounded{s}, schedule.Step{Name: "room"})
	s.play()
	s.ready(24 * time.Hour)
	return s
}

// waits returns what the cycle of a gated scene says of its wait.
func (s *scene) waits() messages.WaitRequested {
	m := s.asks()
	m.Deadline = s.began.Add(turnLimit)
	m.Output = hello.OutputTokens
	return m
}

// lacks returns what the cycle of a gated scene says when it has found no room.
func (s *scene) lacks() messages.WaitRequested {
	m := s.waits()
	m.Class = s.class()
	return m
}

// class returns which requests wait for the same endpoints as that of the scene.
func (s *scene) class() uint64 {
	tools := schedule.Tools{Clock: &s.clock, Rand: rand.New(rand.NewPCG(1, 1))}
	reach, _ := schedule.NewScheduler(tools).Reach(s.plan, &s.asked, nil, s.pool.Snapshot(), s.cycle.Clock())
	of := flow.Reach{Pool: s.pool.Snapshot().Version, Would: reach}
	return uint64(flow.ClassOf("m", messages.Subset{}, of))
}

// fill takes all room, and returns what gives it back.
func (s *scene) fill() (release func()) {
	var back []func()
	for _, e := range s.pool.Snapshot().Endpoints {
		w := endpoints.LoadWriter{Endpoint: e}
		pick := w.Add(endpoints.Work{Prompt: 12}, time.Time{})
		back = append(back, func() { w.Remove(pick) })
	}
	return func() {
		for _, f := range back {
			f()
		}
	}
}

// queuedUp returns a gated scene whose request found no room, and waits.
func queuedUp(t *testing.T) (s *scene, release func()) {
	t.Helper()
	s = gated(t)
	release = s.fill()
	s.arrive()
	s.capacity.Got(s.lacks())
	s.cycle.Tell(messages.Queued{Ahead: 2, RetryAfter: 3 * time.Second})
	s.stream.Got(messages.AnswerDue{At: s.began.Add(turnLimit + pickLimit)})
	return s, release
}

func TestRequestWithRoomNeverWaits(t *testing.T) {
	s := gated(t)
	s.arrive()
	s.stream.Got(pickAfter(0))
	s.capacity.Got()
	s.load(1, 0)
	s.cycle.Tell(messages.ResponseEnded{})
	s.waited(s.over(messages.NoReason), 0, messages.Wait{Outcome: messages.OutcomeDispatched})
}

// A request asks nothing of the line while all that wait there come after it.
func TestRequestPassesThoseOfLowerPriority(t *testing.T) {
	for first, passes := range map[int]bool{-1: true, 0: false, 1: false, math.MaxInt: false} {
		s := gated(t)
		flow.LineWriter{Line: &s.line}.Set(3, first)
		s.arrive()
		if !passes {
			s.capacity.Got(s.lacks())
			s.stream.Got()
			continue
		}
		s.capacity.Got()
		s.stream.Got(pickAfter(0))
	}
}

// pickAfter returns the answer to the request of a gated scene that waited so long.
func pickAfter(waited time.Duration) messages.PickMade {
	return messages.PickMade{
		Destinations: messages.ListOf(addresses[first], addresses[second]),
		Queue:        messages.QueueTime{Gated: true, Took: waited},
	}
}

// waited wants a record to say this of the request's wait.
func (s *scene) waited(r messages.Record, d time.Duration, want messages.Wait) {
	s.Helper()
	if r.QueueWait != d || r.Wait != want {
		s.Errorf("it waited %v, %+v by its record, want %v, %+v", r.QueueWait, r.Wait, d, want)
	}
}

func TestRequestWaitsForRoomAndIsPickedFor(t *testing.T) {
	s, release := queuedUp(t)
	s.cycle.Tell(messages.Dispatched{Waited: time.Second})
	s.capacity.Got(messages.TurnFailed{Request: 7, Class: s.class(), Cycle: s.cycle})
	s.stream.Got()
	release()
	s.cycle.Tell(messages.Dispatched{Waited: 2 * time.Second})
	s.stream.Got(pickAfter(2 * time.Second))
	s.capacity.Got(messages.WaitEnded{Request: 7, Endpoint: first})
	s.load(1, 0)
	flow.LineWriter{Line: &s.line}.Set(1, 0)
	s.cycle.Tell(messages.ResponseEnded{})
	s.capacity.Got(messages.RoomChanged{Endpoint: first})
	s.waited(s.over(messages.NoReason), 2*time.Second, messages.Wait{
		Outcome: messages.OutcomeDispatched, Cause: messages.NoRoom, Ahead: 2, Failed: 1,
	})
}

// A request is classified anew at the first turn after the set of endpoints has changed, also if it still has the same
// ones: others of its class may have more now.
func TestRequestIsClassifiedAnewWhenEndpointsChange(t *testing.T) {
	s, release := queuedUp(t)
	publish := func(version uint64, es []*endpoints.Endpoint) {
		endpoints.Publisher{Published: s.pool}.Publish(endpoints.NewSnapshot(version, es), nil)
	}
	all := s.pool.Snapshot().Endpoints
	sees := func(want uint64) {
		t.Helper()
		s.cycle.Tell(messages.Dispatched{})
		s.capacity.Got(messages.TurnFailed{Request: 7, Class: want, Cycle: s.cycle})
	}
	came := s.class()
	sees(came)
	publish(4, all)
	renewed := s.class()
	sees(renewed)
	sees(renewed)
	publish(5, all[:1])
	fewer := s.class()
	sees(fewer)
	if came == renewed || renewed == fewer {
		t.Errorf("classes %x, %x, %x; want three", came, renewed, fewer)
	}
	publish(6, nil)
	sees(s.class())
	publish(7, all)
	sees(s.class())
	release()
}

// A turn may come late, as long as the request may wait.
func TestTurnThatComesLate(t *testing.T) {
	s, release := queuedUp(t)
	release()
	s.cycle.Advance(turnLimit - time.Second)
	s.cycle.Delay(turnLimit - 2*time.Second)
	s.clock.step = int64(pickLimit) / 8
	s.cycle.Tell(messages.Dispatched{Waited: time.Second})
	s.stream.Got(pickAfter(time.Second))
	s.load(1, 0)

	s, release = queuedUp(t)
	release()
	s.cycle.Advance(turnLimit - 1)
	s.clock.step = int64(pickLimit) + 2
	s.cycle.Tell(messages.Dispatched{Waited: time.Second})
	s.stream.Got(messages.PickFailed{Reason: messages.PickTimeout, RetryAfter: time.Second})
	s.load(0, 0)
}

func TestWaitForRoomEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*scene)
		want messages.Reason
		tell messages.StreamMsg // nil = nothing
		away bool               // capacity knows
	}{
		"with its time": {func(s *scene) { s.cycle.Advance(turnLimit) }, messages.TTLExpired,
			messages.PickFailed{Reason: messages.TTLExpired, RetryAfter: 3 * time.Second}, false},
		"with its client": {func(s *scene) { s.cycle.Tell(messages.StreamGone{}) }, messages.ClientGone, nil, false},
		"displaced": {func(s *scene) {
			s.cycle.Tell(messages.Evicted{Reason: messages.Displaced, RetryAfter: time.Second})
		}, messages.Displaced, messages.PickFailed{Reason: messages.Displaced, RetryAfter: time.Second}, true},
		"without a place": {func(s *scene) {
			s.cycle.Tell(messages.Rejected{Reason: messages.NoCapacity, RetryAfter: time.Second})
		}, messages.NoCapacity, messages.PickFailed{Reason: messages.NoCapacity, RetryAfter: time.Second}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, release := queuedUp(t)
			c.end(s)
			if c.tell != nil {
				s.stream.Got(c.tell)
			} else {
				s.stream.Got()
			}
			if c.away {
				s.capacity.Got()
			} else {
				s.capacity.Got(messages.WaitEnded{Request: 7})
			}
			release()
			s.over(c.want)
		})
	}
}

// While the pool has no endpoint at all, that is what is missing, whatever limit or rule ends the request.
func TestRefusalSaysThatThereIsNoEndpoint(t *testing.T) {
	for why, want := range map[messages.Reason]messages.Reason{
		messages.NoCapacity: messages.NoEndpoints, messages.TTLExpired: messages.NoEndpoints,
		messages.Displaced: messages.NoEndpoints, messages.QueuePressure: messages.NoEndpoints,
		messages.ShuttingDown: messages.ShuttingDown, messages.Internal: messages.Internal,
	} {
		for name, ends := range map[string]messages.CycleMsg{
			"not let in": messages.Rejected{Reason: why, RetryAfter: 2 * time.Second},
			"in line":    messages.Evicted{Reason: why, RetryAfter: 2 * time.Second},
		} {
			s := gated(t)
			s.arriveWithoutEndpoints()
			s.cycle.Tell(ends)
			s.stream.Got(messages.PickFailed{Reason: want, RetryAfter: 2 * time.Second})
			if r := s.over(want); r.Wait.Outcome == messages.OutcomeRejectedCapacity {
				t.Errorf("%s, %s: outcome %s", name, why, r.Wait.Outcome)
			}
		}
	}
	s := gated(t) // the whole request is late
	endpoints.Publisher{Published: s.pool}.Publish(endpoints.NewSnapshot(4, nil), nil)
	s.play()
	s.ready(turnLimit / 2)
	s.arrive()
	s.cycle.Advance(turnLimit / 2)
	s.stream.Got(messages.PickFailed{Reason: messages.NoEndpoints, RetryAfter: time.Second})
}

func (s *scene) arriveWithoutEndpoints() {
	endpoints.Publisher{Published: s.pool}.Publish(endpoints.NewSnapshot(4, nil), nil)
	s.play()
	s.ready(24 * time.Hour)
	s.arrive()
	s.capacity.Told()
}

// A request that waits while there is no endpoint waits for as long as that may take, also if endpoints come and go.
func TestWaitForEndpoints(t *testing.T) {
	s := gated(t)
	all := s.pool.Snapshot().Endpoints
	publish := func(version uint64, es []*endpoints.Endpoint) {
		endpoints.Publisher{Published: s.pool}.Publish(endpoints.NewSnapshot(version, es), nil)
	}
	publish(4, nil)
	s.play()
	s.ready(24 * time.Hour)
	s.arrive()
	if told := s.capacity.Told(); len(told) != 1 {
		t.Fatalf("capacity was told %v, want that it waits", told)
	}
	publish(5, all)
	release := s.fill()
	s.cycle.Advance(emptyLimit)
	s.stream.Got()
	s.cycle.Advance(turnLimit - emptyLimit - 1)
	s.stream.Got()
	publish(6, nil)
	s.cycle.Advance(1)
	s.stream.Got(messages.PickFailed{Reason: messages.NoEndpoints, RetryAfter: time.Second})
	release()
}

func TestInboxOfCapacityIsFull(t *testing.T) {
	s := gated(t)
	release := s.fill()
	s.capacity.Close()
	s.arrive()
	s.stream.Got(messages.PickFailed{Reason: messages.Overloaded, RetryAfter: time.Second})
	release()
	s.over(messages.Overloaded)
}

// What the client says can only shorten the wait, which begins when the body is whole: the headers came a minute ago.
func TestClientsPatience(t *testing.T) {
	for patience, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Hour: turnLimit} {
		s := gated(t)
		flow.LineWriter{Line: &s.line}.Set(1, 0)
		s.asked.TTFT = time.Second
		s.cycle.Tell(messages.RequestArrived{
			Request: s.asked, Flow: line, ArrivedAt: s.began.Add(-time.Minute), Deadline: s.began.Add(time.Hour),
			Stream: s.stream, Patience: patience,
		})
		got := s.capacity.Told()[0].(messages.WaitRequested)
		if got.Deadline != s.cycle.Clock().Add(want) || got.TTFT != time.Second {
			t.Errorf("patience %v: asked %+v, want a deadline after %v", patience, got, want)
		}
		s.cycle.Advance(want)
		s.stream.Got(messages.PickFailed{Reason: messages.TTLExpired, RetryAfter: time.Second})
	}
}

// The cycle whose pick and another one's meet at the last place waits, and holds nothing.
func TestLastPlaceIsTakenOnce(t *testing.T) {
	s := gated(t)
	s.plan.Profiles()[0].Picker.Picker = racing{s}
	s.arrive()
	s.capacity.Got(s.lacks())
	s.stream.Got()
	s.load(1, 0)
}

// racing picks the first endpoint, at which another request takes the last place meanwhile.
type racing struct{ *scene }

func (racing) Most() int { return 1 }
func (r racing) Pick(_ *schedule.Input, _ []float32, ranked []int) []int {
	if e := r.pool.Snapshot().Endpoints[0]; e.Inflight() == 0 {
		endpoints.LoadWriter{Endpoint: e}.Add(endpoints.Work{Prompt: 12}, time.Time{})
	}
	return append(ranked, 0)
}

// The prompt is told only to a policy that goes by what endpoints hold of it.
func TestRequestSaysWhatItsPromptIs(t *testing.T) {
	for quantum, want := range map[int]messages.Prefix{
		0: {}, 100: {Model: "m", Salt: "s", Blocks: hello.Blocks},
	} {
		s := gated(t)
		s.queueing.Default.Fairness = &fairness.Token{LocalityTokens: quantum}
		s.play()
		s.ready(24 * time.Hour)
		flow.LineWriter{Line: &s.line}.Set(1, 0)
		s.arrive()
		asked := s.capacity.Told()[0].(messages.WaitRequested)
		if got := asked.Prefix; !reflect.DeepEqual(got, want) {
			t.Errorf("quantum %d: it says %+v, want %+v", quantum, got, want)
		}
	}
}
