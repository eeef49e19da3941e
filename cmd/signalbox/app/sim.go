package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm"
)

// faultHelp documents vllm.Faults in the help of the command.
const faultHelp = `
  error_rate, error_status     requests answered 500, or this 5xx
  overload_rate                requests answered 503, without Retry-After
  overload_in_stream           streams among them answered 200 and an error event
  stall_rate, stall_tokens     answers that stop after so many tokens, without data or close
  stalled                      every answer stops, open ones too
  draining                     /health is 200 and each new request 500; open answers end
  engine_dead                  open streams end with an error event and [DONE]; 500 from then on
  engine_dies_after_tokens     the same, once so many tokens were generated
  render_drift                 each prompt begins with another text, so that none is cached
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
	server      vllm.Config
}

func newSim() *cobra.Command {
	o := &simOptions{}
	c := &cobra.Command{
		Use:   "sim",
		Short: "Run simulated vLLM servers",
		Long: "Run simulated vLLM servers, until interrupted. Each prints its address as \"listening HOST:PORT\".\n\n" +
			"They speak the APIs of text that Signalbox reads, SGLang's /generate among them, and none of images and " +
			"audio.\n\n" +
			"Faults are one JSON object, at the start with --faults, later with PUT /sim/faults; GET shows them, " +
			"DELETE ends them:\n" +
			faultHelp + "POST /sim/restart?down=2s restarts at once; POST /sleep and /wake_up are those of vLLM.",
		Example: "  signalbox sim --count 2 --port 8001\n" +
			"  signalbox sim --profile vllm-cpu-tiny --faults '{\"error_rate\": 0.1}'",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd) },
	}
	o.register(c.Flags())
	return c
}

func (o *simOptions) register(f *pflag.FlagSet) {
	f.IntVar(&o.count, "count", 1, "how many servers")
	f.IntVar(&o.port, "port", 8001, "port of the first; the others follow. 0 is any free port for each")
	f.StringVar(&o.bind, "bind", "127.0.0.1", "address to listen on")
	f.StringVar(&o.server.Model, "model", "sim-model", "name of the base model")
	f.StringSliceVar(&o.server.Adapters, "adapters", nil, "LoRA adapters loaded at the start")
	f.IntVar(&o.server.MaxLoRAs, "max-loras", 0, "adapters in one batch; 0 is 4 with --adapters")
	f.IntVar(&o.server.MaxRunning, "max-num-seqs", 128, "sequences in one batch")
	f.IntVar(&o.server.MaxQueued, "max-num-queued-reqs", 0,
		"sequences, running ones too, from which on new ones get 503; 0 is any number")
	f.IntVar(&o.server.KVBlocks, "num-gpu-blocks", 4096, "KV blocks")
	f.IntVar(&o.server.BlockTokens, "block-size", 16, "tokens in a KV block")
	f.IntVar(&o.server.MaxModelLen, "max-model-len", 0, "tokens of prompt and answer together; 0 is any number")
	f.Float64Var(&o.server.PrefillTokensPerSecond, "prefill-rate", 8000, "prompt tokens a second, more than 0")
	f.Float64Var(&o.server.DecodeTokensPerSecond, "decode-rate", 50,
		"tokens a second of a sequence that runs alone, more than 0")
	f.IntVar(&o.server.AnswerTokens, "answer-tokens", 256,
		"mean length of an answer in tokens, where the request sets no limit")
	f.BoolVar(&o.server.PromptTokensDetails, "enable-prompt-tokens-details", false, "cached_tokens in usage")
	f.Uint64Var(&o.server.Seed, "seed", 0, "seed of texts, lengths, ids and faults")
	f.StringVar(&o.profile, "profile", "", "a measured server: "+strings.Join(slices.Sorted(maps.Keys(vllm.Profiles)),
		", ")+"; other flags go before it")
	f.StringVar(&o.faults, "faults", "", "faults of each server, JSON")
}

func (o *simOptions) run(ctx context.Context, cmd *cobra.Command) error {
	if err := errors.Join(o.applyProfile(cmd.Flags()), o.check()); err != nil {
		return err
	}
	servers, err := o.start()
	defer stopSims(servers)
	for _, s := range servers {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "listening", s.Addr()); err != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// start starts the servers. With an error it returns those that run.
func (o *simOptions) start() (servers []*vllm.Server, err error) {
	for i := range o.count {
		c := o.server
		port := o.port
		if port != 0 {
			port += i
		}
		c.Address, c.Name, c.Seed = net.JoinHostPort(o.bind, strconv.Itoa(port)), fmt.Sprintf("sim-%d", i),
			o.server.Seed+uint64(i)
		s, err := vllm.Start(c)
		if err != nil {
			return servers, fmt.Errorf("server %d: %w%s", i, err, remedy(err, "port"))
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// stopSims ends servers, and cuts what they answer after two seconds.
func stopSims(servers []*vllm.Server) {
	last, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, s := range servers {
		if err := s.Stop(last); err != nil {
			s.Kill()
		}
	}
}

// check gives every problem of the flags at once, and reads the faults.
func (o *simOptions) check() error {
	var all []error
	bad := func(flag string, got any, want string) {
		all = append(all, fmt.Errorf("--%s: got %v, want %s", flag, got, want))
	}
	for _, n := range []struct {
		flag       string
		got, least int
	}{
		{"count", o.count, 1}, {"max-loras", o.server.MaxLoRAs, 0}, {"max-num-seqs", o.server.MaxRunning, 1},
		{"max-num-queued-reqs", o.server.MaxQueued, 0}, {"num-gpu-blocks", o.server.KVBlocks, 1},
		{"block-size", o.server.BlockTokens, 1},
		{"max-model-len", o.server.MaxModelLen, 0}, {"answer-tokens", o.server.AnswerTokens, 1},
	} {
		if n.got < n.least {
			bad(n.flag, n.got, fmt.Sprintf("%d or more", n.least))
		}
	}
	for flag, rate := range map[string]float64{"prefill-rate": o.server.PrefillTokensPerSecond,
		"decode-rate": o.server.DecodeTokensPerSecond} {
		if !(rate > 0) || math.IsInf(rate, 0) { // NaN is not more than 0
			bad(flag, rate, "more than 0")
		}
	}
	switch most := 65536 - max(o.count, 1); {
	case o.port < 0 || o.port > 65535:
		bad("port", o.port, "0 to 65535")
	case o.port > most:
		bad("port", o.port, fmt.Sprintf("%d at most, for --count %d takes as many ports from there on", most, o.count))
	}
	if _, err := netip.ParseAddr(o.bind); err != nil {
		bad("bind", strconv.Quote(o.bind), "an IP address, without a port")
	}
	if o.faults != "" {
		var err error
		if o.server.Faults, err = vllm.ParseFaults([]byte(o.faults)); err != nil {
			all = append(all, fmt.Errorf("--%w", err)) // it begins with "faults:"
		}
	}
	return errors.Join(all...)
}

// applyProfile sets what the profile says, but for the flags that were given.
func (o *simOptions) applyProfile(flags *pflag.FlagSet) error {
	if o.profile == "" {
		return nil
	}
	apply, known := vllm.Profiles[o.profile]
	if !known {
		return fmt.Errorf("--profile: got %q, want one of %s", o.profile,
			strings.Join(slices.Sorted(maps.Keys(vllm.Profiles)), ", "))
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
