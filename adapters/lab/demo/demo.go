// Package demo plays a chat load to four unequal simulated servers, through a picker and a proxy before it, and
// compares how soon the answers begin with the default configuration and with random picking. It also plays more load
// than servers bear, with flow control and without.
//
// It owns the servers, the load, the built-in proxy and what is shown of a run. It never makes the picker, nor an
// Envoy: its caller brings them.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm"
)

// randomPicking is the configuration that the default is measured against.
const randomPicking = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: random-picker
schedulingProfiles:
- name: random
  plugins:
  - pluginRef: random-picker
`

const grace = 15 * time.Second // for requests to end after the load

// Picker is an Endpoint Picker that serves. Its metrics have the names of Signalbox's.
type Picker interface {
	prometheus.Gatherer
	Addr() string         // of ext_proc, host and port
	Admin() string        // of metrics and explain, host and port
	Endpoints() int       // how many it knows
	Failed() <-chan error // has why it serves no more
	Stop() error          // to be called once
}

// World is what a demo does not make itself.
type World struct {
	// Picker starts one that follows the file of endpoints, with the text of a configuration; "" is the default.
	Picker func(ctx context.Context, endpoints, config string) (Picker, error)
	// Proxy starts one before the picker at an address. It returns where it serves, and what ends it. Nil is
	// the built-in one.
	Proxy func(ctx context.Context, picker string) (url string, end func() error, err error)
}

// Config is a demo.
type Config struct {
	World
	Seed   uint64        // decides the load; the same in both runs
	Length time.Duration // how long new conversations begin, in each run; more than 0
	Plain  bool          // plain lines on a terminal too
	Out    io.Writer
}

// Compare plays the load twice, with the default configuration and with random picking, and reports whether the default
// answered all of it, and so much sooner as is wanted.
func (c *Config) Compare(ctx context.Context) (won bool, err error) {
	load := newLoad(c.Seed, c.Length)
	fmt.Fprintf(c.Out,
		"seed %d: %d conversations, %d requests at most, %d groups with a system prompt of their own\n\n", c.Seed,
		len(load), countTurns(load), groups)
	d := newDisplay(c.Out, c.Plain)
	var states []*state
	for _, r := range []struct{ title, config string }{{"default", ""}, {"random", randomPicking}} {
		state, err := c.measure(ctx, run{r.title, r.config, load, d})
		if ctx.Err() != nil {
			return false, errors.New("interrupted")
		}
		if err != nil {
			return false, fmt.Errorf("run with %s picking: %w", r.title, err)
		}
		states = append(states, state)
	}
	return verdict(c.Out, states[0], states[1]), nil
}

// verdict prints both runs, and reports whether the default is better by what is wanted.
func verdict(out io.Writer, standard, random *state) bool {
	fmt.Fprintln(out, compare(standard, random))
	won := gain(standard, random)
	if standard.Failed+standard.Cut > 0 {
		fmt.Fprintf(out, "The default left %d requests without an answer.\n", standard.Failed+standard.Cut)
		return false
	}
	fmt.Fprintf(out, "Mean TTFT is %.0f %% shorter than with random picking; at least %.0f %% are asked for.\n",
		100*won, 100*wantedGain)
	return won >= wantedGain
}

// run is one of the two plays of the load.
type run struct {
	title, config string
	load          []conversation
	display       *display
}

// measure plays the load on fresh servers.
func (c *Config) measure(ctx context.Context, r run) (_ *state, err error) {
	s, err := newStack(ctx, c.World, servers(c.Seed), r.config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	p := newPlayer(s.url, s.lora())
	limited, cancel := context.WithTimeout(ctx, c.Length+grace)
	defer cancel()
	played := make(chan struct{})
	began := time.Now()
	go func() {
		p.play(limited, r.load)
		close(played)
	}()
	now := &state{Title: r.title, Planned: countTurns(r.load)}
	err = follow(played, func() error {
		err := s.state(p, now, began)
		r.display.show(now)
		return err
	})
	cancel()
	<-played
	if err != nil {
		return nil, err
	}
	if err := errors.Join(ctx.Err(), s.state(p, now, began)); err != nil {
		return nil, err
	}
	r.display.end(now)
	if p.problem != nil {
		fmt.Fprintf(r.display.out, "first failure: %v\n\n", p.problem)
	}
	return now, nil
}

// follow calls show now and then, until done is closed or show fails.
func follow(done <-chan struct{}, show func() error) error {
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := show(); err != nil {
				return err
			}
		case <-done:
			return nil
		}
	}
}

// state fills in how the run stands now.
func (s *stack) state(p *player, state *state, began time.Time) error {
	p.mu.Lock()
	state.tally = p.tally
	state.describeTTFT(p.ttft)
	p.mu.Unlock()
	state.Elapsed = time.Since(began)
	return s.look(state)
}

// Stay plays no load: it says how to send requests of one's own, and serves them until ctx is done.
func (c *Config) Stay(ctx context.Context) error { return c.stay(ctx, servers(c.Seed), "", "") }

// stay adds flags to the curl line that it prints.
func (c *Config) stay(ctx context.Context, servers []vllm.Config, config, flags string) (err error) {
	s, err := newStack(ctx, c.World, servers, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	for i, each := range s.sims {
		fmt.Fprintf(c.Out, "server %-8s %s  %.0f tok/s %v\n", s.configs[i].Name, each.Addr(),
			s.configs[i].PrefillTokensPerSecond, s.configs[i].Adapters)
	}
	admin := "http://" + s.picker.Admin()
	fmt.Fprintf(c.Out, "\nSend a request:\n  curl -i %s/v1/chat/completions -H 'Content-Type: application/json'%s \\\n"+
		"    -d '{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"Which way does this train "+
		"go?\"}],\"max_tokens\":32}'\n", s.url, flags, baseModel)
	fmt.Fprintf(c.Out, "\nAsk why it went where it went; ID is the answer's x-signalbox-request-id:\n  %s explain ID "+
		"--addr %s\n", os.Args[0], admin)
	fmt.Fprintf(c.Out, "\nMetrics are at %s/metrics. Interrupt to end.\n", admin)
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.picker.Failed():
		return err
	}
}
