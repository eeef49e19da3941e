package overload

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
	"github.com/signalbox-epp/signalbox/messages"
)

var (
	seeds  = flag.Int("seeds", fewSeeds, "how many seeds each comparison is played with; figures are from 5")
	detail = flag.Bool("looks", false, "print what there is every ten seconds")
)

// medium computes as fast as a mid-sized model on one GPU, and large as a small model on a large one.
var (
	medium = batch.Config{
		MaxRunning: 64, MaxBatchedTokens: 4096, KVBlocks: 32768, BlockTokens: 16, AnswerTokens: 200,
		PrefillTokensPerSecond: 12_000, DecodeTokensPerSecond: 60, BatchSlowdown: 0.01,
	}
	large = batch.Config{
		MaxRunning: 256, MaxBatchedTokens: 8192, KVBlocks: 40_000, BlockTokens: 16, AnswerTokens: 200,
		PrefillTokensPerSecond: 35_000, DecodeTokensPerSecond: 150, BatchSlowdown: 0.002,
	}
)

const (
	head = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n- type: queue-scorer\n" +
		"- type: kv-cache-utilization-scorer\n- type: active-request-scorer\n"
	ungated = head
	// gated has no parameters but the wait: clients of these plays wait for as long as it takes.
	gated = head + "- type: round-robin-fairness-policy\nfeatureGates: [flowControl]\nflowControl:\n" +
		"  defaultRequestTTL: 10m\n" +
		"  defaultPriorityBand: {maxRequests: 20k, fairnessPolicyRef: round-robin-fairness-policy}\n" +
		"objectives: [{name: high, priority: 10}, {name: low, priority: -10}]\n"
)

func servers(n int, engine batch.Config) []Server {
	return slices.Repeat([]Server{{Engine: engine}}, n)
}

func flow(name string, priority int) messages.FlowKey {
	return messages.FlowKey{Fairness: name, Priority: priority}
}

// figures sum up some time of a play.
type figures struct {
	tokens float64       // of prompts and answers, that servers computed in a second
	p50    time.Duration // to the first token
	p99    time.Duration
	mean   time.Duration
	queue  int // 95th percentile of those that waited at a server
	most   int // that ever waited at a server
	served int
	lost   int // requests that were refused
}

// between sums up what came and what ended from one time to another, of the sources with a name; "" = all.
func (r *Result) between(name string, from, to time.Duration) figures {
	var f figures
	var ttfts []time.Duration
	var sum time.Duration
	for _, a := range r.Answers {
		if name != "" && a.Source != name {
			continue
		}
		if a.Ended > 0 && a.Ended >= from && a.Ended < to {
			f.served++
		}
		switch {
		case a.Came < from || a.Came >= to:
		case a.Reason != messages.NoReason:
			f.lost++
		case a.TTFT > 0:
			ttfts, sum = append(ttfts, a.TTFT), sum+a.TTFT
		default: // it still waits
			ttfts = append(ttfts, math.MaxInt64)
		}
	}
	if slices.Sort(ttfts); len(ttfts) > 0 {
		f.p50, f.p99 = ttfts[len(ttfts)/2], ttfts[len(ttfts)*99/100]
		f.mean = sum / time.Duration(len(ttfts))
	}
	var queues []int
	var first, last *Look
	for i := range r.Looks {
		if l := &r.Looks[i]; l.At >= from && l.At < to {
			queues = append(queues, l.Queues...)
			if last = l; first == nil {
				first = l
			}
		}
	}
	if first != nil && last.At > first.At {
		f.tokens = (last.Work - first.Work) / (last.At - first.At).Seconds()
	}
	if slices.Sort(queues); len(queues) > 0 {
		f.queue, f.most = queues[len(queues)*95/100], queues[len(queues)-1]
	}
	return f
}

// bound returns what is asked of means over five seeds or more, and of those over few.
func bound(many, few float64) float64 {
	if *seeds >= 5 {
		return many
	}
	return few
}

