package prefix_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

// sessions are conversations of one server that all begin with the same system prompt.
type sessions struct {
	*audited
	shared, own int         // blocks of the system prompt, and of a conversation behind it at its start
	more        map[int]int // by conversation: blocks that have come since
	silent      bool        // answers are not seen
}

// newSessions has the server and the index hold all of so many conversations.
func newSessions(t *testing.T, shared, own, talks int, server server) *sessions {
	s := &sessions{audited: newAudited(t, server, 0), shared: shared, own: own, more: map[int]int{}}
	s.talks = talks
	for n := range talks {
		s.asks(n)
	}
	for range 2 * talks {
		s.asks(s.chance.IntN(talks))
	}
	return s
}

// prompt returns that of a conversation as it stands.
func (s *sessions) prompt(n int) (blocks []uint64) {
	for i := range s.shared + s.own + s.more[n] {
		b := uint64(i + 1)
		if i >= s.shared {
			b += uint64(n+1) << 32
		}
		b *= 0x9e3779b97f4a7c15
		blocks = append(blocks, b^b>>32)
	}
	return blocks
}

func (s *sessions) asks(n int) {
	blocks := s.prompt(n)
	if !s.silent {
		s.sends(blocks)
		return
	}
	s.last++
	s.place(s.last, a1, messages.ListOf(blocks...))
	s.actor.Tell(messages.PromptServed{Request: s.last, Endpoint: a1})
	s.server.serve(blocks)
	s.actor.Tell(messages.PromptEnded{Request: s.last})
}

// wrong returns for how many blocks of all conversations the index gives credit that the server does not hold, and how
// many it holds without credit.
func (s *sessions) wrong() (wrong, missing int) {
	for n := range s.talks {
		held, has := s.held(s.prompt(n)), s.server.lead(s.prompt(n))
		wrong, missing = wrong+max(0, held-has), missing+max(0, has-held)
	}
	return wrong, missing
}

// A server loses its cache, and has the system prompt of all conversations again after one answer, so that all later
// answers find half of their prompts and more. Of what stands behind it there is no wrong credit after 20 requests that
// count. A request counts if, when it was placed, the index held of its prompt what the server did not, and if its
// answer is seen and tells how many tokens were cached. Others, as new conversations, say nothing of what is lost.
// After several losses those count that come after the last one.
func TestLostTailIsNoticedBehindWhatIsCachedAgain(t *testing.T) {
	const length, talks = 60, 30
	again := func(s *sessions, _ int) int { return s.chance.IntN(s.talks) }
	goesOn := func(blocks int) func(s *sessions, i int) int {
		return func(s *sessions, _ int) int {
			n := s.chance.IntN(s.talks)
			s.more[n] += blocks
			return n
		}
	}
	for name, c := range map[string]struct {
		server server
		next   func(s *sessions, i int) int
		lose   func(s *sessions)
		losses []int // after how many requests that count, or without wrong credit, it loses all again
		silent int   // of as many answers one is seen; 0 = all are
	}{
		"repeated":                  {next: again},
		"the oldest first":          {next: func(_ *sessions, i int) int { return i % talks }},
		"the newest first":          {next: func(_ *sessions, i int) int { return talks - 1 - i%talks }},
		"conversations":             {next: goesOn(2)},
		"conversations, long turns": {next: goesOn(30)},
		"new ones in between": {next: func(s *sessions, i int) int {
			if i%2 == 0 {
				return 1000 + i
			}
			return s.chance.IntN(s.talks)
		}},
		"new ones before": {next: func(s *sessions, i int) int {
			if i < 40 {
				return 1000 + i
			}
			return s.chance.IntN(s.talks)
		}},
		"the beginning stays": {next: again, lose: func(s *sessions) {
			s.server.holds = s.server.holds[len(s.server.holds)-s.shared:]
		}},
		"the last ones stay": {next: goesOn(1), lose: func(s *sessions) {
			s.server.holds = s.server.holds[len(s.server.holds)-s.shared-4*s.own:]
		}},
		"three losses":           {next: again, losses: []int{2, 5}},
		"many losses":            {next: goesOn(1), losses: []int{3, 6, 9}},
		"two losses, with turns": {next: goesOn(30), losses: []int{3}},
		"none is not told":       {server: server{omits: true}, next: again},
		"some are seen": {next: func(s *sessions, i int) int {
			if i%3 > 0 { // these are not
				return 1000 + i
			}
			return s.chance.IntN(s.talks)
		}, silent: 3},
		"blocks of 64": {server: server{own: 64}, next: goesOn(2)},
		"few tokens":   {server: server{tokens: 40}, next: goesOn(2)},
		"many tokens":  {server: server{tokens: 170}, next: goesOn(2)},
	} {
		for _, shared := range []int{length / 2, length * 2 / 3, length * 3 / 4, length * 9 / 10} {
			t.Run(fmt.Sprintf("%s/%d of %d shared", name, shared, length), func(t *testing.T) {
				c.server.room, c.server.reports, c.server.own = 1<<20, true, cmp.Or(c.server.own, 16)
				s := newSessions(t, shared, length-shared, talks, c.server)
				if wrong, missing := s.wrong(); wrong+missing > 0 {
					t.Fatalf("before: %d blocks are wrong, %d are missing", wrong, missing)
				}
				if c.lose == nil {
					c.lose = func(s *sessions) { s.server.holds = nil }
				}
				s.noticesLosses(c.losses, c.lose, func(i int) int {
					s.silent = c.silent > 0 && i%c.silent > 0
					return c.next(s, i)
				})
				s.silent = false
				for n := range talks { // what the server computes anew stands again
					s.asks(n)
				}
				if wrong, missing := s.wrong(); wrong+missing > 0 {
					t.Errorf("once all came again: %d blocks are wrong, %d are missing", wrong, missing)
				}
			})
		}
	}
}

