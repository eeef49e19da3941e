package capacity_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/actors/capacity"
	"github.com/signalbox-epp/signalbox/engine/displacements"
	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/orderings"
	"github.com/signalbox-epp/signalbox/engine/queues"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

type scene struct {
	testing.TB
	actor    *runtimetest.Stage[messages.CapacityMsg]
	metrics  *capacity.Metrics
	reg      *prometheus.Registry
	line     flow.Line
	ceilings flow.Ceilings
	traffic  flow.Traffic
	settings flow.Settings
	cycles   map[messages.RequestID]*runtimetest.Probe[messages.CycleMsg]
	panics   []flow.Panic
}

func newScene(t testing.TB, limits flow.Limits) *scene {
	t.Helper()
	s := &scene{TB: t, actor: runtimetest.NewStage[messages.CapacityMsg](t), reg: prometheus.NewRegistry()}
	s.cycles = map[messages.RequestID]*runtimetest.Probe[messages.CycleMsg]{}
	p := flow.Policies{
		Ordering: new(orderings.FCFS), Queue: new(queues.ListQueue), Fairness: new(fairness.RoundRobin),
		Displacement: new(displacements.LongestFlow),
	}
	s.settings = flow.Settings{
		Limits: limits, Default: flow.BandSettings{Policies: p}, Negative: flow.BandSettings{Policies: p}, BuiltIn: p,
	}
	var err error
	if s.metrics, err = capacity.NewMetrics(s.reg, "pool"); err != nil {
		t.Fatal(err)
	}
	s.play()
	return s
}

func (s *scene) play() {
	s.actor.Play(capacity.New(capacity.Deps{
		Line: &s.line, Ceilings: &s.ceilings, Traffic: &s.traffic, Prefixes: holders{},
		Settings: func() *flow.Settings { return &s.settings }, Metrics: s.metrics,
		Panicked: func(p flow.Panic) { s.panics = append(s.panics, p) },
	}))
	s.actor.Tell(messages.CapacityStarted{})
}

// asks has a request wait.
func (s *scene) asks(id messages.RequestID, key messages.FlowKey, class uint64) {
	s.cycles[id] = runtimetest.NewProbe[messages.CycleMsg](s.TB)
	s.actor.Tell(messages.WaitRequested{
		Request: id, Flow: key, Class: class, Bytes: 10, Prompt: 5, Arrived: s.actor.Clock(),
		Deadline: s.actor.Clock().Add(time.Minute), Cycle: s.cycles[id],
	})
}

// turn wants a request to have had its turn, and no other one.
func (s *scene) turn(want messages.RequestID) {
	s.Helper()
	for id, c := range s.cycles {
		for _, m := range c.Told() {
			d, ok := m.(messages.Dispatched)
			if ok && id != want {
				s.Errorf("request %d: %+v, want the turn of %d", id, d, want)
			}
			if ok && id == want {
				want = 0
			}
		}
	}
	if want != 0 {
		s.Errorf("request %d had no turn", want)
	}
}

func (s *scene) waits(want int64) {
	s.Helper()
	if want > 0 && !s.line.HoldsUp(math.MinInt) {
		s.Error("the line says that no request waits")
	}
	if got := s.metric("signalbox_flow_waiting_requests"); got != float64(want) {
		s.Errorf("%v requests wait, want %d", got, want)
	}
}

func (s *scene) metric(name string) float64 {
	s.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	s.Fatalf("no metric %s", name)
	return 0
}

func tenant(name string) messages.FlowKey { return messages.FlowKey{Fairness: name} }

