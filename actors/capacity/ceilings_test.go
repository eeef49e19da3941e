package capacity_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

// limit is a usage limit with one ceiling for all but the highest priority.
type limit struct {
	share float64
	again time.Duration
	seen  flow.Usage
	asked int
}

func (l *limit) ReadsSaturation() bool { return true }
func (l *limit) Ceilings(in *flow.Usage, out []float64) time.Duration {
	l.seen = *in
	l.asked++
	for i := range out[1:] {
		out[i+1] = l.share
	}
	return l.again
}

// ceiled returns a scene with a usage limit, of priorities 1 and 0.
func ceiled(t *testing.T) (*scene, *limit) {
	s, l := newScene(t, flow.Limits{}), &limit{share: .5}
	s.settings.UsageLimit, s.settings.Priorities = l, []int{1, 0}
	s.actor.Tell(messages.QueueingReplaced{})
	return s, l
}

func at(priority int) messages.FlowKey { return messages.FlowKey{Fairness: "a", Priority: priority} }

func TestCeilingsAreInForceBeforeAnyoneWaits(t *testing.T) {
	s, _ := ceiled(t)
	if high, low := s.ceilings.Of(1), s.ceilings.Of(0); high != 1 || low != .5 {
		t.Errorf("ceilings %v and %v, want 1 and 0.5", high, low)
	}
	s.settings.UsageLimit = nil
	s.actor.Tell(messages.QueueingReplaced{})
	if low := s.ceilings.Of(0); low != 1 {
		t.Errorf("ceiling %v without a usage limit", low)
	}
}

// A class without room below a ceiling is full for that priority and lower ones, and may have room for higher ones.
func TestClassIsFullUpToAPriority(t *testing.T) {
	s, _ := ceiled(t)
	for id, priority := range []int{0, 0, -1} {
		s.asks(messages.RequestID(id+1), at(priority), 7)
	}
	s.turn(1)
	s.actor.Tell(messages.TurnFailed{Request: 1, Cycle: s.cycles[1]})
	s.turn(0)
	s.asks(4, at(1), 7)
	s.turn(4)
	s.actor.Tell(messages.TurnFailed{Request: 4, Cycle: s.cycles[4]})
	s.turn(0)
	s.asks(5, at(1), 7)
	s.turn(0)
	s.asks(6, at(2), 7)
	s.turn(6)
}

// A request that its band's least share brings forward may fill what the highest priority may, and if even there is no
// room, its class is full for all.
func TestLeastShareGoesBeyondTheCeiling(t *testing.T) {
	s, _ := ceiled(t)
	b := s.settings.Default
	b.MinShare = .5
	s.settings.Bands = map[int]flow.BandSettings{0: b}
	s.actor.Tell(messages.QueueingReplaced{})
	for id, priority := range []int{1, 1, 0} {
		s.asks(messages.RequestID(id+1), at(priority), 7)
	}
	s.turn(1)
	s.actor.Tell(messages.WaitEnded{Request: 1, Endpoint: place(1)})
	s.turn(2)
	s.actor.Tell(messages.WaitEnded{Request: 2, Endpoint: place(1)})
	s.asks(4, at(1), 7)
	told := s.cycles[3].Told()
	if d, ok := told[len(told)-1].(messages.Dispatched); !ok || d.Share != 2 {
		t.Fatalf("the low one was told %+v, want a turn with twice its share", told)
	}
	s.actor.Tell(messages.TurnFailed{Request: 3, Cycle: s.cycles[3]})
	s.turn(0)
	s.actor.Tell(messages.RoomChanged{})
	s.turn(3)
}

// A ceiling that rises is room, and one that falls is not.
func TestRisingCeilingIsRoom(t *testing.T) {
	s, l := ceiled(t)
	s.asks(1, at(0), 7)
	s.turn(1)
	s.actor.Tell(messages.TurnFailed{Request: 1, Cycle: s.cycles[1]})
	l.share = .4
	s.actor.Tell(messages.TokensUsed{})
	s.actor.Advance(10 * time.Millisecond)
	s.turn(0)
	l.share = .6
	s.actor.Tell(messages.TokensUsed{})
	s.actor.Advance(10 * time.Millisecond)
	s.turn(1)
}

// However many messages come, the usage limit is asked once in a hundredth of a second, and about the last of them,
// too. Another priority that waits has its ceiling at once.
func TestUsageLimitIsAskedNowAndThen(t *testing.T) {
	s, l := ceiled(t)
	s.asks(1, at(0), 7)
	asked := l.asked
	for range 100 {
		s.actor.Tell(messages.TokensUsed{})
	}
	if l.asked != asked || s.actor.Timers() != 2 { // with that of the turn
		t.Errorf("asked %d times at once, %d timers; want none, and two", l.asked-asked, s.actor.Timers())
	}
	s.actor.Advance(10 * time.Millisecond)
	s.actor.Advance(time.Second)
	if l.asked != asked+1 {
		t.Errorf("asked %d times in a second without a message, want once", l.asked-asked)
	}
	s.actor.Tell(messages.TokensUsed{})
	s.asks(2, at(-5), 7)
	if l.asked != asked+3 || len(l.seen.Bands) != 3 {
		t.Errorf("asked %d times about %d bands, want 3 of each", l.asked-asked, len(l.seen.Bands))
	}
	s.actor.Tell(messages.WaitEnded{Request: 2})
	if len(l.seen.Bands) != 2 {
		t.Errorf("it sees %d bands, want that one has gone", len(l.seen.Bands))
	}
}

func TestUsageLimitIsAskedAgainByTheClock(t *testing.T) {
	s, l := ceiled(t)
	l.again = time.Second
	s.actor.Tell(messages.QueueingReplaced{})
	if s.actor.Timers() != 0 {
		t.Error("a timer runs while nothing waits or runs")
	}
	s.asks(1, at(0), 7)
	s.turn(1)
	s.actor.Tell(messages.TurnFailed{
		Request: 1, Cycle: s.cycles[1], Saturation: messages.Saturation{Known: true, Full: .7},
	})
	s.actor.Advance(10 * time.Millisecond)
	if s.actor.Timers() != 1 || l.seen.Saturation != .7 {
		t.Errorf("%d timers, saturation %v; want one, and 0.7", s.actor.Timers(), l.seen.Saturation)
	}
	l.share = .9
	s.actor.Advance(time.Second - 1)
	s.turn(0)
	s.actor.Advance(1)
	s.turn(1)
	s.actor.Tell(messages.WaitEnded{Request: 1})
	if s.actor.Advance(time.Minute); s.actor.Timers() != 0 {
		t.Error("a timer runs on, and nothing waits or runs")
	}
	s.traffic.Of(0).Enter()
	s.actor.Tell(messages.TokensUsed{})
	asked := l.asked
	s.actor.Advance(3 * time.Second)
	if n := l.asked - asked; n != 3 {
		t.Errorf("asked %d times in 3 s while requests run, want 3", n)
	}
	l.again = 100 * time.Millisecond
	s.actor.Advance(10 * time.Millisecond)
	s.actor.Tell(messages.TokensUsed{}) // sooner than the timer that runs
	asked = l.asked
	s.actor.Advance(100 * time.Millisecond)
	if n := l.asked - asked; n != 1 || s.actor.Timers() != 1 {
		t.Errorf("asked %d times, %d timers; want one of each", n, s.actor.Timers())
	}
}
