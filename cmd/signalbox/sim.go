package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-epp/signalbox/adapters/modelserver/sim"
)

// faultHelp is what the command says of sim.Faults.
const faultHelp = `
  error_rate, error_status     requests answered 500, or this 5xx
  overload_rate                requests answered 503, without Retry-After
  overload_in_stream           streams among them answered 200 and an error event
  stall_rate, stall_tokens     answers that stop after so many tokens, without data or close
  stalled                      every answer stops, open ones too
  draining                     /health is 200 and each new request 500; open answers end
  engine_dead                  open streams end with an error event and [DONE]; 500 from then on
  engine_dies_after_tokens     the same, once so many tokens were generated
  page_delay, page_bytes       a slow and a huge metrics page
  page_broken                  "cut", "garbled" or "error"
  restart_every, restart_down  a fresh process so often, after refusing connections for so long

Rates are 0 to 1, times such as "1.5s".
`

type simOptions struct {
	count, port int
	bind        string
	faults      string
	profile     string
	server      sim.Config
}

func newSim() *cobra.Command {
	o := &simOptions{}
	c := &cobra.Command{
		Use:   "sim",
		Short: "Run simulated vLLM servers",
		Long: "Run simulated vLLM servers, until interrupted. Each prints its address as \"listening HOST:PORT\".\n\n" +
			"Faults are one JSON object, at the start with --faults, later with PUT /sim/faults; GET shows them, DELETE ends them:\n" +
			faultHelp + "POST /sim/restart?down=2s restarts at once.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd) },
	}
	f := c.Flags()
	f.IntVar(&o.count, "count", 1, "how many servers")
	f.IntVar(&o.port, "port", 8001, "port of the first; the others follow. 0 is any free port for each")
	f.StringVar(&o.bind, "bind", "127.0.0.1", "address to listen on")
	f.StringVar(&o.server.Model, "model", "sim-model", "name of the base model")
	f.StringSliceVar(&o.server.Adapters, "adapters", nil, "LoRA adapters loaded at the start")
	f.IntVar(&o.server.MaxLoRAs, "max-loras", 0, "adapters in one batch; 0 is 4 with --adapters")
	f.IntVar(&o.server.MaxRunning, "max-num-seqs", 128, "sequences in one batch")
	f.IntVar(&o.server.MaxQueued, "max-num-queued-reqs", 0, "sequences, running ones too, from which on new ones get 503; 0 is any number")
	f.IntVar(&o.server.KVBlocks, "num-gpu-blocks", 4096, "KV blocks")
	f.IntVar(&o.server.BlockTokens, "block-size", 16, "tokens in a KV block")
	f.IntVar(&o.server.MaxModelLen, "max-model-len", 0, "tokens of prompt and answer together; 0 is any number")
	f.Float64Var(&o.server.PrefillTokensPerSecond, "prefill-rate", 8000, "prompt tokens a second")
	f.Float64Var(&o.server.DecodeTokensPerSecond, "decode-rate", 50, "tokens a second of a sequence that runs alone")
	f.IntVar(&o.server.AnswerTokens, "answer-tokens", 256, "mean length of an answer")
	f.BoolVar(&o.server.PromptTokensDetails, "enable-prompt-tokens-details", false, "cached_tokens in usage")
	f.Uint64Var(&o.server.Seed, "seed", 0, "seed of texts, lengths, ids and faults")
	f.StringVar(&o.profile, "profile", "", "a measured server: "+strings.Join(slices.Sorted(maps.Keys(sim.Profiles)), ", ")+"; other flags go before it")
	f.StringVar(&o.faults, "faults", "", "faults of each server, JSON")
	return c
}

func (o *simOptions) run(ctx context.Context, cmd *cobra.Command) error {
	if o.count < 1 {
		return fmt.Errorf("--count: got %d, want 1 or more", o.count)
	}
	if err := o.applyProfile(cmd.Flags()); err != nil {
		return err
	}
	if o.faults != "" {
		var err error
		if o.server.Faults, err = sim.ParseFaults([]byte(o.faults)); err != nil {
			return err
		}
	}
	servers := make([]*sim.Server, 0, o.count)
	defer func() {
		last, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		for _, s := range servers {
			if err := s.Stop(last); err != nil {
				s.Kill()
			}
		}
	}()
	for i := range o.count {
		c := o.server
		port := o.port
		if port != 0 {
			port += i
		}
		c.Address, c.Name, c.Seed = net.JoinHostPort(o.bind, strconv.Itoa(port)), fmt.Sprintf("sim-%d", i), o.server.Seed+uint64(i)
		s, err := sim.Start(c)
		if err != nil {
			return fmt.Errorf("server %d: %w", i, err)
		}
		servers = append(servers, s)
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "listening", s.Addr()); err != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	<-ctx.Done()
	return nil
}

// applyProfile sets what the profile says, but for the flags that were given.
func (o *simOptions) applyProfile(flags *pflag.FlagSet) error {
	if o.profile == "" {
		return nil
	}
	apply, known := sim.Profiles[o.profile]
	if !known {
		return fmt.Errorf("--profile: got %q, want one of %s", o.profile, strings.Join(slices.Sorted(maps.Keys(sim.Profiles)), ", "))
	}
	given := map[string]string{}
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.Type() != "stringSlice" { // setting one appends to it, and no profile has one
			given[f.Name] = f.Value.String()
		}
	})
	apply(&o.server)
	for name, value := range given {
		if err := flags.Set(name, value); err != nil {
			return err
		}
	}
	return nil
}