// Those that come are held up by requests of their own or a higher priority: that wait, that try, or that are late with
// their answer.
func TestLineSaysWhoGoesFirst(t *testing.T) {
	s := newScene(t, flow.Limits{})
	first := func(want int) {
		t.Helper()
		if !s.line.HoldsUp(want) || s.line.HoldsUp(want+1) {
			t.Errorf("priority %d is held up: %t, the next higher one: %t", want, s.line.HoldsUp(want),
				s.line.HoldsUp(want+1))
		}
	}
	s.asks(1, at(5), 0)
	s.asks(2, at(-1), 0)
	first(5)
	s.actor.Advance(2 * time.Second) // 1 is late, 2 has its turn
	first(5)
	s.actor.Tell(messages.WaitEnded{Request: 1})
	first(-1)
	s.actor.Tell(messages.WaitEnded{Request: 2})
	if s.line.HoldsUp(math.MinInt) {
		t.Error("none waits, and requests are held up")
	}
}

func TestTurnsComeOneByOne(t *testing.T) {
	s := newScene(t, flow.Limits{})
	for id := range messages.RequestID(4) {
		s.asks(id+1, tenant([]string{"a", "b"}[id/3]), 0)
	}
	s.turn(1)
	s.actor.Tell(messages.WaitEnded{Request: 1, Endpoint: place(1)})
	s.turn(4) // b's, which has had none
	s.actor.Tell(messages.TurnFailed{Request: 4, Cycle: s.cycles[4]})
	s.turn(0)
	s.waits(3)
	s.actor.Tell(messages.RoomChanged{})
	s.turn(4)
	s.actor.Tell(messages.WaitEnded{Request: 4})
	s.turn(2)
	s.actor.Tell(messages.WaitEnded{Request: 3}) // its client left
	s.actor.Tell(messages.WaitEnded{Request: 2})
	s.turn(0)
	s.waits(0)
	if s.line.Waits() {
		t.Error("the line says that a request waits")
	}
}

func TestFirstTurnComesAtOnce(t *testing.T) {
	s := newScene(t, flow.Limits{})
	s.asks(1, tenant("a"), 0)
	s.actor.Advance(time.Second)
	s.asks(2, tenant("a"), 0)
	s.cycles[1].Got(messages.Queued{RetryAfter: time.Second}, messages.Dispatched{})
	s.cycles[2].Got(messages.Queued{RetryAfter: time.Second})
	s.actor.Tell(messages.WaitEnded{Request: 1})
	s.cycles[2].Got(messages.Dispatched{})
}

// While nothing waits nothing is computed: no timer is set, and news of room ask nothing.
func TestEmptyLineIsIdle(t *testing.T) {
	s := newScene(t, flow.Limits{})
	idle := s.actor.Timers()
	s.asks(1, tenant("a"), 0)
	s.turn(1)
	s.actor.Tell(messages.WaitEnded{Request: 1})
	s.actor.Advance(time.Hour)
	s.cycles[1].Told()
	s.actor.Tell(messages.RoomChanged{})
	if n := s.actor.Timers(); idle != 0 || n != 0 {
		t.Errorf("%d timers are set at first, %d once the line is empty again, want none", idle, n)
	}
	s.cycles[1].Got()
}

func TestFullClassIsPassedOver(t *testing.T) {
	s := newScene(t, flow.Limits{})
	s.asks(1, tenant("a"), 1)
	s.asks(2, tenant("a"), 1)
	s.asks(3, tenant("a"), 2)
	s.turn(1)
	s.actor.Tell(messages.TurnFailed{Request: 1, Cycle: s.cycles[1]})
	s.turn(3)
	s.actor.Tell(messages.TurnFailed{Request: 3, Cycle: s.cycles[3]})
	s.turn(0)
}

// Room that changes while a request tries may be what it did not see.
func TestRoomThatChangesDuringATurnIsTriedAgain(t *testing.T) {
	s := newScene(t, flow.Limits{})
	s.asks(1, tenant("a"), 1)
	s.turn(1)
	s.actor.Tell(messages.RoomChanged{})
	s.actor.Tell(messages.TurnFailed{Request: 1, Cycle: s.cycles[1]})
	s.turn(1)
	s.actor.Tell(messages.TurnFailed{Request: 1, Cycle: s.cycles[1]})
	s.turn(0)
}

