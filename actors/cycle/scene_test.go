package cycle_test

import (
	"cmp"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	queueLimit = 60 * time.Second
	pickLimit  = time.Second
	idleLimit  = 15 * time.Minute
	logLimit   = 20 * time.Minute
	tokenLimit = time.Minute
)

var (
	first, second = endpoint(0, 1, "10.0.0.1:8000"), endpoint(1, 2, "10.0.0.2:8000")
	hello         = messages.Request{
		ID: 7, ClientID: "mine", Model: "m", Salt: "s", Stream: true, PromptTokens: 12, BodyBytes: 100,
		Blocks: messages.ListOf[uint64](1, 2), Media: 1,
	}
	line = messages.FlowKey{Fairness: messages.DefaultFairness}
)

func endpoint(slot, generation uint32, a messages.Address) messages.EndpointID {
	addresses[messages.EndpointID{Slot: slot, Generation: generation}] = a
	return messages.EndpointID{Slot: slot, Generation: generation}
}

var addresses = map[messages.EndpointID]messages.Address{}

// prefixBlocks is what the plan has the prefix index keep for each endpoint.
const prefixBlocks = 777

// scene is one cycle among probes, with two real endpoints of which the plan ranks the first best.
type scene struct {
	*testing.T
	cycle   *runtimetest.Stage[messages.CycleMsg]
	actor   *cycle.Cycle // on it
	stream  *runtimetest.Probe[messages.StreamMsg]
	prefix  *runtimetest.Probe[messages.PrefixMsg]
	memory  *runtimetest.Probe[messages.MemoryMsg]
	outlier *runtimetest.Probe[messages.OutlierMsg]
	window  *runtimetest.Probe[messages.WindowMsg]
	pool    *endpoints.Published
	book    *records.Book
	reg     *prometheus.Registry
	ended   []messages.Record
	plan    *schedule.Plan
	asked   messages.Request
	began   time.Time
	coming  messages.RequestArrived
	clock   steps
	scores  bool          // the stream is told scores
	logged  time.Duration // as in cycle.Limits; 0 = logLimit

	line     flow.Line
	ceilings flow.Ceilings
	traffic  flow.Traffic
	capacity *runtimetest.Probe[messages.CapacityMsg]
	queueing *flow.Settings // nil = the plan has no gate
	matcher  schedule.Matcher

	estimates *records.Estimates
	families  *cycle.Families
}

func newScene(t *testing.T) *scene {
	s := &scene{
		T: t, cycle: runtimetest.NewStage[messages.CycleMsg](t),
		stream: runtimetest.NewProbe[messages.StreamMsg](t), prefix: runtimetest.NewProbe[messages.PrefixMsg](t),
		outlier: runtimetest.NewProbe[messages.OutlierMsg](t), memory: runtimetest.NewProbe[messages.MemoryMsg](t),
		pool: endpoints.NewPublished(), book: records.NewBook(16, 1<<20), estimates: records.NewEstimates(),
		reg: prometheus.NewRegistry(), asked: hello, capacity: runtimetest.NewProbe[messages.CapacityMsg](t),
		window: runtimetest.NewProbe[messages.WindowMsg](t),
	}
	endpoints.Publisher{Published: s.pool}.Publish(endpoints.NewSnapshot(3, []*endpoints.Endpoint{
		endpoints.New(first, messages.EndpointSpec{Address: addresses[first]}),
		endpoints.New(second, messages.EndpointSpec{Address: addresses[second]}),
	}), nil)
	s.plan = schedule.NewPlan([]schedule.Profile{{
		Name: "default", Picker: schedule.PickerStep{Step: schedule.Step{Name: "all"}, Picker: inOrder{}},
	}}, nil, once{}, 0)
	s.plan.KeepPrefixes(messages.PrefixSizes{Capacity: prefixBlocks}, 0)
	s.families = cycle.NewFamilies(s.reg, s.pool, "pool")
	s.families.Served("m")
	s.play()
	return s
}

// play begins another cycle on the same stage.
func (s *scene) play() {
	s.actor = cycle.New(&cycle.Deps{
		Bell: flow.Bell{Line: &s.line, To: s.capacity}, Traffic: &s.traffic,
		Prefix: s.prefix, Memory: s.memory, Outlier: s.outlier, Window: s.window, Pool: s.pool, Book: s.book,
		Estimates: s.estimates, Status: status,
		Scheduler: schedule.NewScheduler(schedule.Tools{
			Clock: &s.clock, Rand: rand.New(rand.NewPCG(1, 1)), Ceilings: &s.ceilings, Matcher: s.matcher,
		}),
		Limits: cycle.Limits{
			Queue: queueLimit, Pick: pickLimit, FirstToken: tokenLimit, ResponseIdle: idleLimit,
			Logged: cmp.Or(s.logged, logLimit),
		},
		Metrics: s.families, EmitScores: s.scores,
		Report: func(r *messages.Record) { s.ended = append(s.ended, *r) },
	}, s.plan, s.queueing)
	s.cycle.Play(s.actor)
}

