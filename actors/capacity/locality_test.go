package capacity_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// holders is a prefix index: the slot with a number holds all prompts whose first block is that number.
type holders struct{}

func (holders) Match(p blockindex.Prompt, out []int) (most int) {
	clear(out)
	if at := int(p.Blocks.At(0)); at < len(out) && p.Model == "m" && p.Salt == "s" {
		out[at], most = p.Blocks.Len(), p.Blocks.Len()
	}
	return most
}

func place(slot uint32) messages.EndpointID { return messages.EndpointID{Slot: slot, Generation: 1} }

// localScene returns a scene in which a request of flow x is trying, and one of each flow a, b and c waits, whose
// prompts the endpoints 1, 2 and 3 hold.
func localScene(t *testing.T) *scene {
	s := newScene(t, flow.Limits{})
	s.settings.Default.Fairness = &fairness.Token{LocalityTokens: 1000}
	s.actor.Tell(messages.QueueingReplaced{})
	for id, f := range []string{"x", "a", "b", "c"} {
		id := messages.RequestID(id + 1)
		s.cycles[id] = runtimetest.NewProbe[messages.CycleMsg](t)
		s.actor.Tell(messages.WaitRequested{
			Request: id, Flow: tenant(f), Prompt: 5, Arrived: s.actor.Clock(), Cycle: s.cycles[id],
			Deadline: s.actor.Clock().Add(time.Minute),
			Prefix:   messages.Prefix{Model: "m", Salt: "s", Blocks: messages.ListOf(uint64(id)-1, 7)},
		})
	}
	s.turn(1)
	return s
}

func TestTurnGoesWherePromptsAre(t *testing.T) {
	s := localScene(t)
	s.actor.Tell(messages.RoomChanged{Endpoint: place(3)})
	s.actor.Tell(messages.RoomChanged{Endpoint: place(2)})
	s.actor.Tell(messages.WaitEnded{Request: 1, Endpoint: place(9)})
	s.turn(3) // of the two that are held where there is room, the first
	s.actor.Tell(messages.WaitEnded{Request: 3, Endpoint: place(2)})
	s.turn(4)
	s.actor.Tell(messages.WaitEnded{Request: 4, Endpoint: place(3)})
	s.turn(2)
}

// An endpoint whose room was taken draws no request any more, nor does one at which there was none.
func TestTakenPlacesDrawNoRequest(t *testing.T) {
	for name, then := range map[string]messages.CapacityMsg{
		"taken": messages.WaitEnded{Request: 1, Endpoint: place(3)},
		"none":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := localScene(t)
			if then != nil {
				s.actor.Tell(messages.RoomChanged{Endpoint: place(3)})
				s.actor.Tell(then)
				s.turn(2)
				return
			}
			s.actor.Tell(messages.WaitEnded{Request: 1})
			s.turn(2)
			s.actor.Tell(messages.RoomChanged{Endpoint: place(3)})
			s.actor.Tell(messages.TurnFailed{Request: 2, Cycle: s.cycles[2]}) // it may have missed the room
			s.turn(4)
			s.actor.Tell(messages.TurnFailed{Request: 4, Cycle: s.cycles[4]})
			s.actor.Tell(messages.RoomChanged{})
			s.turn(2)
		})
	}
}
