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

// Bodies that are held count together; what does not fit is refused at once, and what ends makes room.
func TestHeldBodiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(setup{script: pick("10.0.0.1:8000"), config: func(c *Config) { c.MaxHeldBytes = 5 }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		slow := newTape(ctx, qH(more), qB("{  ", more), qB("}", last))
		slow.pauseBefore, slow.pause = 1, 10*time.Second
		done := make(chan error, 1)
		go func() { done <- r.srv.Process(slow) }()
		synctest.Wait()
		for _, c := range []struct {
			body, want string
			held       int64
		}{{"{  }", "0s 503 overloaded", 3}, {"{}", "0s qH 10.0.0.1:8000", 3}} {
			short, end := context.WithTimeout(ctx, time.Second)
			p := newTape(short, qH(more), qB(c.body, last))
			if err := r.srv.Process(p); err != nil {
				t.Errorf("Process: %v", err)
			}
			end()
			if got := p.timed(t); len(got) == 0 || got[0] != c.want || r.srv.Held() != c.held {
				t.Errorf("%q beside 3 bytes of 5: got %v and %d bytes held, want %s and %d", c.body, got, r.srv.Held(), c.want, c.held)
			}
		}
		if err := <-done; err != nil || r.srv.Held() != 0 {
			t.Errorf("at the end: %v, %d bytes held", err, r.srv.Held())
		}
	})
}

// A body whose length is told has its room before it comes, or is refused before it comes.
func TestToldLengthIsHeldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(setup{script: pick("10.0.0.1:8000"), config: func(c *Config) { c.MaxHeldBytes = 100 << 10 }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		first := newTape(ctx, qH(more, "content-length: 60000"), qB("{}", last))
		first.pauseBefore, first.pause = 1, 10*time.Second
		done := make(chan error, 1)
		go func() { done <- r.srv.Process(first) }()
		synctest.Wait()
		if got := r.srv.Held(); got != 64<<10 {
			t.Errorf("%d bytes held for a body of 60 000, want its buffer of %d", got, 64<<10)
		}
		second := newTape(ctx, qH(more, "content-length: 60000"))
		if err := r.srv.Process(second); err != nil {
			t.Errorf("Process: %v", err)
		}
		if got := second.timed(t); len(got) != 1 || got[0] != "0s 503 overloaded" {
			t.Errorf("the second: got %v, want 0s 503 overloaded", got)
		}
		if err := <-done; err != nil || r.srv.Held() != 0 {
			t.Errorf("at the end: %v, %d bytes held", err, r.srv.Held())
		}
	})
}
