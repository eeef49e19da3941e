package extproc

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/signalbox-epp/signalbox/messages"
)

func TestStreamsAreCountedByTheirEnd(t *testing.T) {
	head := func() *ask { return qH(more, ":path: /v1/completions") }
	served := []*ask{head(), qB("{}", last), rH(more, ":status: 200"), rB("x", last)}
	for name, tc := range map[string]struct {
		setup  setup
		frames []*ask
		want   string
	}{
		"served": {setup{}, served, endedOK},
		"refused": {setup{script: fail(messages.PickFailed{Reason: messages.NoEndpoints})},
			served[:2], endedOK},
		"left before its response": {setup{}, served[:2], endedCanceled},
		"left within its response": {setup{}, served[:3], endedCanceled},
		"the handler panicked": {setup{parser: func(string, []byte) error { panic("boom") }}, served[:2],
			endedInternal},
		"a panic nobody can answer": {
			setup{scan: func(messages.API, string) Scanner { return explosive{} }}, served, endedInternal,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(tc.setup)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := r.srv.Process(newTape(ctx, tc.frames...)); err != nil {
					t.Fatal(err)
				}
				for _, code := range []string{endedOK, endedCanceled, endedInternal} {
					want := 0.0
					if code == tc.want {
						want = 1
					}
					if got := r.series(t, "llm_d_epp_extproc_streams_total", code); got != want {
						t.Errorf("%v streams ended with %s, want %v", got, code, want)
					}
				}
				if got := r.gauge(t, "llm_d_epp_extproc_streams_inflight"); got != 0 {
					t.Errorf("%v streams in flight, want 0", got)
				}
			})
		})
	}
}

// series is the sum of a family's counters with a label of this value.
func (r *rig) series(t *testing.T, name, value string) (sum float64) {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			is := func(l *dto.LabelPair) bool { return l.GetValue() == value }
			if f.GetName() == name && slices.ContainsFunc(m.GetLabel(), is) {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestHeldBodiesAreShownBesideTheirLimit(t *testing.T) {
	r := newRig(setup{config: func(c *Config) { c.MaxHeldBytes = 5000 }})
	r.registry.MustRegister(HeldMetrics(r.srv)...)
	var during float64
	r.inForce.Start = func(m messages.RequestArrived) (messages.Port[messages.CycleMsg], bool) {
		during = r.gauge(t, "signalbox_held_body_bytes")
		m.Stream.Tell(messages.PickMade{Destinations: messages.ListOf[messages.Address]("10.0.0.1:8000")})
		return &cycle{}, true
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(time.Millisecond, cancel) // the tape ends with its context
	if err := r.srv.Process(newTape(ctx, qH(more, ":path: /v1/completions"), qB("0123456789", last))); err != nil {
		t.Fatal(err)
	}
	after, limit := r.gauge(t, "signalbox_held_body_bytes"), r.gauge(t, "signalbox_held_body_limit_bytes")
	if during != 2048 || after != 0 || limit != 5000 {
		t.Errorf("held %v, %v afterwards, limit %v; want a buffer of 2048, 0, 5000", during, after, limit)
	}
}

func TestCountingAStreamAllocatesNothing(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	st := &stream{proxy: proxy{wire: newTape(t.Context())}}
	if n := testing.AllocsPerRun(100, func() { m.closed(st, m.opened()) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