// played plays with each seed.
func played(t *testing.T, p Play) []*Result {
	t.Helper()
	var all []*Result
	for seed := range *seeds {
		p.Seed = uint64(seed + 1)
		r, err := Run(p)
		if err != nil {
			t.Fatal(err)
		}
		if *detail {
			t.Log(r.looks())
		}
		all = append(all, r)
	}
	return all
}

// looks tells what there was every ten seconds.
func (r *Result) looks() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nat\twait\tqueues\trun\twindows\tin flight\tKV")
	for i, l := range r.Looks {
		if i%100 == 0 || i < 40 && i%4 == 0 {
			fmt.Fprintf(w, "%v\t%d\t%v\t%v\t%v\t%v\t%.2f\n", l.At, l.Waiting, l.Queues, l.Running, l.Windows,
				l.Inflight, l.KVUsed)
		}
	}
	w.Flush()
	return b.String()
}

// interval is a mean over seeds, and half of its 95 % confidence interval.
type interval struct{ mean, half float64 }

func (i interval) String() string { return fmt.Sprintf("%.3f ± %.3f", i.mean, i.half) }

// over returns the interval of a figure over seeds.
func over(n int, figure func(seed int) float64) interval {
	var sum, squares float64
	for i := range n {
		x := figure(i)
		sum += x
		squares += x * x
	}
	mean := sum / float64(n)
	if n < 2 {
		return interval{mean, 0}
	}
	variance := max(squares-float64(n)*mean*mean, 0) / float64(n-1)
	student := []float64{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26}[min(n-2, 8)]
	return interval{mean, student * math.Sqrt(variance/float64(n))}
}

// ratio returns the interval of a figure of the one plays by that of the others, seed by seed.
func ratio(of, by []*Result, figure func(*Result) float64) interval {
	return over(len(of), func(i int) float64 { return figure(of[i]) / figure(by[i]) })
}

// decode and prefill are loads at twice what two medium servers can serve.
var (
	decode  = Source{Name: "decode", Rate: 18, Prompt: Length{400, 300}, Output: Length{400, 300}}
	prefill = Source{Name: "prefill", Rate: 12, Prompt: Length{4000, 2000}, Output: Length{50, 30}}
)

// least and late bound what one class at twice the capacity may lose, by what is the same without flow control. That
// servers of long prompts have no more than a second of them ahead costs a part of a step now and then.
var (
	least = map[string]float64{"decode": .99, "prefill": .98}
	late  = map[string]float64{"decode": 1.02, "prefill": 1.05}

	// lateByCost is late for expected-completion, with which the slowest of long prompts have a longer tail here.
	lateByCost = map[string]float64{"decode": 1.02, "prefill": 1.2}
)

// One class of requests at twice the capacity has nothing to gain from waiting here: it must not lose either.
func TestOneClassLosesNothing(t *testing.T) {
	for _, source := range []Source{decode, prefill} {
		for _, light := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, light %v", source.Name, light), func(t *testing.T) {
				source.Flow = flow("a", 0)
				p := Play{Length: 200 * time.Second, Servers: servers(2, medium), Load: []Source{source}, Light: light}
				p.Text = ungated
				without := played(t, p)
				p.Text = gated
				with := played(t, p)
				work := ratio(with, without, func(r *Result) float64 {
					return r.between("", 20*time.Second, p.Length).tokens
				})
				ttft := ratio(with, without, func(r *Result) float64 {
					return r.between("", 20*time.Second, 80*time.Second).p99.Seconds()
				})
				queue := over(len(with), func(i int) float64 {
					return float64(with[i].between("", 20*time.Second, p.Length).queue)
				})
				t.Logf("tokens %v, p99 to first token %v, p95 of the servers' queues %v", work, ttft, queue)
				if work.mean < least[source.Name] || ttft.mean > late[source.Name] || queue.mean > 6 {
					t.Errorf("want %v of the tokens, %v of the time to first token, and 6 waiting",
						least[source.Name], late[source.Name])
				}
			})
		}
	}
}