// ready has the request be the next one to arrive, whose whole life may take limit.
func (s *scene) ready(limit time.Duration) {
	s.Helper()
	s.began = s.cycle.Clock()
	s.coming = messages.RequestArrived{
		Request: s.asked, Flow: line, ArrivedAt: s.began, Deadline: s.began.Add(limit), Connection: 1, Stream: s.stream,
	}
}

// arrive brings the request that is ready.
func (s *scene) arrive() {
	s.Helper()
	s.cycle.Tell(s.coming)
}

// asks returns what the cycle says of its wait.
func (s *scene) asks() messages.WaitRequested {
	return messages.WaitRequested{
		Request: 7, Flow: line, Bytes: 100, Prompt: 12, Arrived: s.began, Deadline: s.began.Add(queueLimit),
		Cycle: s.cycle, Model: "m",
	}
}

// coming returns a scene whose request is about to arrive.
func coming(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	s.ready(24 * time.Hour)
	return s
}

// waiting returns a scene whose request waits behind others.
func waiting(t *testing.T) *scene {
	t.Helper()
	s := gated(t)
	flow.LineWriter{Line: &s.line}.Set(1, 0)
	s.arrive()
	s.capacity.Got(s.lacks())
	s.load(0, 0)
	flow.LineWriter{Line: &s.line}.Set(0, 0)
	return s
}

// serving returns a scene whose cycle has picked the first endpoint.
func serving(t *testing.T) *scene {
	t.Helper()
	s := coming(t)
	s.arrive()
	s.stream.Got(messages.PickMade{Destinations: messages.ListOf(addresses[first], addresses[second])})
	s.prefix.Got(messages.PromptPlaced{Request: 7, Endpoint: first, Model: "m", Salt: "s", Blocks: hello.Blocks,
		Sizes: messages.PrefixSizes{Capacity: prefixBlocks}})
	s.load(1, 0)
	return s
}

func (s *scene) load(want ...int) {
	s.Helper()
	s.carries(12, want)
}

// answering is load of requests whose first token has come: their prompts are computed.
func (s *scene) answering(want ...int) {
	s.Helper()
	s.carries(0, want)
}

func (s *scene) carries(tokens int, want []int) {
	s.Helper()
	for i, e := range s.pool.Snapshot().Endpoints {
		carried := endpoints.Counters{Inflight: want[i], Tokens: tokens * want[i], Since: want[i]}
		if got := e.Counters(); got != carried {
			s.Errorf("endpoint %d: %+v, want %+v", i, got, carried)
		}
	}
}

// over checks that everything was given back once, and that the ended cycle takes no message. It returns the record.
func (s *scene) over(why messages.Reason) messages.Record {
	s.Helper()
	s.load(0, 0)
	return s.recorded(why)
}

func (s *scene) recorded(why messages.Reason) messages.Record {
	s.Helper()
	if !s.cycle.Ended() || s.cycle.Tell(messages.Dispatched{}) || s.cycle.Timers() != 0 || s.book.Live() != 0 {
		s.Errorf("ended %t, timers %d, live %d", s.cycle.Ended(), s.cycle.Timers(), s.book.Live())
	}
	if len(s.ended) != 1 {
		s.Fatalf("%d records reported, want 1", len(s.ended))
	}
	r := s.ended[0]
	if kept := s.book.Newest(9, nil, func(*messages.Record) bool { return true }); len(kept) != 1 ||
		kept[0].Reason != r.Reason {
		s.Errorf("the book holds %+v", kept)
	}
	if r.Reason != why || r.Request != 7 || r.ClientID != "mine" || r.Model != "m" || r.Flow != line || r.Running {
		s.Errorf("record %+v, want reason %v", r, why)
	}
	return r
}

// metric returns the sum of a family's counters and gauges.
func (s *scene) metric(name string) float64 {
	s.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		s.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// status returns a made-up HTTP status.
func status(why messages.Reason) int { return 700 + int(why) }

type once struct{}

func (once) Next(c *schedule.Course) schedule.Run { return schedule.Run{Profile: -c.Results().Len()} }

func (once) Primary(*schedule.Course) int { return 0 }

type inOrder struct{}

func (inOrder) Pick(in *schedule.Input, _ []float32, ranked []int) []int {
	for i := range in.Candidates().Len() {
		ranked = append(ranked, i)
	}
	return ranked
}

type pickFunc func() []int

func (f pickFunc) Pick(*schedule.Input, []float32, []int) []int { return f() }

type none struct{}

func (none) Filter(_ *schedule.Input, keep []bool) { clear(keep) }

// steps is a clock that moves by a step each time it is read.
type steps struct{ now, step int64 }

func (c *steps) Nanos() int64 {
	c.now += c.step
	return c.now
}
