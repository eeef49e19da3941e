package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// holders says that every endpoint holds so many lead blocks of any prompt.
type holders int

func (h holders) Homes(_ blockindex.Prompt, out []int) int {
	for i := range out {
		out[i] = int(h)
	}
	return int(h)
}

func (h holders) Credit(_ blockindex.Prompt, _ uint32, home int) int { return home }

// reading returns a plan of the same profiles in which the prefix index is read.
func reading(t *testing.T, of *schedule.Plan) *schedule.Plan {
	t.Helper()
	var b attributes.Binding
	b.Emit("index", attributes.PrefixBlocks)
	b.Reader("scorer").Number(attributes.PrefixBlocks.Name, "")
	layout, faults := b.Layout()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return schedule.NewPlan(of.Profiles(), layout, once{}, 0)
}

// The load of an endpoint is what it has to compute of the prompt, until the first token, and nothing of it is left
// once the request has ended, with or without one.
func TestLoadIsWhatIsToBeComputed(t *testing.T) {
	for name, c := range map[string]struct {
		prompt, blocks, tokens int
	}{
		"nothing is cached": {1000, 0, 16 * blockindex.BlockTokens}, "some": {1000, 10, 6 * blockindex.BlockTokens},
		"all": {1000, 1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.matcher, s.plan = holders(c.blocks), reading(t, s.plan)
			s.asked.PromptTokens, s.asked.Blocks = c.prompt, messages.ListOf[uint64](1, 2, 3)
			s.asked.Stream, s.asked.Visible = true, true
			at := s.pool.Snapshot().Endpoints[0]
			want := func(requests, tokens int) {
				t.Helper()
				if got := at.Computing(); got.Requests != requests || got.Tokens != tokens {
					t.Errorf("%d requests and %d tokens are to be computed, want %d and %d", got.Requests, got.Tokens,
						requests, tokens)
				}
				if got := at.Counters().Tokens; got != tokens {
					t.Errorf("the load is %d tokens, want %d", got, tokens)
				}
			}
			serves := func() {
				s.play()
				s.ready(24 * time.Hour)
				s.arrive()
				s.cycle.Tell(messages.ResponseStarted{Status: 200})
				want(1, c.tokens)
				if got := at.Computing().Since; !got.Equal(s.cycle.Clock()) {
					t.Errorf("it computes since %v, want %v", got, s.cycle.Clock())
				}
			}
			serves()
			s.cycle.Advance(time.Second)
			s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock()})
			want(0, 0)
			s.cycle.Tell(messages.StreamGone{})
			want(0, 0)
			serves()
			s.cycle.Tell(messages.StreamGone{}) // without a token
			want(0, 0)
			if got := at.Counters(); got != (endpoints.Counters{}) {
				t.Errorf("%+v is left of the load", got)
			}
		})
	}
}
