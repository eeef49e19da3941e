package overload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
)

// detecting returns a configuration by which a detector says where there is room.
func detecting(detector, parameters string) string {
	of := fmt.Sprintf("- {type: %s, parameters: {%s}}\nfeatureGates:", detector, parameters)
	text := strings.Replace(gated, "featureGates:", of, 1)
	return strings.Replace(text, "flowControl:\n", "flowControl:\n  saturationDetector: {pluginRef: "+detector+"}\n", 1)
}

// A detector with numbers of its own keeps to them between two pages, too, and servers never lack work for it.
func TestDetectorsKeepQueuesShort(t *testing.T) {
	for _, c := range []struct {
		detector, parameters string
		sources              []Source
		most                 float64 // wait at a server (p95)
	}{
		{"utilization-detector", "queueDepthThreshold: 2", []Source{decode}, 2},
		{"utilization-detector", "", []Source{decode}, 5},
		{"concurrency-detector", "maxConcurrency: 66", []Source{decode}, 2},
		// Where prompts are what takes time, the places of answers that end at once do not make the server take as
		// many prompts at once.
		{"utilization-detector", "queueDepthThreshold: 2", []Source{prefill}, 5},
		{"utilization-detector", "", []Source{prefill}, 9},
	} {
		for _, source := range c.sources {
			for _, light := range []bool{false, true} {
				name := fmt.Sprintf("%s, %s, %s, light %v", c.detector, c.parameters, source.Name, light)
				t.Run(name, func(t *testing.T) {
					source.Flow = flow("a", 0)
					p := Play{Length: 120 * time.Second, Servers: servers(2, medium), Load: []Source{source},
						Light: light, Path: 5 * time.Millisecond}
					p.Text = ungated
					without := played(t, p)
					p.Text = detecting(c.detector, c.parameters)
					with := played(t, p)
					seen := func(r *Result) figures { return r.between("", 20*time.Second, p.Length) }
					work := ratio(with, without, func(r *Result) float64 { return seen(r).tokens })
					queue := over(len(with), func(i int) float64 { return float64(seen(with[i]).queue) })
					most := over(len(with), func(i int) float64 { return float64(seen(with[i]).most) })
					t.Logf("tokens %v, p95 of the servers' queues %v, most %v", work, queue, most)
					if work.mean < .95 || queue.mean > c.most {
						t.Errorf("want .95 of the tokens, and %v waiting", c.most)
					}
				})
			}
		}
	}
}

// Servers that have enough to do, and no more, lose nothing by a bound of their queues.
func TestBoundedQueuesLoseNothingBelowCapacity(t *testing.T) {
	for _, source := range []Source{decode, prefill} {
		t.Run(source.Name, func(t *testing.T) {
			source.Flow, source.Rate = flow("a", 0), source.Rate/3
			p := Play{Length: 150 * time.Second, Servers: servers(2, medium), Load: []Source{source},
				Path: 5 * time.Millisecond}
			p.Text = ungated
			without := played(t, p)
			p.Text = detecting("utilization-detector", "")
			with := played(t, p)
			ttft := ratio(with, without, func(r *Result) float64 {
				return r.between("", 20*time.Second, 120*time.Second).p99.Seconds()
			})
			t.Logf("p99 to first token %v", ttft)
			if ttft.mean > 1.05 {
				t.Error("want 1.05")
			}
		})
	}
}

// Many requests at once flood neither servers that were idle nor new ones, and all servers soon work on as many as they
// can.
func TestBoundedQueuesInABurst(t *testing.T) {
	warm := decode
	warm.Flow, warm.To = flow("a", 0), 40*time.Second
	burst := Source{Name: "burst", Flow: flow("b", 0), From: 60 * time.Second, Count: 600, Prompt: Length{300, 200},
		Output: Length{100, 50}}
	small := medium
	small.MaxRunning = 16
	for name, c := range map[string]struct {
		engine batch.Config
		load   []Source
		most   float64 // wait at a server
	}{
		"known":      {medium, []Source{warm, burst}, 40},
		"new":        {medium, []Source{burst}, 40},
		"small, new": {small, []Source{burst}, 20},
		"large, new": {large, []Source{burst}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			p := Play{Servers: servers(2, c.engine), Load: c.load}
			p.Length, p.Path = 150*time.Second, 5*time.Millisecond
			p.Text = ungated
			without := played(t, p)
			p.Text = detecting("utilization-detector", "queueDepthThreshold: 2")
			with := played(t, p)
			most := over(len(with), func(i int) float64 {
				return float64(with[i].between("burst", burst.From, p.Length).most)
			})
			took := ratio(with, without, func(r *Result) float64 { return (r.lastOf("burst") - burst.From).Seconds() })
			t.Logf("most that waited at a server: %v; served in %v of the time without flow control", most, took)
			if most.mean > c.most || took.mean > 1.35 {
				t.Errorf("want %v at most, and 1.35 of the time", c.most)
			}
		})
	}
}