// noticesLosses has the server lose what lose takes from it, now and again after so many requests that count, or once
// nothing is wrong. It asks until nothing is wrong after the last loss, which it checks takes 20 requests that count.
func (s *sessions) noticesLosses(again []int, lose func(s *sessions), next func(i int) int) {
	s.t.Helper()
	lose(s)
	counted := 0
	for i := 0; ; i++ {
		wrong, _ := s.wrong()
		switch {
		case len(again) > 0 && (counted == again[0] || wrong == 0):
			lose(s)
			if again = again[1:]; len(again) == 0 {
				counted = 0
			}
		case wrong == 0:
			s.t.Logf("no wrong credit after %d requests, %d of which count", i, counted)
			return
		case counted == 20 || i == 400:
			s.t.Fatalf("after %d requests, %d of which count, %d blocks are wrong", i, counted, wrong)
		}
		n := next(i)
		if p := s.prompt(n); !s.silent && s.held(p) > s.server.lead(p) {
			counted++
		}
		s.asks(n)
	}
}

// A loss soon after another one, of which one answer has told, is noticed by prompts that came in between, also if they
// go on with long turns.
func TestLossAfterTheFirstMissIsNoticed(t *testing.T) {
	for _, turn := range []int{0, 30} {
		s := newSessions(t, 0, 30, 12, server{room: 1 << 20, reports: true, own: 16})
		s.server.holds = nil
		s.asks(0)
		for n := range s.talks - 1 {
			s.asks(1000 + n)
		}
		s.server.holds = nil
		for n := range 6 {
			s.more[1000+n] = turn
			s.asks(1000 + n)
		}
		if wrong, _ := s.wrong(); wrong > 0 || s.held(s.prompt(1010)) > 0 {
			t.Errorf("turns of %d: 6 answers after the second loss %d blocks are wrong, and %d of another prompt",
				turn, wrong, s.held(s.prompt(1010)))
		}
	}
}

// Of prompts that part from one another at many places all is found, and stays.
func TestHealthyServerKeepsItsCreditForATree(t *testing.T) {
	s := newSessions(t, 0, 64, 1, server{room: 1 << 20, reports: true, own: 16})
	trunk := s.prompt(0)
	for range 20 {
		for end := 56; end > 0; end -= 8 {
			s.sends(append(trunk[:end:end], s.prompt(end)[end:]...))
		}
		s.sends(trunk)
	}
	if lost := s.counted("signalbox_prefix_lost_blocks_total"); lost > 0 || s.held(trunk) != len(trunk) {
		t.Errorf("%v blocks were dropped, and credit for %d of %d is left", lost, s.held(trunk), len(trunk))
	}
}