// Neither does the configuration that holds without a file, while requests wait for less than it lets them.
func TestDefaultLosesNothing(t *testing.T) {
	for _, source := range []Source{decode, prefill} {
		for _, light := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, light %v", source.Name, light), func(t *testing.T) {
				source.Flow = flow("a", 0)
				p := Play{Length: 130 * time.Second, Servers: servers(2, medium), Load: []Source{source}, Light: light}
				with := played(t, p)
				p.Text = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins: [{type: expected-completion}]\n"
				without := played(t, p)
				from, to := 20*time.Second, 40*time.Second // those that come later wait for longer at full servers, too
				work := ratio(with, without, func(r *Result) float64 { return r.between("", from, p.Length).tokens })
				ttft := ratio(with, without, func(r *Result) float64 { return r.between("", from, to).p99.Seconds() })
				lost := over(len(with), func(i int) float64 { return float64(with[i].between("", 0, to).lost) })
				t.Logf("tokens %v, p99 to first token %v, refused %v", work, ttft, lost)
				if work.mean < least[source.Name] || ttft.mean > lateByCost[source.Name] || lost.mean > 0 {
					t.Errorf("want %v of the tokens, %v of the time to first token, and none refused",
						least[source.Name], lateByCost[source.Name])
				}
			})
		}
	}
}

// With that configuration, chats beside a batch of another flow are served sooner than without flow control, and the
// batch not later.
func TestDefaultTellsFlowsApart(t *testing.T) {
	batch := batchOf(2500) // which are begun within a minute
	p := Play{Length: 100 * time.Second, Servers: servers(2, large), Path: 15 * time.Millisecond,
		Load: append(interactive(0), batch)}
	with := played(t, p)
	p.Text = ungated
	without := played(t, p)
	ttft := ratio(with, without, func(r *Result) float64 { return r.between("interactive", 0, p.Length).p99.Seconds() })
	work := ratio(without, with, func(r *Result) float64 { return r.lastOf(batch.Name).Seconds() })
	lost := over(len(with), func(i int) float64 { return float64(with[i].between("", 0, p.Length).lost) })
	t.Logf("chats: p99 to first token %v of that without; speed of the batch %v; refused %v", ttft, work, lost)
	if least := bound(.95, .93); ttft.mean > 1 || work.mean < least || lost.mean > 0 {
		t.Errorf("want chats served no later, %v of the speed, and none refused", least)
	}
}

// A page that lies takes itself out, not its server.
func TestPagesThatLie(t *testing.T) {
	load := decode
	load.Rate, load.Flow = 36, flow("a", 0)
	p := Play{Text: gated, Length: 120 * time.Second, Servers: servers(3, medium), Load: []Source{load}}
	tokens := func(r *Result) float64 { return r.between("", 15*time.Second, p.Length).tokens }
	three := played(t, p)
	for name, page := range map[string]Page{"frozen": Frozen, "hanging": Hanging, "lying": Lying} {
		for _, light := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, light %v", name, light), func(t *testing.T) {
				p.Servers, p.Light = append(servers(3, medium), Server{Engine: medium, Page: page}), light
				got := played(t, p)
				work := ratio(got, three, tokens)
				idle := time.Duration(0) // the longest time without a pick while some waited
				for _, r := range got {
					idle = max(idle, r.standstill())
				}
				t.Logf("tokens by those of three honest servers %v, longest standstill %v", work, idle)
				if work.mean < .95 || idle > 2*time.Second {
					t.Error("want .95, and no standstill of 2 s")
				}
			})
		}
	}
}

// standstill returns the longest time in which none was picked for, while some waited here and none at a server.
func (r *Result) standstill() (longest time.Duration) {
	var picks []time.Duration
	for _, a := range r.Answers {
		if a.Server >= 0 {
			picks = append(picks, a.Came+a.Waited)
		}
	}
	slices.Sort(picks)
	for i := 1; i < len(picks); i++ {
		from := picks[i-1]
		at := min(int(from/(100*time.Millisecond))+1, len(r.Looks)-1)
		if r.Looks[at].Waiting > 0 && slices.Max(r.Looks[at].Queues) == 0 {
			longest = max(longest, picks[i]-from)
		}
	}
	return longest
}

