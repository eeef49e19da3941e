package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm"
)

const gateLine = "featureGates: [flowControl]\n"

// waitingText has requests wait in Signalbox. It names no detector, so how much a server takes is learned.
const waitingText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
` + gateLine + `plugins:
- type: round-robin-fairness-policy
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer}, {pluginRef: kv-cache-utilization-scorer}, {pluginRef: prefix-cache-scorer}]
flowControl:
  priorityBands:
  - {priority: 10, fairnessPolicyRef: round-robin-fairness-policy}
  - {priority: 0, fairnessPolicyRef: round-robin-fairness-policy, maxRequests: 72, defaultRequestTTL: 8s}
objectives: [{name: chat, priority: 10}, {name: batch, priority: 0}]
`

// pastText is the same without flow control.
var pastText = strings.Replace(waitingText, gateLine, "", 1)

// slots is how many requests each of the servers of an overload works on at a time.
const slots = 12

// smallServers are slow and alike, so that few requests fill them.
func smallServers(seed uint64) []vllm.Config {
	var all []vllm.Config
	for _, name := range []string{"one", "two"} {
		all = append(all, vllm.Config{
			Name: name, Model: baseModel, PrefillTokensPerSecond: 5000, DecodeTokensPerSecond: 25,
			MaxRunning: slots, MaxBatchedTokens: 512, KVBlocks: 1000, BytesPerToken: tokenBytes,
			Tick: 20 * time.Millisecond, Seed: seed,
		})
	}
	return all
}

// side is one of the two stacks that have the same load at the same time.
type side struct {
	*stack
	crowd *crowd
	now   *sideState
}

// begin sends a few short requests, of which none counts, so that a stack that does not serve fails before the load
// comes.
func (s *side) begin(ctx context.Context) error {
	for range 3 {
		q := question{model: baseModel, said: []chatMessage{{"user", "A word."}}, tokens: 1}
		if _, err := s.crowd.exchange(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// Overload plays more load than the servers bear to two stacks at once, one with flow control and one without, and
// reports whether it helped those whom it is for and cost no throughput.
func (c *Config) Overload(ctx context.Context) (won bool, err error) {
	won, err = c.overload(ctx)
	if ctx.Err() != nil {
		return false, errors.New("interrupted")
	}
	return won, err
}

func (c *Config) overload(ctx context.Context) (won bool, err error) {
	load := newOrders(c.Seed, c.Length)
	fmt.Fprintf(c.Out, "seed %d: %d requests in %v, to two stacks at once, each of %d servers with %d slots\n", c.Seed,
		len(load), c.Length, len(smallServers(0)), slots)
	var sides []*side
	defer func() {
		for _, s := range sides {
			err = errors.Join(err, s.stop())
		}
	}()
	for _, of := range []struct{ title, config string }{{"with flow control", waitingText}, {"without", pastText}} {
		s, err := newStack(ctx, c.World, smallServers(c.Seed), of.config)
		if err != nil {
			return false, fmt.Errorf("stack %s: %w", of.title, err)
		}
		sides = append(sides, &side{s, newCrowd(s.url), &sideState{Title: of.title}})
		if err := sides[len(sides)-1].begin(ctx); err != nil {
			return false, fmt.Errorf("first request %s: %w", of.title, err)
		}
		fmt.Fprintf(c.Out, "%s: its pages are at http://%s/\n", of.title, s.picker.Admin())
	}
	fmt.Fprintln(c.Out)
	now, err := c.follow(ctx, sides, load)
	if err != nil {
		return false, err
	}
	for _, s := range sides {
		if s.crowd.problem != nil {
			fmt.Fprintf(c.Out, "first failure %s: %v\n\n", s.now.Title, s.crowd.problem)
		}
	}
	return now.verdict(c.Out), nil
}

// follow plays the load to both sides and shows how they stand.
func (c *Config) follow(ctx context.Context, sides []*side, load []order) (*overloadState, error) {
	now, d := &overloadState{Length: c.Length}, newDisplay(c.Out, c.Plain)
	d.every = time.Second
	var playing sync.WaitGroup
	limited, cancel := context.WithTimeout(ctx, c.Length+grace)
	defer cancel()
	began := time.Now()
	for i, s := range sides {
		now.Sides[i] = s.now
		playing.Go(func() { s.crowd.play(limited, load) })
	}
	played := make(chan struct{})
	go func() {
		playing.Wait()
		close(played)
	}()
	look := func() error {
		now.Elapsed = time.Since(began)
		for _, s := range sides {
			if err := s.look(now.Elapsed, c.Length); err != nil {
				return err
			}
		}
		return nil
	}
	err := follow(played, func() error {
		err := look()
		d.show(now)
		return err
	})
	cancel()
	<-played
	if err = errors.Join(err, ctx.Err()); err == nil {
		err = look()
	}
	if err == nil {
		d.end(now)
	}
	return now, err
}

// look fills in how a side stands.
func (s *side) look(elapsed, length time.Duration) error {
	families, err := s.picker.Gather()
	if err != nil {
		return err
	}
	n := s.now
	n.Line, n.Waiting, n.Running = 0, 0, 0
	for _, f := range families {
		if f.GetName() == "signalbox_flow_waiting_requests" {
			n.Line = int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	var tokens uint64
	for _, each := range s.sims {
		stats := each.Stats()
		n.Waiting, n.Running, tokens = n.Waiting+stats.Waiting, n.Running+stats.Running, tokens+stats.AnswerTokens
	}
	n.MostLine, n.MostWaiting = max(n.MostLine, n.Line), max(n.MostWaiting, n.Waiting)
	if elapsed <= length || n.PerSecond == 0 {
		n.PerSecond = float64(tokens) / elapsed.Seconds()
	}
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	n.Flows = n.Flows[:0]
	for _, o := range s.crowd.flows {
		n.Flows = append(n.Flows, describeFlow(o))
	}
	return nil
}

// describeFlow sums up what became of a flow's requests so far.
func describeFlow(o outcome) flowState {
	sorted := slices.Sorted(slices.Values(o.TTFT))
	f := flowState{outcome: o, P50: percentile(sorted, 0.5), P99: percentile(sorted, 0.99)}
	f.TTFT, f.Refused = nil, map[string]int{}
	for reason, n := range o.Refused {
		f.Refused[reason] = n
	}
	return f
}

// StayOverloaded is Stay with the small servers, and with requests that wait for them in Signalbox.
func (c *Config) StayOverloaded(ctx context.Context) error {
	return c.stay(ctx, smallServers(c.Seed), waitingText, fmt.Sprintf(" \\\n    -H '%s: %s' -H '%s: %s'",
		strings.ToLower(fairnessHeader), flows[0].tenant, strings.ToLower(objectiveHeader), flows[0].objective))
}