func TestWhatLeavesWhenTheLineIsFull(t *testing.T) {
	s := newScene(t, flow.Limits{Requests: 3})
	s.asks(1, tenant("a"), 0) // its turn
	for id := messages.RequestID(2); id <= 4; id++ {
		s.asks(id, tenant("a"), 0)
	}
	s.turn(1)
	s.asks(5, tenant("b"), 0)
	s.cycles[4].Got(messages.Evicted{Reason: messages.QueuePressure, RetryAfter: time.Second})
	s.asks(6, messages.FlowKey{Fairness: "a", Priority: 1}, 0)
	s.cycles[3].Got(messages.Evicted{Reason: messages.Displaced, RetryAfter: time.Second})
	s.asks(7, tenant("b"), 0)
	s.cycles[7].Got(messages.Rejected{Reason: messages.NoCapacity, RetryAfter: time.Second})
	s.waits(3)
}

func TestBodyHasOthersMakeWay(t *testing.T) {
	s := newScene(t, flow.Limits{})
	for id := range messages.RequestID(3) {
		s.asks(id+1, messages.FlowKey{Fairness: "a", Priority: -int(id)}, 0)
	}
	s.turn(1)
	stream := runtimetest.NewProbe[messages.StreamMsg](t)
	ask := messages.MemoryRequested{Flow: tenant("b"), Bytes: 11, Stream: stream}
	s.actor.Tell(ask)
	stream.Got(messages.MemoryYielded{Enough: true, RetryAfter: time.Second})
	for id := messages.RequestID(2); id <= 3; id++ {
		s.cycles[id].Got(messages.Evicted{Reason: messages.Displaced, RetryAfter: time.Second})
	}
	s.waits(0)
	s.actor.Tell(ask) // the one that tries does not wait
	stream.Got(messages.MemoryYielded{RetryAfter: time.Second})
}

func TestClosedLineHasOneTurnForEach(t *testing.T) {
	s := newScene(t, flow.Limits{})
	s.asks(1, tenant("a"), 0)
	s.turn(1)
	s.actor.Tell(messages.TurnFailed{Request: 1, Cycle: s.cycles[1]})
	s.asks(2, tenant("b"), 0)
	s.asks(3, tenant("c"), 0)
	for _, c := range s.cycles {
		c.Told()
	}
	s.actor.Tell(messages.LineClosed{})
	closing := messages.Evicted{Reason: messages.ShuttingDown, RetryAfter: time.Second}
	for _, c := range s.cycles {
		c.Got(closing)
	}
	s.waits(0)
	s.asks(4, tenant("a"), 0)
	s.asks(5, tenant("a"), 0)
	s.turn(4)
	s.actor.Tell(messages.TurnFailed{Request: 4, Cycle: s.cycles[4]})
	s.cycles[4].Got(closing)
	s.turn(5)
	s.actor.Tell(messages.WaitEnded{Request: 5})
	s.actor.Crash()
	s.play() // a new incarnation knows it
	s.asks(6, tenant("a"), 0)
	s.turn(6)
	s.actor.Tell(messages.TurnFailed{Request: 6, Cycle: s.cycles[6]})
	s.cycles[6].Got(closing)
}

// So has one whose class was full when the line was closed.
func TestClosedLineHasOneTurnForEachOfAFullClass(t *testing.T) {
	s := newScene(t, flow.Limits{})
	s.asks(1, tenant("a"), 7)
	s.turn(1)
	s.actor.Tell(messages.TurnFailed{Request: 1, Class: 7, Cycle: s.cycles[1]})
	s.asks(2, tenant("b"), 8)
	s.turn(2)
	s.actor.Tell(messages.LineClosed{})
	s.asks(3, tenant("a"), 7)
	s.actor.Tell(messages.WaitEnded{Request: 2})
	s.turn(3)
}

