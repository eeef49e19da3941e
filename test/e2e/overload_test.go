package e2e

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// What the servers of an overload are, and what is sent to them: answers of 64 tokens at 25 a second, so that two
// servers with four slots each give three a second, of the six that are asked for.
const (
	overloadSlots   = 4
	overloadServers = 2
	overloadTokens  = 64
	overloadEvery   = 160 * time.Millisecond // a request
	overloadLook    = 100 * time.Millisecond // at each server's page
	overloadWarm    = 5 * time.Second        // before anything is measured
)

var overloadRates = []string{"--model", model, "--max-num-seqs", fmt.Sprint(overloadSlots), "--decode-rate",
	"25", "--prefill-rate", "8000"}

// overloadText has requests wait as long as the test takes. Servers are picked by their queues.
const overloadText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- type: queue-scorer
- type: running-requests-size-scorer
- {type: utilization-detector, parameters: {queueDepthThreshold: 2}}
- {type: concurrency-detector, parameters: {maxConcurrency: 4}}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer}, {pluginRef: running-requests-size-scorer}]
flowControl:
  defaultRequestTTL: 5m
`

// overloads are the configurations that are played against each other: without flow control, and with each detector.
var overloads = map[string]string{
	"none":                 strings.Replace(overloadText, "featureGates: [flowControl]\n", "", 1),
	"learning-detector":    overloadText, // is the one that holds if none is named
	"utilization-detector": overloadText + "  saturationDetector: {pluginRef: utilization-detector}\n",
	"concurrency-detector": overloadText + "  saturationDetector: {pluginRef: concurrency-detector}\n",
}

// overloadBounds returns how many may wait at a server (p95) with flow control, and which part of the tokens is given
// at least. A machine that does other work too is late with answers and pages, so a short play is held to less.
func overloadBounds() (most int, least float64) {
	if *long {
		return 2, 0.95
	}
	return 4, 0.8
}

// overloaded is what was measured of one of them.
type overloaded struct {
	waiting   []int // at each server, each time that it was looked at, in order of size
	perSecond float64
	answers   int // that came whole
	refused   int
}

func (o *overloaded) p95() int { return o.waiting[len(o.waiting)*95/100] }

// TestEnvoyOverloadWaitsInThePicker sends twice what the servers bear through Envoy, in both lanes, without flow
// control and with each detector, all at the same time so that they share what else the machine does. With flow control
// the servers' own queues stay short, and they give about as many tokens.
func TestEnvoyOverloadWaitsInThePicker(t *testing.T) {
	seenElsewhere(t) // TestEnvoyRequestsWaitForRoom
	length := 20 * time.Second
	if *long {
		length = time.Minute
	}
	for _, bootstrap := range []string{overrideHost, overrideHostFull} {
		t.Run(bootstrap[strings.LastIndexByte(bootstrap, '/')+1:], func(t *testing.T) {
			got := overloadAll(t, bootstrap, length)
			without := got["none"]
			if without.p95() < 2*overloadSlots {
				t.Errorf("without flow control %d wait at a server (p95), which is no overload", without.p95())
			}
			for name, o := range got {
				ratio := o.perSecond / without.perSecond
				t.Logf("%-20s waiting at a server: p50 %d, p95 %d, most %d; %.1f tokens/s, %.3f of those without; "+
					"%d answers, %d refused", name, o.waiting[len(o.waiting)/2], o.p95(), o.waiting[len(o.waiting)-1],
					o.perSecond, ratio, o.answers, o.refused)
				if name == "none" {
					continue
				}
				if most, least := overloadBounds(); o.p95() > most || ratio < least {
					t.Errorf("%s: %d wait at a server (p95), %.3f of the tokens; want %d at most, and %v at least",
						name, o.p95(), ratio, most, least)
				}
				if o.refused > 0 {
					t.Errorf("%s: %d were refused, want all to wait", name, o.refused)
				}
			}
		})
	}
}

// overloadAll plays all of them through an Envoy of each.
func overloadAll(t *testing.T, bootstrap string, length time.Duration) map[string]*overloaded {
	t.Helper()
	stacks := map[string]*stack{}
	for name, text := range overloads {
		file := filepath.Join(t.TempDir(), "config.yaml")
		writeFile(t, file, text)
		servers := simulated(t, overloadServers, overloadRates...)
		stacks[name] = startStackWith(t, bootstrap, servers, "--config-file", file)
		stacks[name].picker.sampled(t, overloadServers)
	}
	var mu sync.Mutex
	var playing sync.WaitGroup
	got := map[string]*overloaded{}
	for name, s := range stacks {
		playing.Go(func() {
			o := s.overload(t.Context(), length)
			mu.Lock()
			defer mu.Unlock()
			got[name] = o
		})
	}
	playing.Wait()
	return got
}

// overload sends requests at a steady rate, and looks at the servers' own pages meanwhile. In the end clients leave.
func (s *stack) overload(ctx context.Context, length time.Duration) *overloaded {
	ctx, leave := context.WithTimeout(ctx, length)
	defer leave()
	var mu sync.Mutex
	var open sync.WaitGroup
	o := &overloaded{}
	open.Go(func() {
		for n := range every(ctx, overloadEvery) {
			open.Go(func() {
				a := s.client.stream(ctx, fmt.Sprintf("question %d, which is no other's", n), overloadTokens)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case a.whole():
					o.answers++
				case a.status != 0 && a.status != http.StatusOK:
					o.refused++
				}
			})
		}
	})
	var from, to mark
	began := time.Now()
	for range every(ctx, overloadLook) {
		if time.Since(began) < overloadWarm {
			continue
		}
		at, waiting := s.look()
		o.waiting = append(o.waiting, waiting...)
		if from.at.IsZero() || at.took < overloadLook/2 {
			to = at
		}
		if from.at.IsZero() {
			from = to
		}
	}
	open.Wait()
	slices.Sort(o.waiting)
	o.perSecond = (to.tokens - from.tokens) / to.at.Sub(from.at).Seconds()
	return o
}

// every counts from 0 on, until ctx is done.
func every(ctx context.Context, d time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		ticks := time.NewTicker(d)
		defer ticks.Stop()
		for n := 0; yield(n); n++ {
			select {
			case <-ticks.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// mark is how many tokens the servers had given at a moment, which is known to so much.
type mark struct {
	at     time.Time
	took   time.Duration
	tokens float64
}

// look reads the servers' pages, and how many requests wait at each.
func (s *stack) look() (m mark, waiting []int) {
	m.at = time.Now()
	for _, server := range s.servers {
		_, page := get("http://" + server + "/metrics")
		waiting = append(waiting, int(sumOf(page, "vllm:num_requests_waiting")))
		m.tokens += sumOf(page, "vllm:generation_tokens_total")
	}
	m.took = time.Since(m.at)
	return m, waiting
}
