package prefix_test

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/prefix"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

var (
	a1 = messages.EndpointID{Slot: 0, Generation: 1}
	a2 = messages.EndpointID{Slot: 0, Generation: 2}
	b1 = messages.EndpointID{Slot: 1, Generation: 1}

	prompt = messages.ListOf[uint64](11, 12, 13, 14)
	other  = messages.ListOf[uint64](11, 12, 23)
)

func TestPickEntersProvisionally(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.holds(prompt, 4, 0)
}

func TestRequestThatNobodyServedIsWithdrawn(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.actor.Tell(messages.PromptEnded{Request: 1})
	s.holds(prompt, 0, 0)
}

func TestServedPromptStays(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.actor.Tell(messages.PromptServed{Request: 1, Endpoint: a1})
	s.actor.Tell(messages.PromptEnded{Request: 1})
	s.holds(prompt, 4, 0)
}

func TestPromptServedElsewhereMoves(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.actor.Tell(messages.PromptServed{Request: 1, Endpoint: b1})
	s.holds(prompt, 0, 4)
	s.actor.Tell(messages.PromptEnded{Request: 1})
	s.holds(prompt, 0, 4)
}

func TestPromptServedByAStrangerIsWithdrawn(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.actor.Tell(messages.PromptServed{Request: 1})
	s.holds(prompt, 0, 0)
	s.actor.Tell(messages.PromptEnded{Request: 1})
	s.holds(prompt, 0, 0)
}

func TestFailureBeforeTheFirstTokenWithdrawsWhatWasConfirmed(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.actor.Tell(messages.PromptServed{Request: 1, Endpoint: a1})
	s.actor.Tell(messages.PromptEnded{Request: 1, Failed: true})
	s.holds(prompt, 0, 0)
}

func TestFailureLeavesWhatAnotherRequestUsed(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.place(2, a1, other)
	s.actor.Tell(messages.PromptEnded{Request: 1, Failed: true})
	s.holds(prompt, 2, 0)
	s.holds(other, 3, 0)
}

func TestSecondPlaceReplacesTheFirst(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.place(1, b1, prompt)
	s.holds(prompt, 0, 4)
}

func TestUnknownRequestIsNoError(t *testing.T) {
	s := newScene(t)
	s.actor.Tell(messages.PromptServed{Request: 9, Endpoint: a1})
	s.actor.Tell(messages.PromptEnded{Request: 9, Failed: true})
	s.holds(prompt, 0, 0)
}

func TestEndOfAServedRequestIsAUse(t *testing.T) {
	s := newSceneOf(t, 6)
	s.place(1, a1, prompt)
	s.actor.Tell(messages.PromptServed{Request: 1, Endpoint: a1})
	s.place(2, a1, messages.ListOf[uint64](31, 32))
	s.actor.Tell(messages.PromptEnded{Request: 1})
	s.place(3, a1, messages.ListOf[uint64](41, 42))
	s.holds(prompt, 4, 0)
	s.holds(messages.ListOf[uint64](31, 32), 0, 0)
}

func TestEndpointThatLeavesIsForgottenAndReported(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.place(2, b1, prompt)
	s.actor.Tell(messages.EndpointLeft{Endpoint: a1, Pool: s.pool})
	s.pool.Got(messages.SlotCleared{Endpoint: a1})
	s.holds(prompt, 0, 4)
}

func TestListedDeparturesAreForgottenWithoutAnAnswer(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.place(2, b1, prompt)
	s.actor.Tell(messages.DeparturesListed{Endpoints: messages.ListOf(a1)})
	s.pool.Got()
	s.holds(prompt, 0, 4)
	s.place(3, a1, prompt) // picked before the endpoint left
	s.holds(prompt, 0, 4)
	s.actor.Tell(messages.EndpointLeft{Endpoint: a1, Pool: s.pool})
	s.pool.Got(messages.SlotCleared{Endpoint: a1})
	s.place(4, a2, prompt)
	s.actor.Tell(messages.DeparturesListed{Endpoints: messages.ListOf(a1)}) // once more: no harm to the new one
	s.holds(prompt, 4, 4)
}

