package overload

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
)

// One of four servers restarts while there is twice as much to do as all can. Its window is forgotten, so that the new
// engine is not flooded, also if it takes less than the one before, and within 30 s it has as much to do as it can.
// Nothing is lost but what the server would have done while it was away.
func TestServerThatRestarts(t *testing.T) {
	const at, away, settled, length = 60 * time.Second, 8 * time.Second, 30 * time.Second, 150 * time.Second
	load := decode
	load.Rate, load.Flow = 36, flow("a", 0)
	for name, change := range map[string]func(*batch.Config){
		"as it was":            func(*batch.Config) {},
		"with half the places": func(c *batch.Config) { c.MaxRunning /= 2 },
	} {
		p := Play{Text: ungated, Length: length, Servers: servers(4, medium), Load: []Source{load}, Ejects: true,
			Path: 5 * time.Millisecond}
		change(&p.Servers[0].Engine)
		oracle := played(t, p) // the servers as they become, and with a queue all the time
		p.Text, p.Servers = gated, servers(4, medium)
		p.Events = []Event{{at, func(w *World) { w.Restart(0, away, change) }}}
		for _, light := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, light %v", name, light), func(t *testing.T) {
				p.Light = light
				got := played(t, p)
				tokens := func(from time.Duration) interval {
					return ratio(got, oracle, func(r *Result) float64 { return r.between("", from, length).tokens })
				}
				seen := func(figure func(figures) int, from time.Duration) interval {
					return over(len(got), func(i int) float64 {
						return float64(figure(got[i].between("", from, length)))
					})
				}
				share := 1 - away.Seconds()/(length-at).Seconds()/4
				all, later := tokens(at), tokens(at+away+settled)
				most := seen(func(f figures) int { return f.most }, at)
				queue := seen(func(f figures) int { return f.queue }, at+away+settled)
				t.Logf("tokens by those of full servers %v of %.3f, 30 s after its return %v; most that wait at a "+
					"server %v, p95 30 s later %v", all, share, later, most, queue)
				if all.mean < .95*share || later.mean < .95 || most.mean > 24 || queue.mean > 2 {
					t.Error("want .95 of them, 24 waiting at most, and 2 later")
				}
			})
		}
	}
}
