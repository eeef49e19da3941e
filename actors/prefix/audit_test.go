package prefix_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	systemBlocks = 10 // that all conversations begin with
	talkBlocks   = 20 // behind them, in each
	blockTokens  = 64
)

// server is a model server with a prefix cache, which keeps what was used last.
type server struct {
	holds   []uint64 // the least recently used first
	room    int      // blocks that it holds at most
	reports bool     // answers have cached tokens
	omits   bool     // not if there are none
	tokens  int      // of a block; 0 = blockTokens
	own     int      // tokens of its own blocks, if those of prompts vary by a quarter; 0 = as those
	drifts  bool     // it renders each prompt anew behind the first kept blocks, so that it finds no more of it
	kept    int
}

// serve answers a prompt. It returns the tokens that were cached.
func (s *server) serve(blocks []uint64) messages.ReportedPrompt {
	report := messages.ReportedPrompt{API: messages.ChatAPI, PromptTokens: s.count(blocks) + 7}
	if s.reports {
		report.CachedTokens = s.count(blocks[:s.lead(blocks)])
		report.CachedTokens -= report.CachedTokens % max(s.own, 1)
		report.CachedKnown = report.CachedTokens > 0 || !s.omits
	}
	asked := map[uint64]bool{}
	for _, b := range blocks {
		asked[b] = true
	}
	s.holds = slices.DeleteFunc(s.holds, func(held uint64) bool { return asked[held] })
	for _, b := range slices.Backward(blocks) { // a block is used after its successors
		s.holds = append(s.holds, b)
	}
	s.holds = s.holds[max(0, len(s.holds)-s.room):]
	return report
}

// count returns how many tokens blocks have.
func (s *server) count(blocks []uint64) (tokens int) {
	each := cmp.Or(s.tokens, blockTokens)
	for _, b := range blocks {
		if tokens += each; s.own > 0 {
			tokens += int(b>>40)%(each/2+1) - each/4
		}
	}
	return tokens
}

// lead returns how many lead blocks of a prompt it holds.
func (s *server) lead(blocks []uint64) int {
	at := map[uint64]int{}
	for i, b := range blocks {
		at[b] = i + 1
	}
	held := make([]bool, len(blocks)+1) // one more, which is not
	for _, b := range s.holds {
		if i := at[b]; i > 0 {
			held[i-1] = !s.drifts || i <= s.kept
		}
	}
	return slices.Index(held, false)
}

// talk returns the prompt of a conversation.
func talk(n int) []uint64 { return sharing(systemBlocks, n) }

// sharing returns a prompt of as many blocks, of which so many are those of all.
func sharing(shared, n int) []uint64 {
	var blocks []uint64
	for i := range systemBlocks + talkBlocks {
		b := uint64(i + 1)
		if i >= shared {
			b += uint64(n+1) << 32
		}
		b *= 0x9e3779b97f4a7c15 // as hashes are, for the index
		blocks = append(blocks, b^b>>32)
	}
	return blocks
}

// audited is the actor and one server at a1, with conversations that come again and again.
type audited struct {
	*scene
	server server
	talks  int
	last   messages.RequestID
	chance *rand.Rand
}

func newAudited(t *testing.T, server server, talks int) *audited {
	t.Helper()
	a := &audited{scene: newScene(t), server: server, talks: talks, chance: rand.New(rand.NewPCG(7, 7))}
	for n := range talks {
		a.asks(n)
	}
	for range talks {
		a.asks(a.chance.IntN(talks))
	}
	return a
}

// asks has a conversation go on: its prompt is placed, served and reported.
func (a *audited) asks(n int) { a.sends(talk(n)) }

// sends has a prompt placed, served and reported.
func (a *audited) sends(blocks []uint64) {
	a.last++
	a.place(a.last, a1, messages.ListOf(blocks...))
	a.actor.Tell(messages.PromptServed{Request: a.last, Endpoint: a1})
	a.actor.Tell(messages.PromptEnded{Request: a.last, Prompt: a.server.serve(blocks)})
}

// credit returns for how many blocks of all conversations the index gives credit, and how many of these the server
// does not hold.
func (a *audited) credit() (all, wrong int) {
	for n := range a.talks {
		held := a.held(talk(n))
		all += held
		wrong += max(0, held-a.server.lead(talk(n)))
	}
	return all, wrong
}

// held returns how many blocks of a prompt the index gives credit for.
func (a *audited) held(blocks []uint64) int {
	out := make([]int, 1)
	a.index.Match(blockindex.Prompt{Model: "m", Blocks: messages.ListOf(blocks...)}, out)
	return out[0]
}