// What a window was learned from changes, and it is learned anew.
func TestWindowsAreLearnedAnew(t *testing.T) {
	for name, change := range map[string]func(*World){
		"prompts ten times as long":  func(w *World) { w.Source("decode").Prompt = Length{4000, 3000} },
		"outputs four times as long": func(w *World) { w.Source("decode").Output = Length{1600, 1200} },
		"half of the speed": func(w *World) {
			w.Each(func(c *batch.Config) { c.PrefillTokensPerSecond /= 2; c.DecodeTokensPerSecond /= 2 })
		},
		"half of the batch": func(w *World) { w.Each(func(c *batch.Config) { c.MaxRunning /= 2 }) },
		"twice the batch":   func(w *World) { w.Each(func(c *batch.Config) { c.MaxRunning *= 2 }) },
	} {
		for _, light := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, light %v", name, light), func(t *testing.T) { learnsAnew(t, light, change) })
		}
	}
}

func learnsAnew(t *testing.T, light bool, change func(*World)) {
	at := 60 * time.Second
	load := decode
	load.Rate, load.Clients, load.Flow = 0, 300, flow("a", 0)
	p := Play{Text: gated, Length: 180 * time.Second, Servers: servers(2, medium), Load: []Source{load},
		Light: light, Events: []Event{{at, change}}}
	with := played(t, p)
	p.Text, p.Events = ungated, []Event{{0, change}} // as they become, and with a queue all the time
	oracle := played(t, p)
	from := at + 30*time.Second
	work := ratio(with, oracle, func(r *Result) float64 { return r.between("", from, p.Length).tokens })
	queue := over(len(with), func(i int) float64 { return float64(with[i].between("", from, p.Length).queue) })
	t.Logf("30 s later: tokens by those of full servers %v, p95 of the servers' queues %v", work, queue)
	if work.mean < .95 || queue.mean > 4 {
		t.Error("want .95 of the tokens, and 4 waiting: a second of the longest prompts")
	}
}

// interactive are short requests of a priority, batch many long ones at once.
func interactive(priority int) []Source {
	one := Source{Name: "interactive", Flow: flow("people", priority), Rate: 15, Prompt: Length{512, 0},
		Output: Length{128, 0}}
	few := one
	one.To = 60 * time.Second
	few.From, few.Rate = one.To, 1
	return []Source{one, few}
}

func batchOf(n int) Source {
	return Source{Name: "batch", Flow: flow("nightly", 0), From: 5 * time.Second, Count: n, Prompt: Length{128, 0},
		Output: Length{500, 400}}
}

// A batch at once is served whole, and those who type beside it hardly notice.
func TestBatchLeavesOthersAlone(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d servers", n), func(t *testing.T) {
			p := Play{Length: 150 * time.Second, Servers: servers(n, large), Text: gated, Load: interactive(10),
				Path: 15 * time.Millisecond}
			alone := played(t, p)
			p.Load = append(p.Load, batchOf(3000*n))
			with := played(t, p)
			p.Text = ungated
			without := played(t, p)
			ttft := ratio(with, alone, func(r *Result) float64 {
				return r.between("interactive", 20*time.Second, 100*time.Second).p99.Seconds()
			})
			last := func(r *Result) float64 { return r.lastOf("batch").Seconds() }
			speed := ratio(without, with, last)
			served := over(len(with), func(i int) float64 {
				return float64(with[i].between("batch", 0, p.Length).served)
			})
			t.Logf("interactive p99 %v of that alone, batch served %v at %v of the speed without flow control",
				ttft, served, speed)
			least, most := bound(.95, .93), bound(1.4, 2)
			if served.mean < float64(3000*n) || speed.mean < least || ttft.mean > most {
				t.Errorf("want all %d of the batch at %v of the speed, and %v times the time to first token", 3000*n,
					least, most)
			}
		})
	}
}

// lastOf returns when the last request of a source ended.
func (r *Result) lastOf(name string) (last time.Duration) {
	for _, a := range r.Answers {
		if a.Source == name {
			last = max(last, a.Ended)
		}
	}
	return last
}