func TestNewSettingsHoldForThoseWhoCome(t *testing.T) {
	s := newScene(t, flow.Limits{})
	for id := range messages.RequestID(4) {
		s.asks(id+1, tenant("a"), 0)
	}
	s.turn(1)
	s.settings.Limits.Requests = 2
	s.actor.Tell(messages.QueueingReplaced{})
	s.waits(3)
	s.asks(5, tenant("a"), 0)
	s.cycles[5].Got(messages.Rejected{Reason: messages.NoCapacity, RetryAfter: time.Second})
}

// What was full when the line became empty may have room once it begins anew: in between, no message tells of room.
func TestEmptyLineForgetsWhatIsFull(t *testing.T) {
	s := newScene(t, flow.Limits{})
	s.asks(1, tenant("a"), 7)
	s.turn(1)
	s.actor.Tell(messages.TurnFailed{Request: 1, Class: 7, Cycle: s.cycles[1]})
	s.actor.Tell(messages.WaitEnded{Request: 1}) // its client left
	s.waits(0)
	s.asks(2, tenant("a"), 7)
	s.turn(2)
}

// A request that says at its turn to which class it belongs holds up those of that class alone.
func TestTurnThatFailsNamesItsClass(t *testing.T) {
	s := newScene(t, flow.Limits{})
	for id, class := range []uint64{0, 0, 8} {
		s.asks(messages.RequestID(id+1), tenant("a"), class)
	}
	s.turn(1)
	s.actor.Tell(messages.TurnFailed{Request: 1, Class: 8, Cycle: s.cycles[1]})
	s.turn(2)
	s.actor.Tell(messages.TurnFailed{Request: 2, Class: 9, Cycle: s.cycles[2]})
	s.turn(0)
	s.actor.Tell(messages.RoomChanged{})
	s.turn(1)
}

// play is a line of which a test draws what happens.
type play struct {
	*scene
	waiting []messages.RequestID // and not trying
	trying  messages.RequestID   // 0 = none
	last    messages.RequestID
	room    bool // it may be that there is room
}

// TestEveryWaitEndsOnce draws what happens: each request has one answer to each turn, no request waits while there may
// be room, and what the line says is exact.
func TestEveryWaitEndsOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := &play{scene: newScene(t, flow.Limits{Requests: rapid.Int64Range(0, 6).Draw(rt, "limit")}), room: true}
		rt.Repeat(map[string]func(*rapid.T){
			"comes": p.comes, "leaves": p.leaves, "fails": p.fails, "room": func(*rapid.T) {
				p.room = true
				p.actor.Tell(messages.RoomChanged{})
			}, "": p.look,
		})
	})
}

func (p *play) comes(t *rapid.T) {
	p.last++
	p.waiting = append(p.waiting, p.last)
	p.asks(p.last, messages.FlowKey{
		Fairness: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "flow")), Priority: rapid.IntRange(-1, 1).Draw(t, "priority"),
	}, 0)
}

func (p *play) leaves(t *rapid.T) {
	id := messages.RequestID(rapid.Uint64Range(0, uint64(p.last)).Draw(t, "request"))
	p.forget(id)
	if p.trying == id {
		p.trying = 0
	}
	p.actor.Tell(messages.WaitEnded{Request: id})
}

func (p *play) fails(t *rapid.T) {
	if p.trying == 0 {
		t.Skip()
	}
	id := p.trying
	p.trying, p.room = 0, false
	p.waiting = append(p.waiting, id)
	p.actor.Tell(messages.TurnFailed{Request: id, Cycle: p.cycles[id]})
}

func (p *play) forget(id messages.RequestID) {
	p.waiting = slices.DeleteFunc(p.waiting, func(w messages.RequestID) bool { return w == id })
}

// look takes what the cycles were told, and compares.
func (p *play) look(t *rapid.T) {
	for id, c := range p.cycles {
		for _, m := range c.Told() {
			p.told(t, id, m)
		}
	}
	if p.trying == 0 && p.room && len(p.waiting) > 0 {
		t.Fatalf("%v wait, none tries, and there may be room", p.waiting)
	}
	if p.line.Waits() != (p.trying != 0 || len(p.waiting) > 0) {
		t.Fatalf("%v wait, %d is trying: the line says %t", p.waiting, p.trying, p.line.Waits())
	}
	p.waits(int64(len(p.waiting)))
}