func (a *audited) drifts() bool { return a.servers.Snapshot().ByID(a1).Prefix().Drifts }

// A server that loses its cache has no wrong credit after 20 answers to prompts of which the index held what it has
// lost.
// Others, as to new prompts behind a beginning that it has computed again, say nothing of the rest.
func TestLostCacheIsNoticedWithin20Answers(t *testing.T) {
	for name, c := range map[string]struct {
		talks  int
		tokens int // of a block
		next   func(a *audited, i int) int
	}{
		"drawn":               {40, 64, drawn},
		"the newest first":    {40, 64, func(a *audited, i int) int { return a.talks - 1 - i }},
		"the oldest first":    {40, 64, func(_ *audited, i int) int { return i }},
		"new ones in between": {40, 64, func(a *audited, i int) int { return i/2 + i%2*1000 }},
		"all new ones before": {40, 64, func(_ *audited, i int) int {
			if i < 60 {
				return 1000 + i
			}
			return i - 60
		}},
		"few":                   {6, 64, inTurn},
		"of few tokens":         {40, 32, drawn},
		"of many tokens":        {40, 170, drawn},
		"many tokens, the last": {40, 170, func(a *audited, i int) int { return a.talks - 1 - i }},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAudited(t, server{room: 1 << 20, reports: true, tokens: c.tokens}, c.talks)
			if all, wrong := a.credit(); all != c.talks*(systemBlocks+talkBlocks) || wrong != 0 {
				t.Fatalf("before: credit for %d blocks, %d of them wrong", all, wrong)
			}
			a.server.holds = nil
			if _, wrong := a.credit(); wrong == 0 {
				t.Fatal("nothing is wrong after the loss")
			}
			counted := 0
			for i := 0; ; i++ {
				if _, wrong := a.credit(); wrong == 0 {
					t.Logf("no wrong credit after %d answers, %d of which count", i, counted)
					break
				} else if counted == 20 || i == 100 {
					t.Fatalf("after %d answers, %d of which count, credit for %d blocks is wrong", i, counted, wrong)
				}
				n := c.next(a, i)
				if a.held(talk(n)) > a.server.lead(talk(n)) {
					counted++
				}
				a.asks(n)
			}
			for n := range c.talks { // what the server learns anew stands again
				a.asks(n)
			}
			if all, wrong := a.credit(); all != c.talks*(systemBlocks+talkBlocks) || wrong != 0 {
				t.Errorf("once all came again: credit for %d blocks, %d of them wrong", all, wrong)
			}
		})
	}
}

func drawn(a *audited, _ int) int  { return a.chance.IntN(a.talks) }
func inTurn(a *audited, i int) int { return i % a.talks }
func eight(_ *audited, i int) int  { return i % 8 }

// A server begins to render prompts otherwise each time, from some block on. Within 20 answers to prompts that the
// index held it has no wrong credit, and gets none until it finds again what it computed. Then the credit is back, and
// the next loss is noticed, too.
func TestDriftIsNoticedWithin20Answers(t *testing.T) {
	for name, c := range map[string]struct {
		kept, tokens, talks int
		next                func(a *audited, i int) int
	}{
		"in front":              {0, 64, 40, eight},
		"from the start":        {0, 64, 3, inTurn},
		"in front, drawn":       {0, 64, 40, drawn},
		"few tokens":            {0, 32, 40, eight},
		"one talk":              {0, 64, 40, func(*audited, int) int { return 0 }},
		"behind the system's":   {systemBlocks, 64, 40, drawn},
		"with new ones between": {systemBlocks, 64, 40, func(_ *audited, i int) int { return i/2%4 + i%2*1000*(i+1) }},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAudited(t, server{room: 1 << 20, reports: true, tokens: c.tokens}, c.talks)
			a.server.drifts, a.server.kept = true, c.kept
			asked, held := 0, 0
			for ; held < 20 && !a.drifts(); asked++ {
				n := c.next(a, asked)
				if a.held(talk(n)) == systemBlocks+talkBlocks {
					held++
				}
				a.asks(n)
			}
			t.Logf("noticed after %d answers, %d of them to prompts that the index held", asked, held)
			for begin := asked; asked < begin+200; asked++ {
				if asked%10 == begin%10 {
					all, wrong := a.credit()
					if wrong != 0 || !a.drifts() || asked > begin+100 && all < c.kept*9/10*c.talks {
						t.Fatalf("after %d answers credit for %d blocks, %d of them wrong, drifts: %t", asked, all,
							wrong, a.drifts())
					}
				}
				a.server.reports = asked%3 > 0 // of the others nothing is known
				a.asks(c.next(a, asked))
			}
			a.server.drifts, a.server.reports = false, true
			for range 2 {
				for n := range c.talks {
					a.asks(n)
				}
			}
			if all, wrong := a.credit(); a.drifts() || wrong != 0 || all != c.talks*(systemBlocks+talkBlocks) {
				t.Errorf("once it finds all again: %d blocks, %d of them wrong, drifts: %t", all, wrong, a.drifts())
			}
			a.server.holds = nil
			for i := range 20 {
				a.asks(drawn(a, i))
			}
			if _, wrong := a.credit(); wrong != 0 {
				t.Errorf("20 requests after a loss %d blocks are wrong", wrong)
			}
		})
	}
}

