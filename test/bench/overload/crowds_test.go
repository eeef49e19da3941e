package overload

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
	"github.com/signalbox-epp/signalbox/messages"
)

// crowd is what two servers of a kind are given: chats of some, and more work of others than they can do.
type crowd struct {
	name       string
	engine     batch.Config
	path       time.Duration
	chat, work Source  // Rate: of all chats, and of all work
	most       float64 // of the time to first token of chats, by that without the work, for few seeds
	limit      float64 // and for many
}

// At large servers the chats and the work are those of TestBatchLeavesOthersAlone. Medium ones show what flow control
// cannot mend: with all places taken their steps take half as long again, and each prompt that comes in between half as
// much. TestNoFixedLimitServesChatsSooner shows that it is so.
var crowds = []crowd{
	{
		name: "large", engine: large, path: 15 * time.Millisecond, most: 1.3, limit: 1.25,
		chat: Source{Rate: 30, Prompt: Length{512, 0}, Output: Length{128, 0}},
		work: Source{Rate: 200, Prompt: Length{128, 0}, Output: Length{500, 400}},
	},
	{
		name: "medium", engine: medium, most: 6, limit: 4,
		chat: Source{Rate: 8, Prompt: Length{300, 200}, Output: Length{200, 100}},
		work: Source{Rate: 50, Prompt: Length{300, 200}, Output: Length{200, 100}},
	},
}

// part returns a source that sends a part of what another does, in a flow.
func part(of Source, share float64, name string, key messages.FlowKey) Source {
	of.Name, of.Flow, of.Rate = name, key, of.Rate*share
	return of
}

// Three bands at three times the capacity: the highest is served as if it were alone, and the middle one before the
// lowest.
func TestBandsAreServedInOrder(t *testing.T) {
	for _, c := range crowds {
		t.Run(c.name, func(t *testing.T) {
			p := Play{Text: gated, Length: 100 * time.Second, Servers: servers(2, c.engine), Path: c.path,
				Load: []Source{part(c.chat, 1, "high", flow("high", 10))}}
			alone := played(t, p)
			p.Load = append(p.Load, part(c.work, .5, "normal", flow("normal", 0)))
			p.Load = append(p.Load, part(c.work, .5, "low", flow("low", -10)))
			all := played(t, p)
			p99 := func(r *Result) float64 { return r.between("high", 20*time.Second, 90*time.Second).p99.Seconds() }
			ttft := ratio(all, alone, p99)
			served := func(name string) float64 {
				return over(len(all), func(i int) float64 {
					return float64(all[i].between(name, 20*time.Second, p.Length).served)
				}).mean
			}
			high, normal, low := served("high"), served("normal"), served("low")
			t.Logf("high: p99 to first token %v of that alone; served: high %.0f, normal %.0f, low %.0f", ttft, high,
				normal, low)
			if most := bound(c.limit, c.most); ttft.mean > most || high < .95*c.chat.Rate*80 || normal < high/2 ||
				low > normal/10 {
				t.Errorf("want the high band within %v times, the normal one with the rest, the low one nothing", most)
			}
		})
	}
}

// Chats beside work are served no sooner by a fixed limit of the work in flight, if the servers compute as much with
// it.
func TestNoFixedLimitServesChatsSooner(t *testing.T) {
	for _, c := range crowds {
		t.Run(c.name, func(t *testing.T) {
			from, to := 20*time.Second, 90*time.Second
			p99 := func(r *Result) float64 { return r.between("chat", from, to).p99.Seconds() }
			tokens := func(r *Result) float64 { return r.between("", from, to).tokens }
			p := Play{Text: ungated, Length: 100 * time.Second, Servers: servers(2, c.engine), Path: c.path}
			p.Load = []Source{part(c.chat, 1, "chat", flow("chat", 10))}
			alone := played(t, p)
			p.Load = append(p.Load, part(c.work, 1, "work", flow("work", 0)))
			full := played(t, p)
			p.Text = gated
			learned := ratio(played(t, p), alone, p99)
			p.Text, p.Load[1].Rate = ungated, 0
			for _, share := range []float64{.25, .5, .75} { // of the places
				p.Load[1].Clients = int(share * float64(2*c.engine.MaxRunning))
				limited := played(t, p)
				fixed, work := ratio(limited, alone, p99), ratio(limited, full, tokens)
				t.Logf("p99 to first token by that alone: %v with flow control, %v with %v of the places for work, "+
					"which gives %v of the tokens", learned, fixed, share, work)
				if work.mean >= .95 && fixed.mean < .9*learned.mean {
					t.Error("a fixed limit does better by a tenth")
				}
			}
		})
	}
}

