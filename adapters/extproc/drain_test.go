package extproc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A drain answers what waits, for its body or for its pick, and leaves alone what was answered or is only watched.
func TestDrainRefusesWhatWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		script func(*cycle)
		sent   []*ask
		want   []string
	}{
		"for the body": {nil, []*ask{qH(more), qB("{", more)}, []string{"2s 503 rejected-shutting-down"}},
		"for a pick":   {func(*cycle) {}, []*ask{qH(last)}, []string{"2s 503 rejected-shutting-down"}},
		"answered":     {pick("10.0.0.1:8000"), []*ask{qH(last)}, []string{"0s qH 10.0.0.1:8000"}},
		"nothing yet":  {nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(setup{script: tc.script, config: func(c *Config) { c.BodyTimeout, c.AnswerWithin = time.Hour, time.Hour }})
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
				if n := r.srv.Open(); n != 0 {
					t.Errorf("%d streams open at the end", n)
				}
				r.settled(t)
			})
		})
	}
}
