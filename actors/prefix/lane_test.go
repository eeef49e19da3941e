package prefix_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

// shownOne is in how many answers one shows its body, with the files of deploy/envoy for the light lane.
const shownOne = 20

// asksInLightLane has a conversation go on whose answer tells nothing, unless its body is shown.
func (a *audited) asksInLightLane(n int, shown bool) {
	a.last++
	a.place(a.last, a1, messages.ListOf(talk(n)...))
	a.actor.Tell(messages.PromptServed{Request: a.last, Endpoint: a1})
	report := a.server.serve(talk(n))
	if !shown {
		report = messages.ReportedPrompt{}
	}
	a.actor.Tell(messages.PromptEnded{Request: a.last, Prompt: report})
}

// In the light lane it takes some 400 requests to conversations that a server has lost until it has no wrong credit: so
// many show 20 answers. The credit that is looked at is that for conversations which do not come again, for those that
// do are computed anew.
func TestLightLaneNoticesALostCacheWithin400Requests(t *testing.T) {
	const runs, talks, silent, most = 10, 500, 20, 400
	var took []int
	for run := range uint64(runs) {
		a := newAudited(t, server{room: 1 << 20, reports: true}, 0)
		a.chance = rand.New(rand.NewPCG(run, shownOne))
		shown := func() bool { return a.chance.IntN(shownOne) == 0 }
		for n := range talks {
			a.asksInLightLane(n, shown())
		}
		for range talks / 10 {
			a.asksInLightLane(a.chance.IntN(talks), shown())
		}
		wrong := func() (blocks int) {
			for n := range silent {
				blocks += max(0, a.held(talk(n))-a.server.lead(talk(n)))
			}
			return blocks
		}
		if got := wrong(); got != 0 {
			t.Fatalf("run %d: credit for %d blocks is wrong before the loss", run, got)
		}
		a.server.holds = nil
		asked := 0
		for _, n := range a.chance.Perm(talks - silent) {
			s := shown()
			a.asksInLightLane(silent+n, s)
			if asked++; s && wrong() == 0 {
				break
			}
		}
		if took = append(took, asked); asked < 2 {
			t.Fatalf("run %d: the first request ends the wrong credit", run)
		}
	}
	slices.Sort(took)
	t.Logf("no wrong credit after %d to %d requests, half of the runs within %d", took[0], took[runs-1], took[runs/2-1])
	if took[runs-1] > most {
		t.Errorf("a run takes %d requests, want %d at most", took[runs-1], most)
	}
}