// Many requests at once, after a pause, do not flood servers whose windows are known, and few flood new ones.
func TestBurstAfterAPause(t *testing.T) {
	warm := decode
	warm.Flow, warm.To = flow("a", 0), 40*time.Second
	burst := Source{Name: "burst", Flow: flow("b", 0), From: 60 * time.Second, Count: 600, Prompt: Length{300, 200},
		Output: Length{100, 50}}
	small := medium
	small.MaxRunning = 16
	for name, p := range map[string]Play{
		"known":      {Servers: servers(2, medium), Load: []Source{warm, burst}},
		"new":        {Servers: servers(2, medium), Load: []Source{burst}},
		"small, new": {Servers: servers(2, small), Load: []Source{burst}},
	} {
		t.Run(name, func(t *testing.T) {
			p.Text, p.Length = gated, 150*time.Second
			all := played(t, p)
			most := over(len(all), func(i int) float64 {
				return float64(all[i].between("burst", burst.From, p.Length).most)
			})
			served := over(len(all), func(i int) float64 {
				return float64(all[i].between("burst", 0, p.Length).served)
			})
			t.Logf("most that waited at a server: %v; served %v", most, served)
			if served.mean < float64(burst.Count) || most.mean > 24 {
				t.Errorf("want all %d, and 24 at most", burst.Count)
			}
		})
	}
}

// Servers come one after the other to a pool that was empty, and one of them comes and goes: no request is lost.
func TestPoolThatChanges(t *testing.T) {
	load := decode
	load.Flow, load.Rate, load.To = flow("a", 0), 15, 60*time.Second
	bring := func(at time.Duration, server int, in bool) Event {
		return Event{at, func(w *World) { w.Bring(server, in) }}
	}
	p := Play{Text: gated, Length: 170 * time.Second, Servers: servers(4, medium), Load: []Source{load}}
	for i := range p.Servers {
		p.Servers[i].Away = true
		p.Events = append(p.Events, bring(time.Duration(5+5*i)*time.Second, i, true))
	}
	for i := range 10 {
		p.Events = append(p.Events, bring(time.Duration(30+3*i)*time.Second, 3, i%2 == 1))
	}
	for i, r := range played(t, p) {
		f := r.between("", 0, p.Length)
		t.Logf("seed %d: served %d of %d, refused %d, %d waited at a server at most", i+1, f.served, len(r.Answers),
			f.lost, f.most)
		if f.served != len(r.Answers) || f.lost > 0 || f.most > 24 {
			t.Error("want all, and 24 at most")
		}
	}
}

// A usage limit of the file holds, and windows are learned below it.
func TestUsageLimitsLeaveWindowsToGrow(t *testing.T) {
	load := decode
	load.Rate, load.Clients, load.Flow = 0, 300, flow("a", 0)
	p := Play{Length: 120 * time.Second, Servers: servers(2, medium), Load: []Source{load}}
	p.Text = gated
	free := played(t, p)
	for name, limit := range map[string]struct {
		text  string
		least float64
	}{
		"static":   {"- {type: static-usage-limit-policy, parameters: {threshold: .8}}", .7},
		"holdback": {"- {type: priority-holdback-policy, parameters: {minCeiling: .5}}", .4},
		"soft":     {"- {type: soft-reflective-ceiling-policy}", .3},
	} {
		typ, _, _ := strings.Cut(strings.TrimPrefix(limit.text, "- {type: "), ",")
		typ = strings.TrimSuffix(typ, "}")
		p.Text = strings.Replace(gated, "featureGates:", limit.text+"\nfeatureGates:", 1) // it stands among the plugins
		p.Text = strings.Replace(p.Text, "flowControl:\n", "flowControl:\n  usageLimitPolicyPluginRef: "+typ+"\n", 1)
		work := ratio(played(t, p), free, func(r *Result) float64 {
			return r.between("", 60*time.Second, p.Length).tokens
		})
		t.Logf("%s: tokens %v of those without", name, work)
		if work.mean < limit.least {
			t.Errorf("want %v", limit.least)
		}
	}
}
