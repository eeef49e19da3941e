package capacity_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/ceilings"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

// deaf takes messages and keeps none.
type deaf struct{}

func (deaf) Tell(messages.CycleMsg) bool { return true }

// manyBands returns a scene of so many priorities, in each of which a request waits that found no room.
func manyBands(t testing.TB, bands int) *scene {
	t.Helper()
	s := newScene(t, flow.Limits{Requests: 100_000})
	s.settings.Default.Limits = flow.Limits{Requests: 1000, Bytes: 1 << 30}
	s.settings.UsageLimit, s.settings.Bands = new(ceilings.Reserve), map[int]flow.BandSettings{}
	for i := range bands {
		s.settings.Priorities = append(s.settings.Priorities, i)
		s.settings.Bands[i] = s.settings.Default
	}
	s.actor.Tell(messages.QueueingReplaced{})
	for i := range bands {
		id := messages.RequestID(i + 1)
		s.actor.Tell(s.comes(id, i))
		s.actor.Tell(messages.TurnFailed{Request: id, Cycle: deaf{}})
	}
	return s
}

// comes is a request that begins to wait.
func (s *scene) comes(id messages.RequestID, priority int) messages.WaitRequested {
	return messages.WaitRequested{
		Request: id, Flow: messages.FlowKey{Fairness: "a", Priority: priority}, Bytes: 10, Prompt: 5,
		Arrived: s.actor.Clock(), Deadline: s.actor.Clock().Add(time.Hour), Cycle: deaf{},
	}
}

// BenchmarkMessages is what messages cost while requests of so many bands wait: what a request used, and a request that
// comes and leaves again.
func BenchmarkMessages(b *testing.B) {
	for _, bands := range []int{1, 8, 64} {
		s := manyBands(b, bands)
		b.Run(fmt.Sprintf("TokensUsed/bands=%d", bands), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.actor.Tell(messages.TokensUsed{Flow: messages.FlowKey{Fairness: "a"}, Output: 1})
			}
		})
		b.Run(fmt.Sprintf("WaitRequested, WaitEnded/bands=%d", bands), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.actor.Tell(s.comes(1<<20, 0))
				s.actor.Tell(messages.WaitEnded{Request: 1 << 20})
			}
		})
	}
}
