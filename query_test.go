package signalbox

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// asker keeps the recorder's answer.
type asker struct{ got *messages.RecordsAnswered }

func (a *asker) Tell(m messages.AdminMsg) bool {
	got := m.(messages.RecordsAnswered)
	a.got = &got
	return true
}

// Requests end at any moment of a query, in orders that the seed draws. The query finds all of them.
func TestRequestsThatEndWhileTheyAreAskedForAreFound(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			s, dice := newStand(t, seed), rand.New(rand.NewPCG(seed, 1))
			s.answer("")
			var cycles []messages.Port[messages.CycleMsg]
			for id := range messages.RequestID(remembered) {
				cycles = append(cycles, s.begin(id+1))
			}
			a := &asker{}
			s.Recorder().Post(messages.RequestQueried{Newest: remembered, Admin: a})
			for _, i := range dice.Perm(len(cycles)) {
				for range dice.IntN(6) {
					s.System().Step()
				}
				cycles[i].Post(messages.StreamGone{})
			}
			runtimetest.Inspect(s.System()).StepUntil(time.Millisecond)
			switch {
			case a.got == nil:
				t.Error("no answer within a millisecond")
			case a.got.Partial || a.got.Records.Len() != remembered:
				t.Errorf("%d records, partial %v, want %d and all", a.got.Records.Len(), a.got.Partial, remembered)
			}
			if n := s.Running(); n != 0 {
				t.Errorf("%d requests run on", n)
			}
		})
	}
}