// Tokens that the bytes of a prompt do not tell, of a picture behind a long text, are no drift where only the text is
// cached; without a picture they are, and also where no 0 is reported there is none.
func TestTokensOfMediaAreNoDrift(t *testing.T) {
	for name, c := range map[string]struct {
		report messages.ReportedPrompt
		drifts bool
	}{
		"a picture": {
			messages.ReportedPrompt{PromptTokens: 9000, Media: 1, CachedTokens: 1900, CachedKnown: true}, false},
		"text alone": {messages.ReportedPrompt{PromptTokens: 9000, CachedTokens: 1900, CachedKnown: true}, true},
		"no report":  {messages.ReportedPrompt{PromptTokens: 9000}, false},
	} {
		a := newAudited(t, server{room: 1 << 20, reports: true}, 8)
		c.report.API = messages.ChatAPI
		for range 6 {
			a.last++
			a.place(a.last, a1, messages.ListOf(talk(1)...))
			a.actor.Tell(messages.PromptServed{Request: a.last, Endpoint: a1})
			a.actor.Tell(messages.PromptEnded{Request: a.last, Prompt: c.report})
		}
		if got := a.servers.Snapshot().ByID(a1).Prefix().Drifts; got != c.drifts {
			t.Errorf("%s: drifts %t, want %t", name, got, c.drifts)
		}
	}
}

// Credit that is right stays: with a server that reports, with one that does not, and with one that reports no more
// after it was lost. Of a server that has never written a 0, no report is one of none.
func TestAuditLeavesWhatIsThere(t *testing.T) {
	for name, c := range map[string]struct {
		reports, omits, lose, silent, drops bool
	}{
		"all is there":               {reports: true},
		"all is there, without 0":    {reports: true, omits: true},
		"no reports":                 {},
		"no reports, and lost":       {lose: true},
		"reports end with a loss":    {reports: true, lose: true, silent: true},
		"lost, without 0":            {reports: true, omits: true, lose: true, drops: true},
		"no 0, and they end with it": {reports: true, omits: true, lose: true, silent: true, drops: true},
		"lost":                       {reports: true, lose: true, drops: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAudited(t, server{room: 1 << 20, reports: c.reports, omits: c.omits}, 20)
			if c.lose {
				a.server.holds, a.server.reports = nil, c.reports && !c.silent
			}
			for range 3 {
				for n := range a.talks {
					a.asks(n)
				}
			}
			if all, wrong := a.credit(); all != a.talks*(systemBlocks+talkBlocks) || wrong != 0 {
				t.Errorf("credit for %d blocks, %d of them wrong", all, wrong)
			}
			lost := a.counted("signalbox_prefix_lost_blocks_total")
			if dropped := lost > 0; dropped != c.drops {
				t.Errorf("%v blocks were dropped as lost, want some: %t", lost, c.drops)
			}
		})
	}
}

// counted returns the value of a counter.
func (s *scene) counted(name string) float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	s.t.Fatalf("there is no metric %s", name)
	return 0
}

// What others still compute is not expected of a server: a burst of equal prompts is no loss.
func TestAuditDoesNotExpectWhatIsBeingComputed(t *testing.T) {
	a := newAudited(t, server{room: 1 << 20, reports: true}, 5)
	before, _ := a.credit()
	const first, burst = 1000, 12
	blocks := talk(77)
	for id := range burst {
		a.place(messages.RequestID(first+id), a1, messages.ListOf(blocks...))
		a.actor.Tell(messages.PromptServed{Request: messages.RequestID(first + id), Endpoint: a1})
	}
	for id := range burst { // each began before another one had ended, and found the beginning of all alone
		a.actor.Tell(messages.PromptEnded{Request: messages.RequestID(first + id), Prompt: messages.ReportedPrompt{
			API: messages.ChatAPI, PromptTokens: len(blocks)*blockTokens + 7, CachedTokens: systemBlocks * blockTokens,
		}})
	}
	if after, _ := a.credit(); after != before || a.counted("signalbox_prefix_lost_blocks_total") != 0 {
		t.Errorf("credit for %d blocks, before %d", after, before)
	}
	if predicted, reported := a.counted("signalbox_prefix_predicted_tokens_total"),
		a.counted("signalbox_prefix_reported_tokens_total"); predicted < reported*0.9 || predicted > reported {
		t.Errorf("%v tokens predicted, %v reported, want about as many", predicted, reported)
	}
}