func TestOldGenerationIsDropped(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.actor.Tell(messages.EndpointLeft{Endpoint: a1, Pool: s.pool})
	s.pool.Got(messages.SlotCleared{Endpoint: a1})

	s.place(2, a1, prompt) // picked before the endpoint left
	s.holds(prompt, 0, 0)

	s.place(3, a2, prompt)
	s.actor.Tell(messages.PromptServed{Request: 1, Endpoint: a1})
	s.actor.Tell(messages.PromptEnded{Request: 1, Failed: true})
	s.holds(prompt, 4, 0)

	s.actor.Tell(messages.EndpointLeft{Endpoint: a1, Pool: s.pool}) // once more: answered, without harm to the new one
	s.pool.Got(messages.SlotCleared{Endpoint: a1})
	s.holds(prompt, 4, 0)
}

func TestNewerGenerationFindsItsSlotEmpty(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.place(2, a2, messages.ListOf[uint64](51))
	s.holds(prompt, 0, 0)
	s.actor.Tell(messages.PromptEnded{Request: 1})
	s.holds(messages.ListOf[uint64](51), 1, 0)
}

func TestCrashLeavesAnEmptyIndexForTheNextIncarnation(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.actor.Crash()
	s.holds(prompt, 0, 0)

	s.play()
	s.actor.Tell(messages.PromptEnded{Request: 1}) // of the life before
	s.place(2, b1, prompt)
	s.holds(prompt, 0, 4)
}

func TestSaltAndModelSeparate(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.actor.Tell(messages.PromptPlaced{Request: 2, Endpoint: b1, Model: "m", Salt: "s", Blocks: prompt})
	s.holds(prompt, 4, 0)
	out := make([]int, 2)
	if s.index.Match(blockindex.Prompt{Model: "m", Salt: "s", Blocks: prompt}, out); out[0] != 0 || out[1] != 4 {
		t.Errorf("with salt: %v, want [0 4]", out)
	}
	if best := s.index.Match(blockindex.Prompt{Model: "n", Blocks: prompt}, out); best != 0 {
		t.Errorf("other model: %v, want nothing", out)
	}
}

func TestMetricsFollow(t *testing.T) {
	s := newSceneOf(t, 4)
	s.place(1, a1, prompt)
	s.actor.Tell(messages.PromptServed{Request: 1, Endpoint: a1})
	s.place(2, a1, other) // 1 of 5 blocks evicted
	s.actor.Tell(messages.PromptEnded{Request: 2})
	s.actor.Tell(messages.EndpointLeft{Endpoint: a1, Pool: s.pool})
	s.place(3, a2, other)
	want := map[string]float64{
		"llm_d_epp_prefix_indexer_size":           3,
		"signalbox_prefix_held_blocks":            3,
		"signalbox_prefix_bytes":                  float64(s.index.Stats().Bytes),
		"signalbox_prefix_placed_prompts":         2,
		"signalbox_prefix_entered_blocks_total":   8,
		"signalbox_prefix_evicted_blocks_total":   1,
		"signalbox_prefix_withdrawn_blocks_total": 1,
		"signalbox_prefix_forgotten_blocks_total": 3,
		"signalbox_prefix_predicted_tokens_total": 0,
		"signalbox_prefix_reported_tokens_total":  0,
		"signalbox_prefix_lost_blocks_total":      0,
	}
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	if !maps.Equal(got, want) {
		t.Errorf("metrics:\n\t%v\nwant:\n\t%v", got, want)
	}
}

func TestMetricsRegisterOnce(t *testing.T) {
	s := newScene(t)
	if _, err := prefix.NewMetrics(s.registry); err == nil {
		t.Error("second registration: no error, want one")
	}
}

// scene is the prefix actor between a probe for the pool and the index that cycles read.
type scene struct {
	t        *testing.T
	index    *blockindex.Index
	registry *prometheus.Registry
	metrics  *prefix.Metrics
	servers  *endpoints.Published // a1 and b1
	pool     *runtimetest.Probe[messages.PoolMsg]
	actor    *runtimetest.Stage[messages.PrefixMsg]
	sizes    messages.PrefixSizes // that requests have
}

func newScene(t *testing.T) *scene { return newSceneOf(t, 0) }