func (p *play) told(t *rapid.T, id messages.RequestID, m messages.CycleMsg) {
	switch m.(type) {
	case messages.Dispatched:
		if p.trying != 0 || !slices.Contains(p.waiting, id) {
			t.Fatalf("request %d has a turn, %d is trying", id, p.trying)
		}
		p.trying = id
	case messages.Rejected, messages.Evicted:
	default:
		return
	}
	p.forget(id)
}

// half keeps half of the room from flows that have more than one request waiting.
type half struct{}

func (half) Ceilings(*flow.Usage, []float64) time.Duration { return 0 }
func (half) Crowd(*flow.Usage, int) float64                { return .5 }

// crowded is a line in which request 2 has its turn, and 3 of the same flow waits: half of the room is not for them.
func crowded(t *testing.T) *scene {
	t.Helper()
	s := newScene(t, flow.Limits{})
	s.settings.UsageLimit, s.settings.Priorities = half{}, []int{0}
	s.actor.Tell(messages.QueueingReplaced{})
	for id := range messages.RequestID(3) {
		s.asks(id+1, tenant("greedy"), 1)
	}
	s.turn(1)
	s.actor.Tell(messages.WaitEnded{Request: 1})
	s.turn(2)
	return s
}

// Settings without that are room for those of which a turn failed.
func TestSettingsThatLetCrowdsFillMoreAreRoom(t *testing.T) {
	s := crowded(t)
	s.actor.Tell(messages.TurnFailed{Request: 2, Cycle: s.cycles[2]})
	s.turn(0)
	s.settings.UsageLimit = nil
	s.actor.Tell(messages.QueueingReplaced{})
	s.turn(2)
}

// The turn of a request that crowds has failed for those that crowd alone. If the others of its flow leave meanwhile,
// it crowds no more.
func TestCrowdThatLeavesIsNone(t *testing.T) {
	s := crowded(t)
	s.actor.Tell(messages.WaitEnded{Request: 3})
	s.actor.Tell(messages.TurnFailed{Request: 2, Cycle: s.cycles[2]})
	s.turn(2)
}

// A request that crowds is told what part of the room it may fill. If there is none, one that does not is next.
func TestCrowdsLeaveRoom(t *testing.T) {
	s := newScene(t, flow.Limits{})
	s.settings.UsageLimit, s.settings.Priorities = half{}, []int{0}
	s.actor.Tell(messages.QueueingReplaced{})
	greedy := messages.FlowKey{Fairness: "greedy"}
	s.asks(1, greedy, 1) // has its turn at once, alone
	s.asks(2, greedy, 1)
	s.asks(3, greedy, 1)
	share := func(id messages.RequestID) float64 {
		for _, m := range s.cycles[id].Told() {
			if d, ok := m.(messages.Dispatched); ok {
				return d.Share
			}
		}
		t.Errorf("request %d had no turn", id)
		return -1
	}
	if got := share(1); got != 0 {
		t.Errorf("alone: a share of %v, want all", got)
	}
	s.actor.Tell(messages.WaitEnded{Request: 1})
	if got := share(2); got != .5 {
		t.Errorf("with another one: a share of %v, want a half", got)
	}
	s.actor.Tell(messages.TurnFailed{Request: 2, Cycle: s.cycles[2]})
	s.waits(2)
	s.asks(4, messages.FlowKey{Fairness: "modest"}, 1)
	if got := share(4); got != 0 {
		t.Errorf("beside those that crowd: a share of %v, want all", got)
	}
	s.actor.Tell(messages.TurnFailed{Request: 4, Cycle: s.cycles[4]})
	s.waits(3)
	s.asks(5, messages.FlowKey{Fairness: "another"}, 1)
	for _, m := range s.cycles[5].Told() {
		if _, ok := m.(messages.Dispatched); ok {
			t.Error("one has its turn though there is no room for any")
		}
	}
}