// A server begins to render prompts otherwise behind their system prompt, which has half of them and more. That is a
// drift within 20 answers to prompts that the index held, and then there is no wrong credit while it lasts.
func TestDriftIsNoticedBehindWhatIsCommon(t *testing.T) {
	const length, talks = 120, 20
	for _, shared := range []int{length / 2, length * 2 / 3, length * 3 / 4, length * 9 / 10} {
		for turn := range 3 { // blocks by which conversations go on
			t.Run(fmt.Sprintf("%d of %d shared, turns of %d", shared, length, turn), func(t *testing.T) {
				s := newSessions(t, shared, length-shared, talks, server{room: 1 << 20, reports: true, own: 16})
				s.server.drifts, s.server.kept = true, shared
				counted, asked := 0, 0
				for ; asked < 100; asked++ {
					due := s.drifts() || counted == 20
					if wrong, _ := s.wrong(); due && (wrong > 0 || !s.drifts()) {
						t.Fatalf("after %d answers, %d to prompts that the index held, %d blocks are wrong, drifts: %t",
							asked, counted, wrong, s.drifts())
					}
					n := s.chance.IntN(talks / 4)
					if held := s.held(s.prompt(n)); held > shared {
						counted++
					}
					s.more[n] += turn
					s.asks(n)
				}
				if held := s.held(s.prompt(0)); held > shared || held < shared-1 {
					t.Errorf("credit for %d blocks, want %d, or one less", held, shared)
				}
				t.Logf("after %d answers that count", counted)
			})
		}
	}
}

// A server that loses nothing keeps its credit for conversations behind a system prompt that all have in common,
// whatever tokens it makes of them, whatever blocks it has, and however long their turns are.
func TestHealthyServerKeepsItsCreditBehindWhatIsCommon(t *testing.T) {
	const requests, talks = 150, 8
	for name, c := range map[string]struct {
		engine
		common, tail, turn int // tokens of each block
		shared, own, most  int // blocks of the system prompt, of a conversation at first, and of a turn at most
	}{
		"small blocks":             {engine{blockTokens: 16}, 57, 57, 57, 20, 6, 4},
		"repeated":                 {engine{blockTokens: 16}, 57, 57, 57, 20, 6, 0},
		"long turns":               {engine{blockTokens: 16}, 57, 57, 57, 20, 6, 40},
		"turns of another script":  {engine{blockTokens: 16}, 57, 57, 170, 20, 6, 20},
		"another script, common":   {engine{blockTokens: 16}, 170, 57, 57, 20, 6, 10},
		"another script, behind":   {engine{blockTokens: 16}, 57, 170, 57, 20, 6, 10},
		"few tokens behind":        {engine{blockTokens: 16}, 57, 32, 120, 20, 8, 20},
		"blocks of a CPU":          {engine{blockTokens: 128}, 57, 57, 90, 20, 6, 20},
		"blocks of a hybrid model": {engine{blockTokens: 544}, 57, 57, 90, 20, 20, 20},
		"wide, another script":     {engine{blockTokens: 544}, 57, 170, 40, 20, 12, 20},
		"a template":               {engine{blockTokens: 16, template: 40}, 57, 40, 90, 20, 6, 10},
		"short conversations":      {engine{blockTokens: 32}, 57, 57, 57, 20, 2, 1},
		"mostly common":            {engine{blockTokens: 16}, 57, 70, 57, 90, 4, 6},
	} {
		for _, warm := range []bool{false, true} { // it has had all of it before the picker was started
			t.Run(fmt.Sprintf("%s/warm %t", name, warm), func(t *testing.T) {
				s, chance := newScene(t), rand.New(rand.NewPCG(7, 7))
				e := engine{blockTokens: c.blockTokens, template: c.template, holds: map[token]bool{}}
				grown := make([]int, requests)
				prompt := func(which int) (parts []part) {
					for i := range c.shared {
						parts = append(parts, part{uint64(i + 1), c.common})
					}
					for i := range c.own + grown[which] {
						p := part{uint64(which+1)<<32 + uint64(i), c.tail}
						if i >= c.own {
							p.tokens = c.turn
						}
						parts = append(parts, p)
					}
					return parts
				}
				for which := range talks {
					if warm {
						e.serve(prompt(which))
					}
				}
				for n := range requests {
					which := chance.IntN(talks)
					if grown[which] > 100 || n%20 == 19 {
						which = n // a new one
					}
					parts := prompt(which)
					s.sendsParts(messages.RequestID(n+1), &e, parts)
					grown[which] += chance.IntN(c.most + 1)
				}
				if lost := s.counted("signalbox_prefix_lost_blocks_total"); lost > 0 {
					t.Errorf("%v of %v blocks were dropped, want none", lost,
						s.counted("signalbox_prefix_entered_blocks_total"))
				}
			})
		}
	}
}

// sendsParts has a prompt placed, served by an engine and reported.
func (s *scene) sendsParts(id messages.RequestID, e *engine, prompt []part) {
	blocks := make([]uint64, len(prompt))
	for i, p := range prompt {
		blocks[i] = p.id
	}
	s.place(id, a1, messages.ListOf(blocks...))
	s.actor.Tell(messages.PromptServed{Request: id, Endpoint: a1})
	s.actor.Tell(messages.PromptEnded{Request: id, Prompt: e.serve(prompt)})
}
