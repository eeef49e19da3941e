package policybench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Sessions says what generated sessions are like: those of an agent, whose prompts begin with tools and a system prompt
// and grow with each turn.
type Sessions struct {
	Count    int
	Pairs    int     // of tools and system prompt; 1 = a universal prefix
	Front    int     // tokens of a pair
	First    int     // median tokens of the first prompt behind it
	Turns    int     // mean number
	Grows    int     // median tokens that a turn adds
	Output   int     // median tokens of an answer
	Think    float64 // median seconds
	Rewrites float64 // share of turns that keep only half of what came before
}

// coding is about what sessions of a coding agent are like.
var coding = Sessions{
	Count: 300, Pairs: 40, Front: 15_000, First: 24_000, Turns: 60, Grows: 900, Output: 216, Think: 10, Rewrites: .02,
}

// Generate returns sessions. Equal seeds give equal ones.
func (s Sessions) Generate(name string, seed uint64) *Trace {
	r := rand.New(rand.NewPCG(seed, 11))
	t := &Trace{Name: name}
	for range s.Count {
		pair := r.IntN(s.Pairs)
		one := Session{Tools: s.Front*4/5 + pair*blockTokens, System: s.Front/5 + pair}
		prompt := one.Tools + one.System + spread(r, s.First, .8)
		for range 1 + int(r.ExpFloat64()*float64(s.Turns)) {
			if prompt > longest {
				break
			}
			turn := s.turn(r, &one, prompt)
			one.Turns = append(one.Turns, turn)
			prompt += turn.Output + spread(r, s.Grows, .8)
		}
		t.Sessions = append(t.Sessions, one)
	}
	return t
}

// turn returns the next turn of a session.
func (s Sessions) turn(r *rand.Rand, one *Session, prompt int) Turn {
	turn := Turn{Prompt: prompt, Output: spread(r, s.Output, 1), Blocks: prompt / blockTokens, Back: -1}
	if len(one.Turns) == 0 {
		return turn
	}
	turn.Back, turn.Shared = 1, one.Turns[len(one.Turns)-1].Blocks
	turn.Think = time.Duration(s.Think * math.Exp(r.NormFloat64()*1.5) * float64(time.Second))
	if r.Float64() < s.Rewrites {
		turn.Shared /= 2
	}
	return turn
}

// longest is the longest prompt that is generated.
const longest = 400_000

// spread draws from a log-normal distribution.
func spread(r *rand.Rand, median int, sigma float64) int {
	return max(1, int(float64(median)*math.Exp(r.NormFloat64()*sigma)))
}

// Groups says what generated requests of an open loop are like: each has one of the prefixes of its kind in front of a
// question of its own.
type Groups struct {
	Count  int
	Rate   float64 // requests a second
	Kinds  []Kind
	Own    int     // median tokens of the question
	Output int     // median tokens of an answer
	Bursts float64 // share of requests that come in bursts of ten within a second
}

// Kind is a kind of prefixes.
type Kind struct {
	Share  float64 // of the requests
	Number int     // prefixes; 0 = none is used twice
	Prefix int     // tokens of each
}

// Generate returns requests. Equal seeds give equal ones.
func (g Groups) Generate(name string, seed uint64) *Trace {
	r := rand.New(rand.NewPCG(seed, 13))
	t := &Trace{Name: name}
	at, burst := time.Duration(0), 0
	for i := range g.Count {
		kind := g.draw(r)
		k := g.Kinds[kind]
		prefix := uint64(i) + 1<<32
		if k.Number > 0 {
			prefix = uint64(r.IntN(k.Number))
		}
		q := Request{
			At:          at,
			Prompt:      k.Prefix + spread(r, g.Own, .5),
			Output:      spread(r, g.Output, .7),
			BlockTokens: blockTokens,
		}
		for b := range q.Prompt / blockTokens {
			if b < k.Prefix/blockTokens {
				q.Blocks = append(q.Blocks, mix(prefix<<8+uint64(kind), uint64(b))>>24)
			} else {
				q.Blocks = append(q.Blocks, mix(uint64(i)+1<<33, uint64(b))>>24)
			}
		}
		t.Requests = append(t.Requests, q)
		if burst > 0 {
			burst--
			at += 100 * time.Millisecond
			continue
		}
		if r.Float64() < g.Bursts/10 {
			burst = 9
		}
		at += time.Duration(r.ExpFloat64() / g.Rate * float64(time.Second))
	}
	return t
}

func (g Groups) draw(r *rand.Rand) int {
	x := r.Float64()
	for i, k := range g.Kinds {
		if x -= k.Share; x < 0 {
			return i
		}
	}
	return len(g.Kinds) - 1
}

// Traces are the traces that are played: one of sessions, and one of requests. What is not given is generated.
type Traces struct {
	Sessions *Trace
	Requests *Trace
}

// chats is about what conversations of an open loop are like: 512 tokens in front of all, histories of some thousand
// tokens that a few requests have in common, and prompts of their own.
var chats = Groups{
	Count:  8000,
	Rate:   4,
	Own:    3000,
	Output: 150,
	Bursts: .2,
	Kinds: []Kind{
		{Share: .25, Number: 8, Prefix: 12_288},
		{Share: .5, Number: 800, Prefix: 16_384},
		{Share: .25, Prefix: 8192},
	},
}

func (t Traces) filled() Traces {
	if t.Sessions == nil {
		t.Sessions = coding.Generate("generated sessions", 1)
	}
	if t.Requests == nil {
		t.Requests = chats.Generate("generated requests", 1)
	}
	return t
}

// Add adds a trace.
func (t *Traces) Add(trace *Trace) error {
	into := &t.Requests
	if trace.Sessions != nil {
		into = &t.Sessions
	}
	if *into != nil {
		return fmt.Errorf(
			"%s: of the same kind as %s; want one trace of sessions and one of requests",
			trace.Name,
			(*into).Name,
		)
	}
	*into = trace
	return nil
}
