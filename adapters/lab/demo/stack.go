package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/signalbox-epp/signalbox/adapters/lab/proxy"
	"github.com/signalbox-epp/signalbox/adapters/lab/vllm"
)

const baseModel = "demo-model"

// ServersHeader names the servers that a request is limited to. The proxy makes a subset hint of it, as a gateway does
// for models that only a part of the pool has.
const ServersHeader = "x-demo-servers"

var loras = []string{"support-lora", "sql-lora"}

// servers are the simulated servers: two fast ones, a middling one with the adapters, a slow one. Each has a cache
// for a few of the groups' system prompts, never for all.
func servers(seed uint64) []vllm.Config {
	speeds := []struct {
		name            string
		prefill, decode float64 // tokens a second
		blocks          int
	}{{"fast-1", 12000, 60, 800}, {"fast-2", 12000, 60, 800}, {"lora", 9000, 50, 800}, {"slow", 6000, 40, 600}}
	var all []vllm.Config
	for _, s := range speeds {
		c := vllm.Config{
			Name: s.name, Model: baseModel, PrefillTokensPerSecond: s.prefill, DecodeTokensPerSecond: s.decode,
			KVBlocks:   s.blocks,
			MaxRunning: 24, MaxBatchedTokens: 512, BytesPerToken: tokenBytes, Tick: 5 * time.Millisecond, Seed: seed,
		}
		if s.name == "lora" {
			c.Adapters, c.MaxLoRAs = loras, len(loras)
		}
		all = append(all, c)
	}
	return all
}

// stack is everything that a run needs: simulated servers, a picker, and a proxy before it.
type stack struct {
	sims    []*vllm.Server
	configs []vllm.Config
	picker  Picker
	url     string // of the proxy
	ends    []func() error
}

// newStack starts servers, the picker with the given configuration ("" = the default), and the proxy.
func newStack(ctx context.Context, w World, servers []vllm.Config, config string) (_ *stack, err error) {
	s := &stack{configs: servers}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	folder, err := os.MkdirTemp("", "signalbox-demo-")
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() error { return os.RemoveAll(folder) })
	for _, c := range s.configs {
		server, err := vllm.Start(c)
		if err != nil {
			return nil, err
		}
		s.sims = append(s.sims, server)
		s.ends = append(s.ends, func() error { server.Kill(); return nil })
	}
	if err := s.startPicker(ctx, w, filepath.Join(folder, "endpoints.yaml"), config); err != nil {
		return nil, err
	}
	if w.Proxy == nil {
		return s, s.startProxy()
	}
	url, end, err := w.Proxy(ctx, s.picker.Addr())
	if err != nil {
		return nil, err
	}
	s.url, s.ends = url, append(s.ends, end)
	return s, nil
}

// startPicker returns when the picker knows the servers.
func (s *stack) startPicker(ctx context.Context, w World, endpoints, config string) error {
	var b strings.Builder
	b.WriteString("endpoints:\n")
	for i, each := range s.sims {
		host, port, err := net.SplitHostPort(each.Addr())
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "- {name: %s, address: %q, port: %s}\n", s.configs[i].Name, host, port)
	}
	err := os.WriteFile(endpoints, []byte(b.String()), 0o600)
	if err != nil {
		return err
	}
	if s.picker, err = w.Picker(ctx, endpoints, config); err != nil {
		return err
	}
	s.ends = append(s.ends, s.picker.Stop)
	return await(ctx, "Signalbox to know its endpoints", func() bool { return s.picker.Endpoints() == len(s.sims) })
}

// await asks every 20 ms, for 10 s at most.
func await(ctx context.Context, what string, held func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for !held() {
		if !sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		}
	}
	return nil
}

// startProxy runs the built-in proxy.
func (s *stack) startProxy() error {
	p, err := proxy.New(proxy.Config{EPP: s.picker.Addr(), Subset: func(r *http.Request) []string {
		return r.Header.Values(ServersHeader)
	}})
	if err != nil {
		return err
	}
	s.ends = append(s.ends, p.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	front := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- front.Serve(listener) }()
	s.ends = append(s.ends, func() error {
		err := front.Close()
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	})
	s.url = "http://" + listener.Addr().String()
	return nil
}

// stop ends everything, what was started last first.
func (s *stack) stop() error {
	var all []error
	for i := len(s.ends) - 1; i >= 0; i-- {
		all = append(all, s.ends[i]())
	}
	s.ends = nil
	return errors.Join(all...)
}

// lora is the address of the server with the adapters.
func (s *stack) lora() string {
	for i, c := range s.configs {
		if len(c.Adapters) > 0 {
			return s.sims[i].Addr()
		}
	}
	return ""
}

// look fills in what the servers and Signalbox's own metrics say.
func (s *stack) look(state *state) error {
	families, err := s.picker.Gather()
	if err != nil {
		return err
	}
	picks := map[string]int{}
	for _, f := range families {
		switch f.GetName() {
		case "llm_d_epp_scheduler_attempts_total":
			for _, m := range f.GetMetric() {
				picks[label(m, "endpoint_name")] += int(m.GetCounter().GetValue())
			}
		case "llm_d_epp_scheduler_e2e_duration_seconds":
			state.describePicks(f.GetMetric()[0].GetHistogram())
		}
	}
	state.Endpoints = state.Endpoints[:0]
	for i, each := range s.sims {
		now, c := each.Stats(), s.configs[i]
		kind := fmt.Sprintf("%.0f tok/s", c.PrefillTokensPerSecond)
		if len(c.Adapters) > 0 {
			kind += ", LoRA"
		}
		state.Endpoints = append(state.Endpoints, endpointState{
			Name: c.Name, Address: each.Addr(), Kind: kind, Picks: picks[c.Name], Running: now.Running,
			Waiting:     now.Waiting,
			KVUsedRatio: now.KVUsedRatio, Queried: now.QueriedTokens, Hit: now.HitTokens,
		})
	}
	return nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// describePicks fills in how long picks took. Beyond the last bucket the bound is infinite, which no duration can say.
func (s *state) describePicks(h *dto.Histogram) {
	count := h.GetSampleCount()
	s.Picks, s.PickMean, s.PickP95 = int(count), 0, 0
	if count == 0 {
		return
	}
	s.PickMean = time.Duration(h.GetSampleSum() / float64(count) * float64(time.Second))
	s.PickP95 = time.Duration(math.MaxInt64)
	for _, b := range h.GetBucket() {
		if float64(b.GetCumulativeCount()) >= 0.95*float64(count) && !math.IsInf(b.GetUpperBound(), 1) {
			s.PickP95 = time.Duration(b.GetUpperBound() * float64(time.Second))
			return
		}
	}
}
