package affinity

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// random, reference: what the default is held against.
const (
	head = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n"

	random    = head + "- type: random-picker\n"
	reference = head + `- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
`
)

// ours has an affinity that yields. Requests never wait here: no server has a window.
var ours = strings.Replace(reference, "- type: prefix-cache-scorer",
	"- {type: prefix-cache-scorer, parameters: {yieldAboveRequests: 8}}", 1)

// engine computes as fast as a mid-sized model on one GPU.
var engine = batch.Config{
	MaxRunning: 128, MaxBatchedTokens: 4096, KVBlocks: 32768, BlockTokens: 16, AnswerTokens: 200,
	PrefillTokensPerSecond: 12_000, DecodeTokensPerSecond: 60, BatchSlowdown: 0.015,
}

// chats are conversations that begin and end, in groups with a system prompt each.
func chats(servers, conversations int) Load {
	return Load{
		Servers: servers, Engine: engine, Conversations: conversations, Groups: 8, SystemTokens: 600, TurnTokens: 200,
		AnswerTokens: 200, Turns: 8, Think: 4 * time.Second, Scrape: 500 * time.Millisecond, Length: 100 * time.Second,
	}
}

// long are conversations that do not end, each about a text of its own,
// on two servers of which the first is away for a while.
func long(conversations, batch int) Load {
	l := Load{
		Servers: 2, Engine: engine, Conversations: conversations, Groups: 8, SystemTokens: 200, FirstTokens: 2500,
		TurnTokens:   60,
		AnswerTokens: 100, Turns: 1000, Think: 2 * time.Second, Scrape: 500 * time.Millisecond,
		Length: 110 * time.Second,
		Away:   30 * time.Second, Back: 50 * time.Second,
	}
	l.Engine.MaxRunning = batch
	return l
}

// figures sum up the answers of some time.
type figures struct {
	onFirst, hits, tokens float64 // shares of the first server and of cached prompt tokens; tokens a second
	mean, p90             time.Duration
}

// between sums up what was asked from one time to another.
func between(answers []Answer, from, to time.Duration) figures {
	var first, prompt, cached, out int
	var all []time.Duration
	var sum time.Duration
	for _, a := range answers {
		if a.Began < from || a.Began >= to {
			continue
		}
		if a.Server == 0 {
			first++
		}
		prompt, cached, out = prompt+a.Prompt, cached+a.Cached, out+a.Out
		all, sum = append(all, a.TTFT), sum+a.TTFT
	}
	slices.Sort(all)
	n := len(all)
	return figures{
		onFirst: float64(first) / float64(n), hits: float64(cached) / float64(prompt),
		tokens: float64(out) / (to - from).Seconds(),
		mean:   sum / time.Duration(n), p90: all[n*9/10],
	}
}

func plan(t *testing.T, text string) *schedule.Plan {
	t.Helper()
	settings := config.Settings{Destinations: 1, Stale: 5 * time.Second}
	c, err := config.Load([]byte(text), settings)
	if err != nil {
		t.Fatal(err)
	}
	return c.Plan
}

// compare plays a load with the default, the reference's default, and random picking,
// and prints the figures of some time of it.
func compare(t *testing.T, l Load, from, to time.Duration) (standard, theirs, none figures) {
	t.Helper()
	var table strings.Builder
	rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "\ton the first\tfirst token, mean\tp90\ttokens/s\tcached")
	var all []figures
	for _, c := range []struct{ name, text string }{{"default", ours}, {"reference's", reference}, {"random", random}} {
		f := between(Play(l, plan(t, c.text)), from, to)
		fmt.Fprintf(rows, "%s\t%.0f %%\t%d ms\t%d ms\t%.0f\t%.2f\n", c.name, 100*f.onFirst, f.mean.Milliseconds(),
			f.p90.Milliseconds(), f.tokens, f.hits)
		all = append(all, f)
	}
	rows.Flush()
	t.Logf("from %v to %v\n%s", from, to, table.String())
	return all[0], all[1], all[2]
}

// A server that was away gets conversations again while the other one has a queue, and answers come sooner for that.
func TestConversationsReturn(t *testing.T) {
	l := long(60, 16)
	got, theirs, _ := compare(t, l, l.Back+15*time.Second, l.Length)
	if got.onFirst < 0.3 || got.mean > theirs.mean/2 || got.tokens < 1.3*theirs.tokens {
		t.Errorf("%+v; want 0.3 on the first, half of the time to first token, and 1.3 times the tokens of %+v", got,
			theirs)
	}
}

// Conversations that share one long system prompt do not all go to the server that had it first.
func TestOneSystemPromptFillsBothServers(t *testing.T) {
	l := chats(2, 64)
	l.Groups, l.SystemTokens, l.Engine.MaxRunning = 1, 3000, 24
	got, theirs, _ := compare(t, l, l.Length/4, l.Length)
	if got.onFirst < 0.4 || got.onFirst > 0.6 || got.mean > theirs.mean/2 {
		t.Errorf("%+v; want half on the first, and half of the time to first token of %+v", got, theirs)
	}
}

// While no server has much more to do than another, affinity is what it was.
func TestAffinityOfBusyServersIsKept(t *testing.T) {
	steady := long(60, 128)
	steady.Away, steady.Back, steady.Length = 0, 0, 60*time.Second
	for name, l := range map[string]Load{"2 servers": chats(2, 64), "4 servers": chats(4, 120), "long": steady} {
		t.Run(name, func(t *testing.T) {
			got, theirs, none := compare(t, l, l.Length/4, l.Length)
			if got.hits < theirs.hits-0.04 || got.hits < none.hits+0.04 || got.tokens < 0.95*theirs.tokens {
				t.Errorf("%+v; want the hits and tokens of %+v, and more hits than %+v", got, theirs, none)
			}
		})
	}
}
