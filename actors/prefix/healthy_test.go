package prefix_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

// part is a block of a prompt as the index sees it, and the tokens that a server makes of its bytes.
type part struct {
	id     uint64
	tokens int
}

// token is one of a prompt: which of a part, where the prompt has its end.
type token struct {
	part uint64
	at   int
}

// engine is a model server that loses nothing. It keeps whole blocks of so many tokens, and reports those that it has.
type engine struct {
	blockTokens int
	template    int // tokens that stand before every prompt
	holds       map[token]bool
}

func (e *engine) serve(prompt []part) messages.ReportedPrompt {
	var tokens []token
	for i := range e.template {
		tokens = append(tokens, token{at: i})
	}
	for _, p := range prompt {
		for i := range p.tokens {
			tokens = append(tokens, token{p.id, i})
		}
	}
	report, whole := messages.ReportedPrompt{API: messages.ChatAPI, PromptTokens: len(tokens), CachedKnown: true}, true
	for end := e.blockTokens; end <= len(tokens); end += e.blockTokens {
		last := tokens[end-1] // what stands before it is the same wherever it stands
		if whole = whole && e.holds[last] && end < len(tokens); whole {
			report.CachedTokens = end
		}
		e.holds[last] = true
	}
	return report
}

// A server that loses nothing keeps its credit, however short the prompts are that come again, whatever tokens it makes
// of them, and whatever blocks it has.
func TestHealthyServerKeepsItsCredit(t *testing.T) {
	const requests, prompts = 250, 12
	for name, c := range map[string]struct {
		engine
		begin, tail int // tokens of each block
		most        int // blocks that come again
		odd         int // tokens of each block of one prompt of them; 0 = as the others
	}{
		"small blocks":              {engine{blockTokens: 16}, 57, 57, 6, 0},
		"blocks of a CPU":           {engine{blockTokens: 128}, 57, 57, 6, 0},
		"blocks of a hybrid model":  {engine{blockTokens: 544}, 57, 57, 12, 0},
		"few tokens":                {engine{blockTokens: 16}, 32, 32, 6, 0},
		"another script behind":     {engine{blockTokens: 16}, 57, 170, 6, 0},
		"another script, wide":      {engine{blockTokens: 128}, 57, 170, 6, 0},
		"another script before":     {engine{blockTokens: 16}, 170, 57, 6, 0},
		"a template":                {engine{blockTokens: 16, template: 40}, 57, 57, 6, 0},
		"a template, wide":          {engine{blockTokens: 128, template: 40}, 57, 90, 6, 0},
		"a small vocabulary":        {engine{blockTokens: 32}, 170, 170, 6, 0},
		"a small vocabulary, wide":  {engine{blockTokens: 256, template: 40}, 170, 120, 6, 0},
		"one of another script":     {engine{blockTokens: 16}, 170, 170, 12, 32},
		"long ones of other script": {engine{blockTokens: 64}, 57, 170, 40, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, chance := newScene(t), rand.New(rand.NewPCG(7, 7))
			c.holds = map[token]bool{}
			for n := range requests {
				which := chance.IntN(prompts)
				var prompt []part
				begin := c.begin
				if c.odd > 0 && which == 0 {
					begin = c.odd
				}
				for i := range 2 + which%(c.most-1) {
					prompt = append(prompt, part{uint64(which+1)<<32 + uint64(i), begin})
				}
				for i := range 1 + chance.IntN(30) {
					prompt = append(prompt, part{uint64(n+1)<<48 + uint64(i), c.tail})
				}
				s.sendsParts(messages.RequestID(n+1), &c.engine, prompt)
			}
			lost, entered := s.counted("signalbox_prefix_lost_blocks_total"),
				s.counted("signalbox_prefix_entered_blocks_total")
			t.Logf("%v of %v blocks were dropped", lost, entered)
			if lost >= entered/100 {
				t.Errorf("%v of %v blocks were dropped, want less than 1%%", lost, entered)
			}
		})
	}
}

// A server that is reset, or whose cache is small, keeps its credit: after nearly every answer the index holds of the
// last prompts what the server does, whether or not one of them comes again in time to show it.
func TestHealthyServerKeepsItsCreditThroughLosses(t *testing.T) {
	const answers, talk = 600, talkBlocks + systemBlocks
	again := func(each, before int) func(int) int { // now and then a prompt of some time ago
		return func(i int) int {
			if i%each == 0 && i >= before {
				return i - before
			}
			return i
		}
	}
	resets := func(i int) bool { return i == 100 || i == 500 }
	for name, c := range map[string]struct {
		room  int // prompts
		next  func(i int) int
		reset func(i int) bool
	}{
		"retries after two resets": {60, func(i int) int {
			if resets(i - 1) {
				return i - 20
			}
			return i
		}, resets},
		"retries after each of many resets": {60, again(40, 2), func(i int) bool { return i%40 == 39 }},
		"one after each of three in a row":  {60, again(6, 3), func(i int) bool { return i < 20 && i%6 == 5 }},
		"older ones than it keeps":          {40, again(10, 101), nil},
		"older ones than a small one keeps": {6, again(10, 8), nil},
		"in turn, of more than it keeps":    {6, func(i int) int { return i % 8 }, nil},
		"retries of many ages":              {6, func(i int) int { return max(i-i*7%11, 0) }, nil},
		"all at random, half is kept":       {20, func(i int) int { return i * i * 7919 % 10007 % 40 }, nil},
	} {
		for _, shared := range []int{0, talk / 3, talk * 2 / 3} {
			t.Run(fmt.Sprintf("%s/%d of %d shared", name, shared, talk), func(t *testing.T) {
				a := newAudited(t, server{room: shared + c.room*(talk-shared), reports: true}, 8)
				denied := 0
				for i := range answers {
					if c.reset != nil && c.reset(i) {
						a.server.holds = nil
					}
					a.sends(sharing(shared, 1000+c.next(i)))
					for before := range min(4, i+1) {
						if p := sharing(shared, 1000+c.next(i-before)); a.held(p) < a.server.lead(p) {
							denied++
							break
						}
					}
				}
				t.Logf("after %d of %d answers right credit was missing", denied, answers)
				if denied > 20 {
					t.Errorf("after %d of %d answers right credit was missing", denied, answers)
				}
			})
		}
	}
}

// A server that was taken for one that drifts, and gets no prompt again that could show otherwise, has its credit back
// after 1000 answers.
func TestDriftIsPutToTheTestAgain(t *testing.T) {
	a := newAudited(t, server{room: 1000, reports: true}, 8)
	a.sends(sharing(0, 999))
	for range 3 {
		a.server.holds = nil
		a.sends(sharing(0, 999))
	}
	if !a.drifts() {
		t.Fatal("three losses of a prompt that was just computed are no drift")
	}
	for i := range 1001 {
		if a.sends(sharing(0, 1000+i)); i < 1000 != a.drifts() {
			t.Fatalf("%d answers later it drifts: %t", i+1, a.drifts())
		}
	}
	if got := a.held(sharing(0, 2000)); got != systemBlocks+talkBlocks {
		t.Errorf("then credit for %d blocks of the last prompt, want %d", got, systemBlocks+talkBlocks)
	}
}