// newSceneOf returns a scene with so many blocks for each endpoint.
func newSceneOf(t *testing.T, capacity int) *scene {
	s := &scene{
		t:        t,
		index:    blockindex.NewIndex(capacity),
		registry: prometheus.NewRegistry(),
		servers:  endpoints.NewPublished(),
		pool:     runtimetest.NewProbe[messages.PoolMsg](t),
		actor:    runtimetest.NewStage[messages.PrefixMsg](t),
		sizes:    messages.PrefixSizes{Follows: true},
	}
	var err error
	if s.metrics, err = prefix.NewMetrics(s.registry); err != nil {
		t.Fatal(err)
	}
	endpoints.Publisher{Published: s.servers}.Publish(endpoints.NewSnapshot(1, []*endpoints.Endpoint{
		endpoints.New(a1, messages.EndpointSpec{Address: "10.0.0.1:8000"}),
		endpoints.New(b1, messages.EndpointSpec{Address: "10.0.0.2:8000"}),
	}), map[messages.EndpointID]messages.Address{})
	s.play()
	return s
}

// play puts a new incarnation on the stage.
func (s *scene) play() {
	s.actor.Play(prefix.New(s.index, s.servers, s.metrics))
	s.actor.Tell(messages.PrefixStarted{})
}

func (s *scene) place(id messages.RequestID, e messages.EndpointID, blocks messages.List[uint64]) {
	s.actor.Tell(messages.PromptPlaced{Request: id, Endpoint: e, Model: "m", Blocks: blocks, Sizes: s.sizes})
}

// holds checks how many lead blocks slots 0 and 1 hold.
func (s *scene) holds(blocks messages.List[uint64], slot0, slot1 int) {
	s.t.Helper()
	out := make([]int, 2)
	s.index.Match(blockindex.Prompt{Model: "m", Blocks: blocks}, out)
	if out[0] != slot0 || out[1] != slot1 {
		s.t.Errorf("lead blocks of %v held: %v, want [%d %d]", blocks.Append(nil), out, slot0, slot1)
	}
}

// The prompt of a request with a prefill server stands at both servers, and goes from both if the request fails.
func TestPromptStandsAtItsStages(t *testing.T) {
	both := messages.PromptPlaced{Request: 1, Endpoint: a1, Stages: messages.ListOf(b1), Model: "m", Blocks: prompt}
	for name, c := range map[string]struct {
		told []messages.PrefixMsg
		a, b int
	}{
		"placed":     {nil, 4, 4},
		"not served": {[]messages.PrefixMsg{messages.PromptEnded{Request: 1}}, 0, 0},
		"served": {[]messages.PrefixMsg{messages.PromptServed{Request: 1, Endpoint: a1},
			messages.PromptEnded{Request: 1}}, 4, 4},
		"failed": {[]messages.PrefixMsg{messages.PromptServed{Request: 1, Endpoint: a1},
			messages.PromptEnded{Request: 1, Failed: true}}, 0, 0},
		"moved to the stage": {[]messages.PrefixMsg{messages.PromptServed{Request: 1, Endpoint: b1},
			messages.PromptEnded{Request: 1}}, 0, 4},
		"served by a stranger": {[]messages.PrefixMsg{messages.PromptServed{Request: 1}}, 0, 0},
		"the stage has left": {[]messages.PrefixMsg{
			messages.DeparturesListed{Endpoints: messages.ListOf(b1)}, messages.PromptServed{Request: 1, Endpoint: a1},
			messages.PromptEnded{Request: 1, Failed: true}}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.actor.Tell(both)
			for _, m := range c.told {
				s.actor.Tell(m)
			}
			s.holds(prompt, c.a, c.b)
		})
	}
}

// The configuration of a request says how many blocks the index keeps for each endpoint.
func TestCapacityOfARequest(t *testing.T) {
	s := newScene(t)
	s.place(1, a1, prompt)
	s.actor.Tell(messages.PromptPlaced{Request: 2, Endpoint: a1, Model: "m",
		Sizes:  messages.PrefixSizes{Capacity: 2},
		Blocks: messages.ListOf[uint64](21, 22, 23)})
	s.holds(prompt, 0, 0)
	s.holds(messages.ListOf[uint64](21, 22, 23), 2, 0)
	s.place(3, a1, prompt)
	s.holds(prompt, 4, 0)
}

