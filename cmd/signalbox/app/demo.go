package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// randomPicking is the configuration that the default is measured against.
const randomPicking = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: random-picker
schedulingProfiles:
- name: random
  plugins:
  - pluginRef: random-picker
`

const (
	demoLongest = 25 * time.Second // load, so that two runs and their ends stay below 90 s
	demoGrace   = 15 * time.Second // for requests to end after the load
)

type demoOptions struct {
	seed      uint64
	duration  time.Duration
	envoy     bool
	bootstrap string
	serve     bool
	plain     bool
}

func newDemo() *cobra.Command {
	o := &demoOptions{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Simulated servers, Signalbox, and a load: the default against random picking",
		Long: "Play a chat load through Signalbox to four unequal simulated servers, twice: with the default configuration, then with\n" +
			"random picking. The exit status is 0 if the default's mean time to first token is at least 20 % shorter, else 1.",
		Example: "  signalbox demo\n  signalbox demo --serve",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f := c.Flags()
	f.Uint64Var(&o.seed, "seed", 1, "decides the load; the same in both runs")
	f.DurationVar(&o.duration, "duration", 15*time.Second, "how long new conversations begin, in each run, up to 25s")
	f.BoolVar(&o.envoy, "envoy", false, "use a real Envoy ($ENVOY, PATH or .envoy/envoy) instead of the built-in proxy")
	f.StringVar(&o.bootstrap, "envoy-bootstrap", "deploy/envoy/original-dst.yaml", "what --envoy starts Envoy with, addresses aside")
	f.BoolVar(&o.serve, "serve", false, "no load: stay up for requests of yours, until interrupted")
	f.BoolVar(&o.plain, "plain", false, "plain lines on a terminal too")
	return c
}

func (o *demoOptions) run(ctx context.Context, out io.Writer) error {
	if o.duration <= 0 || o.duration > demoLongest {
		return fmt.Errorf("--duration: got %v, want more than 0, %v at most", o.duration, demoLongest)
	}
	var envoy *envoyOptions
	if o.envoy {
		var err error
		if envoy, err = findEnvoy(o.bootstrap); err != nil {
			return err
		}
	}
	if o.serve {
		return o.stay(ctx, out, envoy)
	}
	load := newLoad(o.seed, o.duration)
	fmt.Fprintf(out, "seed %d: %d conversations, %d requests at most, %d groups with a system prompt of their own\n\n", o.seed, len(load), countTurns(load), demoGroups)
	d := newDisplay(out, o.plain)
	var states []*demoState
	for _, r := range []struct{ title, config string }{{"default", ""}, {"random", randomPicking}} {
		state, err := o.measure(ctx, demoRun{r.title, r.config, envoy, load, d})
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			return fmt.Errorf("run with %s picking: %w", r.title, err)
		}
		states = append(states, state)
	}
	return verdict(out, states[0], states[1])
}

// verdict prints both runs, and gives exit status 1 if the default is not better by what is wanted.
func verdict(out io.Writer, standard, random *demoState) error {
	fmt.Fprintln(out, compare(standard, random))
	won := gain(standard, random)
	if standard.Failed+standard.Cut > 0 {
		fmt.Fprintf(out, "The default left %d requests without an answer.\n", standard.Failed+standard.Cut)
		return exitError(1)
	}
	fmt.Fprintf(out, "Mean TTFT is %.0f %% shorter than with random picking; at least %.0f %% are asked for.\n", 100*won, 100*wantedGain)
	if won < wantedGain {
		return exitError(1)
	}
	return nil
}

// demoRun is one of the two plays of the load.
type demoRun struct {
	title, config string
	envoy         *envoyOptions
	load          []conversation
	display       *display
}

// measure plays the load on fresh servers.
func (o *demoOptions) measure(ctx context.Context, r demoRun) (_ *demoState, err error) {
	s, err := newStack(ctx, o.seed, r.config, r.envoy)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	p := newPlayer(s.url, s.lora())
	limited, cancel := context.WithTimeout(ctx, o.duration+demoGrace)
	defer cancel()
	played := make(chan struct{})
	began := time.Now()
	go func() {
		p.play(limited, r.load)
		close(played)
	}()
	state := &demoState{Title: r.title, Planned: countTurns(r.load)}
	err = follow(played, func() error {
		err := s.state(p, state, began)
		r.display.show(state)
		return err
	})
	cancel()
	<-played
	if err != nil {
		return nil, err
	}
	if err := errors.Join(ctx.Err(), s.state(p, state, began)); err != nil {
		return nil, err
	}
	r.display.end(state)
	if p.problem != nil {
		fmt.Fprintf(r.display.out, "first failure: %v\n\n", p.problem)
	}
	return state, nil
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

// state is how the run stands now.
func (s *stack) state(p *player, state *demoState, began time.Time) error {
	p.mu.Lock()
	state.Sent, state.Done, state.Failed, state.Cut = p.sent, p.done, p.failed, p.cut
	state.describeTTFT(p.ttft)
	p.mu.Unlock()
	state.Elapsed = time.Since(began)
	return s.look(state)
}

// stay serves until ctx is done.
func (o *demoOptions) stay(ctx context.Context, out io.Writer, envoy *envoyOptions) (err error) {
	s, err := newStack(ctx, o.seed, "", envoy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	for i, each := range s.sims {
		fmt.Fprintf(out, "server %-8s %s  %.0f tok/s %v\n", s.configs[i].Name, each.Addr(), s.configs[i].PrefillTokensPerSecond, s.configs[i].Adapters)
	}
	admin := "http://" + s.box.addrs["metrics-port"][0].String()
	fmt.Fprintf(out, "\nSend a request:\n  curl -i %s/v1/chat/completions -H 'Content-Type: application/json' \\\n"+
		"    -d '{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"Which way does this train go?\"}],\"max_tokens\":32}'\n", s.url, demoModel)
	fmt.Fprintf(out, "\nAsk why it went where it went; ID is the answer's x-signalbox-request-id:\n  %s explain ID --addr %s\n", os.Args[0], admin)
	fmt.Fprintf(out, "\nMetrics are at %s/metrics. Interrupt to end.\n", admin)
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.box.failed:
		return err
	}
}
