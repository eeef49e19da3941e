// Package affinity plays conversations, in virtual time, to simulated servers of which one goes away and returns, and
// counts which servers served them and how soon. It holds one configuration against another;
// nothing of the machine has an effect.
package affinity

import (
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

const bytesPerToken = 4

// Load is what is played, and to what.
type Load struct {
	Servers       int
	Engine        batch.Config
	Conversations int           // at once; one that ends is followed by another
	Groups        int           // of conversations that share a system prompt
	SystemTokens  int           // of that prompt
	FirstTokens   int           // of the first turn, such as a document that is talked about
	TurnTokens    int           // that each turn adds to the prompt
	AnswerTokens  int           // of each answer
	Turns         int           // of a conversation
	Think         time.Duration // mean, between an answer and the next turn; exponential
	Scrape        time.Duration // between two metrics pages
	Length        time.Duration
	Away, Back    time.Duration // when the first server goes and returns; both 0 = it stays
	Seed          uint64
}

// server is one model server and what the picker knows of it.
type server struct {
	core     *batch.Core
	endpoint *endpoints.Endpoint
	open     map[uint64]*request
	gone     bool
	woken    time.Time // by an event that is due then
}

// request is one turn on its way.
type request struct {
	talk   *talk
	prompt blockindex.Prompt
	tokens int
	at     *server
	pick   endpoints.Pick
	entry  blockindex.Entry
	key    uint64
	began  time.Time
	first  time.Time
}

// talk is one conversation.
type talk struct {
	text string
	turn int
}

// world is everything there is.
type world struct {
	load      Load
	plan      *schedule.Plan
	scheduler *schedule.Scheduler
	index     *blockindex.Index
	tokens    *batch.Tokens
	servers   []*server
	snap      *endpoints.Snapshot
	slots     uint32
	rand      *rand.Rand
	began     time.Time
	now       time.Time
	due       events
	serial    int
	systems   []string
	done      []Answer
}

// Answer is what became of one turn.
type Answer struct {
	Began, TTFT, Duration       time.Duration
	Server, Prompt, Cached, Out int
}

type event struct {
	at     time.Time
	serial int
	do     func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].serial < e[j].serial
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// Play plays a load with one plan.
func Play(load Load, plan *schedule.Plan) []Answer {
	w := &world{
		load: load, plan: plan, index: blockindex.NewIndex(0), tokens: batch.NewTokens(bytesPerToken),
		rand: rand.New(rand.NewPCG(load.Seed, 1)), began: time.Unix(1_800_000_000, 0),
	}
	w.now = w.began
	w.scheduler = schedule.NewScheduler(schedule.Tools{
		Clock: still{}, Matcher: w.index, Rand: rand.New(rand.NewPCG(load.Seed, 2)),
	})
	for range load.Servers {
		w.servers = append(w.servers, &server{})
	}
	for i := range w.servers {
		w.start(i)
		w.scrape(i)
	}
	for range load.Groups {
		w.systems = append(w.systems, w.words(load.SystemTokens))
	}
	for i := range load.Conversations {
		w.after(time.Duration(i)*load.Think/time.Duration(load.Conversations), w.begin)
	}
	if load.Back > 0 {
		w.after(load.Away, func() { w.leave(0) })
		w.after(load.Back, func() {
			w.start(0)
		})
	}
	for len(w.due) > 0 && w.now.Sub(w.began) < load.Length {
		e := heap.Pop(&w.due).(event)
		w.now = e.at
		e.do()
	}
	return w.done
}

func (w *world) after(d time.Duration, do func()) {
	w.serial++
	heap.Push(&w.due, event{w.now.Add(d), w.serial, do})
}

// start makes a server, cold, and a new incarnation of its endpoint.
func (w *world) start(i int) {
	core, err := batch.New(w.load.Engine, w.tokens)
	if err != nil {
		panic(err) // only loads written in this package come here
	}
	spec := messages.EndpointSpec{Address: messages.Address(fmt.Sprintf("10.0.0.%d:80", i))}
	e := endpoints.New(messages.EndpointID{Slot: w.slots, Generation: 1}, spec)
	w.slots++
	*w.servers[i] = server{core: core, endpoint: e, open: map[uint64]*request{}}
	w.sample(w.servers[i])
	w.publish()
}

// leave ends a server with all that it was doing. Its clients ask again at once.
func (w *world) leave(i int) {
	s := w.servers[i]
	s.gone = true
	w.publish()
	for _, id := range slices.Sorted(maps.Keys(s.open)) {
		w.ask(s.open[id].talk)
	}
}

func (w *world) publish() {
	var all []*endpoints.Endpoint
	for _, s := range w.servers {
		if s.endpoint != nil && !s.gone {
			all = append(all, s.endpoint)
		}
	}
	w.snap = endpoints.NewSnapshot(uint64(w.serial), all)
}

// scrape reads a server's page, again and again.
func (w *world) scrape(i int) {
	if s := w.servers[i]; !s.gone {
		w.sample(s)
	}
	w.after(w.load.Scrape, func() { w.scrape(i) })
}

func (w *world) sample(s *server) {
	scraped := endpoints.SampleWriter{Endpoint: s.endpoint}
	number := scraped.BeginScrape()
	w.advance(s)
	stats := s.core.Stats()
	scraped.Publish(&endpoints.Sample{
		At: w.now, Interval: w.load.Scrape, Number: number,
		Values: endpointstest.Load(stats.Waiting, stats.Running, stats.KVUsedRatio),
	})
	scraped.SampleInForce(number)
}

// begin starts a conversation in the place of one that ended.
func (w *world) begin() {
	w.say(&talk{text: w.systems[w.rand.IntN(len(w.systems))] + w.words(w.load.FirstTokens)})
}

// say adds a turn to a conversation and asks for its answer.
func (w *world) say(t *talk) {
	t.text += w.words(w.load.TurnTokens/2 + w.rand.IntN(w.load.TurnTokens))
	w.ask(t)
}

// ask picks a server for a conversation's next turn.
func (w *world) ask(t *talk) {
	h := blockindex.NewHasher(0)
	h.Write([]byte(t.text))
	prompt := w.tokens.Encode(nil, t.text)
	req := &messages.Request{ID: 1, Model: "m", PromptTokens: len(prompt), Blocks: h.Blocks(), Rest: h.Rest()}
	req.Blocks = w.plan.Counted(req)
	out := w.scheduler.Run(w.plan, req, nil, w.snap, w.now)
	if len(out.Ranked) == 0 {
		panic(out.Detail) // one server is always there
	}
	r := &request{talk: t, prompt: blockindex.Prompt{Model: "m", Blocks: req.Blocks}, tokens: len(prompt), began: w.now}
	r.at = w.servers[slices.IndexFunc(w.servers, func(s *server) bool { return s.endpoint == out.Ranked[0] })]
	r.pick = endpoints.LoadWriter{Endpoint: r.at.endpoint}.Add(endpoints.Work{Prompt: len(prompt)}, time.Time{})
	r.entry = w.index.Enter(r.at.endpoint.ID.Slot, r.prompt)
	answer := w.load.AnswerTokens/2 + w.rand.IntN(w.load.AnswerTokens)
	w.advance(r.at)
	id, key := r.at.core.Submit(w.now, batch.Request{Prompt: prompt, MaxTokens: answer, IgnoreEnd: true,
		Variant: w.rand.Uint64()})
	r.key = key
	r.at.open[id] = r
	w.wake(r.at)
}

// wake has an engine go on when its step is over.
func (w *world) wake(s *server) {
	at, busy := s.core.NextEvent()
	if !busy || at.Equal(s.woken) {
		return
	}
	s.woken = at
	core := s.core
	w.after(at.Sub(w.now), func() {
		if s.core == core && !s.gone {
			w.advance(s)
			w.wake(s)
		}
	})
}

// advance takes what came out of an engine.
func (w *world) advance(s *server) {
	for _, p := range s.core.Advance(w.now) {
		r := s.open[p.ID]
		if r == nil {
			continue
		}
		if r.first.IsZero() && p.Generated > 0 {
			r.first = w.now
		}
		if p.Ended != batch.Running {
			delete(s.open, p.ID)
			w.answered(r, p)
		}
	}
}

func (w *world) answered(r *request, p batch.Progress) {
	endpoints.LoadWriter{Endpoint: r.at.endpoint}.Remove(r.pick)
	w.index.Refresh(r.at.endpoint.ID.Slot, r.prompt, r.entry)
	w.done = append(w.done, Answer{
		Began: r.began.Sub(w.began), TTFT: r.first.Sub(r.began), Duration: w.now.Sub(r.began),
		Server: slices.Index(w.servers, r.at),
		Prompt: r.tokens, Cached: p.Cached, Out: p.Generated,
	})
	t := r.talk
	for i := range p.Generated {
		t.text += w.tokens.Word(r.key, i)
	}
	t.turn++
	think := time.Duration(w.rand.ExpFloat64() * float64(w.load.Think))
	if t.turn >= w.load.Turns {
		w.after(think, w.begin)
		return
	}
	w.after(think, func() { w.say(t) })
}

// words is made-up text of so many tokens.
func (w *world) words(tokens int) string {
	b := make([]byte, tokens*bytesPerToken)
	for i := range b {
		b[i] = byte('a' + w.rand.IntN(26))
	}
	return string(b)
}

// still is a clock that stands and an observer that keeps nothing.
type still struct{}

func (still) Nanos() int64                 { return 0 }
func (still) PluginRan(int, time.Duration) {}
func (still) PluginDecided(int, int)       {}
func (still) ScoreNaN(int)                 {}
func (still) ScoreClamped(int)             {}
func (still) AllStale()                    {}

func (still) RunFailed(string, messages.Reason) {}
func (still) ShadowPicked(string, bool)         {}