// While requests of two configurations run, the sizes of the newer one hold for the prompts of both.
func TestCapacityOfTheNewestConfigurationHolds(t *testing.T) {
	s := newScene(t)
	place := func(id messages.RequestID, configuration uint64, capacity int, blocks messages.List[uint64]) {
		s.actor.Tell(messages.PromptPlaced{Request: id, Endpoint: a1, Model: "m", Blocks: blocks,
			Sizes: messages.PrefixSizes{Capacity: capacity}, Configuration: configuration})
	}
	other := messages.ListOf[uint64](21, 22, 23)
	place(1, 1, 2, other)
	s.holds(other, 2, 0)
	place(2, 2, 10, prompt)
	place(3, 1, 2, other)
	s.holds(prompt, 4, 0)
	s.holds(other, 3, 0)
	s.actor.Tell(messages.PromptServed{Request: 3, Endpoint: b1})
	place(4, 3, 2, prompt)
	s.holds(prompt, 2, 0)
}

// An index keeps for an endpoint as much as the sizes of a request say, and as its page does at that moment.
func TestSizesFitTheCacheOfAnEndpoint(t *testing.T) {
	const tokens = 16
	long := messages.TakeList(make([]uint64, 0, 400))
	for i := range 400 {
		long = messages.TakeList(append(long.Append(nil), uint64(i+1)*0x9e3779b97f4a7c15))
	}
	for name, c := range map[string]struct {
		sizes  messages.PrefixSizes
		blocks float64 // of the cache; 0 = the page does not say
		counts int     // tokens of the prompt, as the server counts them; 0 = it has not told
		want   int     // blocks
	}{
		"it says nothing":  {messages.PrefixSizes{Capacity: 30, Tuned: true, Follows: true}, 0, 0, 30},
		"it is not asked":  {messages.PrefixSizes{Capacity: 30}, 120, 0, 30},
		"tuned":            {messages.PrefixSizes{Capacity: 30, Tuned: true}, 120, 0, 120},
		"followed":         {messages.PrefixSizes{Capacity: 30, Tuned: true, Follows: true}, 120, 0, 30},
		"of few bytes":     {messages.PrefixSizes{Follows: true}, 120, 400 * 128, 15},
		"of larger blocks": {messages.PrefixSizes{Capacity: 30, BlockTokens: 128}, 0, 0, 60},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.sizes = c.sizes
			if c.blocks > 0 {
				values := endpointstest.Told{attributes.KVBlockTokens: tokens, attributes.KVBlocks: c.blocks}.Values()
				endpoints.SampleWriter{
					Endpoint: s.servers.Snapshot().ByID(a1),
				}.Publish(
					&endpoints.Sample{Values: values},
				)
			}
			for id := messages.RequestID(1); c.counts > 0 && id < 200; id++ {
				s.place(id, b1, long)
				s.actor.Tell(messages.PromptServed{Request: id, Endpoint: b1})
				s.actor.Tell(messages.PromptEnded{Request: id, Prompt: messages.ReportedPrompt{PromptTokens: c.counts}})
			}
			s.place(1000, a1, long)
			if held := s.index.Held(a1.Slot); held != c.want {
				t.Errorf("%d blocks are held, want %d", held, c.want)
			}
		})
	}
}

// Of an index that does not follow caches nothing goes that answers show to be lost.
func TestLossesStayUnlessCachesAreFollowed(t *testing.T) {
	for _, follows := range []bool{true, false} {
		a := newAudited(t, server{room: 1 << 20, reports: true}, 20)
		a.sizes.Follows = follows
		a.server.holds = nil
		for i := range 8 {
			a.asks(i)
		}
		all, _ := a.credit()
		if lost, whole := a.counted(
			"signalbox_prefix_lost_blocks_total",
		) > 0, all == a.talks*(systemBlocks+talkBlocks); lost != follows ||
			whole == follows {
			t.Errorf("follows %t: some are lost: %t, credit for all: %t", follows, lost, whole)
		}
	}
}