// What of a band without room cannot wait longer is told when to come again.
func TestThoseThatWaitInVainAreToldWhenToCome(t *testing.T) {
	c := crowds[1]
	p := Play{Length: 40 * time.Second, Servers: servers(2, c.engine), Load: []Source{
		part(c.work, .5, "normal", flow("normal", 0)), part(c.work, .5, "low", flow("low", -10)),
	}}
	p.Text = strings.Replace(gated, "defaultRequestTTL: 10m", "defaultRequestTTL: 5s", 1)
	for _, r := range played(t, p) {
		low := 0
		for _, a := range r.Answers {
			switch {
			case a.Reason == messages.NoReason || a.Came > p.Length-6*time.Second:
			case a.Reason != messages.TTLExpired || a.RetryAfter < time.Second:
				t.Fatalf("a request of %s is refused: %v, to come again after %v", a.Source, a.Reason, a.RetryAfter)
			case a.Source == "low":
				low++
			}
		}
		if t.Logf("%d of the lowest band are refused", low); low < 500 {
			t.Error("want most of a thousand")
		}
	}
}

// The lowest band has the part of all that its least share gives it, and no more.
func TestLeastShareOfABand(t *testing.T) {
	c := crowds[0]
	p := Play{Length: 60 * time.Second, Servers: servers(2, c.engine), Path: c.path, Load: []Source{
		part(c.work, .5, "normal", flow("normal", 0)), part(c.work, .5, "low", flow("low", -10)),
	}}
	p.Text = strings.Replace(gated, "flowControl:\n",
		"flowControl:\n  priorityBands: [{priority: -10, maxRequests: 20k, minShare: 0.2}]\n", 1)
	all := played(t, p)
	share := over(len(all), func(i int) float64 {
		served := func(name string) float64 {
			return float64(all[i].between(name, 20*time.Second, p.Length).served)
		}
		return served("low") / (served("low") + served("normal"))
	})
	t.Logf("share of what is served %v", share)
	if math.Abs(share.mean-.2) > .02 {
		t.Error("want 0.2")
	}
}

// Servers of a pool may differ in speed and in size.
func TestServersDiffer(t *testing.T) {
	load := decode
	load.Flow, load.Rate = flow("a", 0), 100
	p := Play{Length: 120 * time.Second, Servers: []Server{{Engine: large}, {Engine: medium}}, Load: []Source{load}}
	p.Text = gated
	with := played(t, p)
	p.Text = ungated
	without := played(t, p)
	from := 20 * time.Second
	work := ratio(with, without, func(r *Result) float64 { return r.between("", from, p.Length).tokens })
	queue := over(len(with), func(i int) float64 { return float64(with[i].between("", from, p.Length).queue) })
	l := with[0].Looks[1000]
	t.Logf("tokens %v of those without, p95 of the servers' queues %v; windows %v", work, queue, l.Windows)
	if work.mean < .95 || queue.mean > 4 {
		t.Error("want .95 of the tokens, and 4 waiting")
	}
}

// Sixteen tenants of which one sends fifty times as much as each of the others: those do not notice it, and what they
// leave idle is used.
func TestTenantsDoNotHarmEachOther(t *testing.T) {
	for _, c := range crowds {
		t.Run(c.name, func(t *testing.T) {
			p := Play{Text: gated, Length: 100 * time.Second, Servers: servers(2, c.engine), Path: c.path}
			for i := range 15 {
				p.Load = append(p.Load, part(c.chat, 1./15, "tenant", flow(fmt.Sprint("tenant-", i), 0)))
			}
			alone := played(t, p)
			p.Load = append(p.Load, part(c.work, 50*c.chat.Rate/15/c.work.Rate, "greedy", flow("greedy", 0)))
			all := played(t, p)
			p.Text = ungated
			full := played(t, p)
			from, to := 20*time.Second, 90*time.Second
			ttft := ratio(all, alone, func(r *Result) float64 { return r.between("tenant", from, to).p99.Seconds() })
			work := ratio(all, full, func(r *Result) float64 { return r.between("", from, to).tokens })
			t.Logf("p99 to first token %v of that alone, tokens %v of full servers", ttft, work)
			if most := bound(c.limit-.05, c.most); ttft.mean > most || work.mean < .95 {
				t.Errorf("want %v times at most, and .95 of the tokens", most)
			}
		})
	}
}