// A server whose cache is smaller than the index evicts what it used the longest time ago. That credit goes, and what
// it holds stays.
func TestAuditFollowsASmallerCache(t *testing.T) {
	const kept = 10 // conversations that the server has room for
	a := newAudited(t, server{room: systemBlocks + kept*talkBlocks, reports: true}, 40)
	for range 400 { // half of all requests go on with one of the last
		n := a.chance.IntN(a.talks)
		if a.chance.IntN(2) == 0 {
			n = n % (kept / 2)
		}
		a.asks(n)
	}
	all, wrong := a.credit()
	held := 0
	for n := range a.talks {
		held += a.server.lead(talk(n))
	}
	t.Logf("the server holds %d blocks of all prompts; credit for %d, of which %d are wrong", held, all, wrong)
	if right := all - wrong; right < held*8/10 || wrong > a.talks*talkBlocks/2 {
		t.Errorf("credit for %d of %d blocks that are there, and for %d that are not", right, held, wrong)
	}
}

// What audits find is counted of the endpoint, and of no other one.
func TestAuditsAreCountedByEndpoint(t *testing.T) {
	a := newAudited(t, server{room: 1 << 20, reports: true}, 20)
	snapshot := a.servers.Snapshot()
	before := snapshot.ByID(a1).Prefix()
	if before.ReportedTokens == 0 || before.PredictedTokens < before.ReportedTokens*9/10 ||
		before.PredictedTokens > before.ReportedTokens || before.LostBlocks != 0 {
		t.Errorf("found of a server that loses nothing: %+v", before)
	}
	a.server.holds = nil
	for n := range a.talks {
		a.asks(n)
	}
	after := snapshot.ByID(a1).Prefix()
	if float64(after.PredictedTokens) != a.counted("signalbox_prefix_predicted_tokens_total") ||
		float64(after.ReportedTokens) != a.counted("signalbox_prefix_reported_tokens_total") ||
		float64(after.LostBlocks) != a.counted("signalbox_prefix_lost_blocks_total") || after.LostBlocks == 0 {
		t.Errorf("found of a server that has lost its cache: %+v, which are not the totals", after)
	}
	if other := snapshot.ByID(b1).Prefix(); other != (endpoints.Audited{}) {
		t.Errorf("found of a server without requests: %+v", other)
	}
}

// A server that says how large its blocks are is not judged by prompts that may have none of them.
func TestAuditTakesTheBlocksOfTheServer(t *testing.T) {
	for tokens, dropped := range map[int]bool{16: true, 1024: false} {
		a := newAudited(t, server{room: 1 << 20, reports: true}, 20)
		values := endpointstest.Told{attributes.KVBlockTokens: tokens}.Values()
		endpoints.SampleWriter{Endpoint: a.servers.Snapshot().ByID(a1)}.Publish(&endpoints.Sample{Values: values})
		a.server.holds = nil
		for n := range a.talks {
			a.asks(n)
		}
		if lost := a.counted("signalbox_prefix_lost_blocks_total"); lost > 0 != dropped {
			t.Errorf("blocks of %d tokens: %v were dropped, want some: %t", tokens, lost, dropped)
		}
	}
}

// What a server has lost gives no credit, but it is still where its conversations were placed.
func TestHomesOutliveALostCache(t *testing.T) {
	a := newAudited(t, server{room: 1 << 20, reports: true}, 40)
	a.server.holds = nil
	for i := 0; ; i++ {
		if _, wrong := a.credit(); wrong == 0 {
			break
		} else if i == 100 {
			t.Fatal("the loss is not noticed")
		}
		a.asks(a.chance.IntN(a.talks))
	}
	lost := 0
	for n := range a.talks {
		out := make([]int, 1)
		p := blockindex.Prompt{Model: "m", Blocks: messages.ListOf(talk(n)...)}
		if a.index.Homes(p, out); out[0] != systemBlocks+talkBlocks {
			t.Errorf("conversation %d is at home with %d blocks, want all", n, out[0])
		}
		if a.index.Credit(p, 0, out[0]) < out[0] {
			lost++
		}
	}
	if lost == 0 {
		t.Error("no conversation has lost credit")
	}
}
