package demo

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Headers by which a request says whose it is, and what it is for.
const (
	fairnessHeader  = "X-Llm-D-Inference-Fairness-Id"
	objectiveHeader = "X-Llm-D-Inference-Objective"
)

// flow is what one tenant sends for one objective.
type flow struct {
	tenant, objective string
	perSecond         float64 // requests, in the mean
	prompt, answer    span    // tokens
}

// span is a range of numbers, both ends included.
type span struct{ from, to int }

func (s span) draw(r *rand.Rand) int { return s.from + r.IntN(s.to-s.from+1) }

func (f *flow) name() string { return f.tenant + " " + f.objective }

// flows are those of two tenants. All but the greedy batch takes about half of the servers; with it, twice as much is
// asked for as they have.
var flows = []flow{
	{"modest", "chat", 3, span{50, 250}, span{12, 36}},
	{"greedy", "chat", 3, span{50, 250}, span{12, 36}},
	{"modest", "batch", 2.4, span{100, 400}, span{30, 70}},
	{"greedy", "batch", 12, span{100, 400}, span{30, 70}},
}

const (
	chats       = 2 // the first of the flows
	modestBatch = 2
)

// order is a request that is sent when its time has come, whatever became of those before.
type order struct {
	At           time.Duration // since the load began
	Flow         int           // of flows
	Text         string
	AnswerTokens int
}

// newOrders is the same for the same seed and length, in order of time.
func newOrders(seed uint64, length time.Duration) []order {
	var all []order
	for i, f := range flows {
		r := rand.New(rand.NewPCG(seed, 0x6f766572+uint64(i)))
		for at := time.Duration(0); ; {
			at += time.Duration(r.ExpFloat64() / f.perSecond * float64(time.Second))
			if at >= length {
				break
			}
			all = append(all, order{at, i, madeUp(r, f.prompt.draw(r)), f.answer.draw(r)})
		}
	}
	slices.SortStableFunc(all, func(a, b order) int { return int(a.At - b.At) })
	return all
}

// outcome is what became of the requests of a flow: Served, Cut, Failed and Refused together are Sent at the end, and
// never more.
type outcome struct {
	Sent, Served, Cut, Failed int
	Refused                   map[string]int  // by reason
	TTFT                      []time.Duration // of served and cut requests, as player has them
	Tokens                    int             // of served answers
}

func (o *outcome) refused() int {
	n := 0
	for _, count := range o.Refused {
		n += count
	}
	return n
}

// crowd sends orders to one proxy, and keeps what became of them.
type crowd struct {
	asker
	mu      sync.Mutex
	flows   []outcome
	problem error // the first
}

func newCrowd(url string) *crowd {
	c := &crowd{asker: newAsker(url, openRequests), flows: make([]outcome, len(flows))}
	for i := range c.flows {
		c.flows[i].Refused = map[string]int{}
	}
	return c
}

// play returns when every request has ended, or ctx has.
func (c *crowd) play(ctx context.Context, load []order) {
	var open sync.WaitGroup
	began := time.Now()
	for _, o := range load {
		if !sleep(ctx, o.At-time.Since(began)) {
			break
		}
		open.Go(func() { c.ask(ctx, o) })
	}
	open.Wait()
	c.client.CloseIdleConnections()
}

// ask sends one request and counts it.
func (c *crowd) ask(ctx context.Context, o order) {
	out, f := &c.flows[o.Flow], flows[o.Flow]
	c.mu.Lock()
	out.Sent++
	c.mu.Unlock()
	began := time.Now()
	answer, err := c.exchange(ctx, question{
		model: baseModel, said: []chatMessage{{"user", o.Text}}, tokens: o.AnswerTokens,
		header: http.Header{fairnessHeader: {f.tenant}, objectiveHeader: {f.objective}},
	})
	var no *refusal
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		out.Served++
		out.Tokens += answer.tokens
		out.TTFT = append(out.TTFT, answer.first.Sub(began))
	case ctx.Err() != nil:
		out.Cut++
		out.TTFT = append(out.TTFT, answer.waited(began))
	case errors.As(err, &no) && no.reason != "":
		out.Refused[no.reason]++
	default:
		out.Failed++
		if c.problem == nil {
			c.problem = err
		}
	}
}
