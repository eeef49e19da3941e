package extproc

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
)

// drained is what a stream sent, and what it is answered when a drain comes 2 s later.
type drained struct {
	script func(*cycle)
	sent   []*ask
	want   []string
	ended  time.Duration // when the stream is over, for a client that stays for a minute
}

// drainRows are streams in every body mode, in each of the states that a drain can meet.
func drainRows() map[string]drained {
	silent, refusal := func(*cycle) {}, "2s 503 rejected-shutting-down"
	rows := map[string]drained{"nothing yet": {nil, nil, nil, time.Minute}}
	for name, mode := range bodyModes {
		head := func(eos bool) *ask { return withModes(qH(eos), mode, fds) }
		rows[name+": for a pick"] = drained{silent, []*ask{head(last)}, []string{refusal}, 2 * time.Second}
		rows[name+": answered"] = drained{nil, []*ask{head(last)}, []string{"0s " + onePick}, time.Minute}
		if eager(wire.BodyMode(mode)) {
			rows[name+": for a pick before the body"] = drained{silent, []*ask{head(more), qB("{", last)},
				[]string{refusal}, 2 * time.Second}
			rows[name+": answered before the body"] = drained{nil, []*ask{head(more)}, []string{"0s " + onePick},
				time.Minute}
			continue
		}
		var first []string
		picked := []string{"0s " + onePick, `0s qB "{}" eos`}
		if buffered(wire.BodyMode(mode)) {
			first = []string{"0s qH -"}
			picked = []string{"0s qB pick 10.0.0.1:8000"}
		} else {
			rows[name+": in the body"] = drained{nil, []*ask{head(more), qB("{", more)}, []string{refusal}, time.Minute}
		}
		after := func(more ...string) []string { return slices.Concat(first, more) }
		rows[name+": for the body"] = drained{nil, []*ask{head(more)}, after(refusal), time.Minute}
		rows[name+": for a pick with the body"] = drained{silent, []*ask{head(more), qB("{}", last)}, after(refusal),
			2 * time.Second}
		rows[name+": answered with the body"] = drained{nil, []*ask{head(more), qB("{}", last)}, after(picked...),
			time.Minute}
		rows[name+": answered by the proxy"] = drained{nil, []*ask{head(more), rH(more)}, after("0s rH"), time.Minute}
		rows[name+": answered by the proxy, unseen"] = drained{nil, []*ask{head(more), rB("x", more)},
			after(`0s rB "x"`), time.Minute}
	}
	return rows
}

// A drain answers what waits, for its body or for its pick, and leaves alone what was answered or is only watched.
func TestDrainRefusesWhatWaits(t *testing.T) {
	for name, tc := range drainRows() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(setup{script: tc.script})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				p := newTape(ctx, tc.sent...)
				time.AfterFunc(2*time.Second, r.srv.Drain)
				if err := r.srv.Process(p); err != nil {
					t.Errorf("Process: %v", err)
				}
				if diff := cmp.Diff(tc.want, p.timed(t)); diff != "" {
					t.Errorf("answers, want -, got +:\n%s", diff)
				}
				if got := time.Since(p.begin); got != tc.ended {
					t.Errorf("the stream ends after %v, want %v", got, tc.ended)
				}
				r.settled(t)
			})
		})
	}
}
