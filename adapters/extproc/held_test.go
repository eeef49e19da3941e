package extproc

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Bodies that are held count together; what does not fit is refused at once, and what ends makes room.
func TestHeldBodiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(setup{script: pick("10.0.0.1:8000"), config: func(c *Config) { c.MaxHeldBytes = 7 << 10 }})
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
		}{
			{"{" + strings.Repeat(" ", 4<<10) + "}", "0s 503 overloaded", 2 << 10},
			{"{" + strings.Repeat(" ", 3<<10) + "}", "0s qH 10.0.0.1:8000", 2 << 10},
		} {
			short, end := context.WithTimeout(ctx, time.Second)
			p := newTape(short, qH(more), qB(c.body, last))
			if err := r.srv.Process(p); err != nil {
				t.Errorf("Process: %v", err)
			}
			end()
			if got := p.timed(t); len(got) == 0 || got[0] != c.want || r.srv.Held() != c.held {
				t.Errorf("%d bytes beside 2 KiB of 7: got %.100q and %d bytes held, want %s and %d", len(c.body), got,
					r.srv.Held(), c.want, c.held)
			}
		}
		if err := <-done; err != nil || r.srv.Held() != 0 {
			t.Errorf("at the end: %v, %d bytes held", err, r.srv.Held())
		}
	})
}

// A body whose length is told has the room of its beginning before it comes, or is refused before it comes.
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

// The account is that of the buffers: it grows by doubling with what has come, whatever length was told.
func TestHeldIsWhatTheBufferTakes(t *testing.T) {
	for name, told := range map[string][]string{
		"no length": {":path: /"}, "a short one": {":path: /", "content-length: 9"},
		"a long one": {":path: /", "content-length: 1000000"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			p := newTape(t.Context())
			st := newStream(r.srv, p)
			defer st.gone()
			step := func(m *ask) {
				p.frames = append(p.frames, m)
				if !st.next() || st.frames == 1 && !st.readModes() || st.onMessage() {
					t.Fatal("the stream is over")
				}
				body := &st.request.body
				room := cap(body.buffer.Bytes())
				if held := r.srv.Held(); held != int64(room) {
					t.Errorf("%d bytes held after %d of the body, want %d, its buffer", held, body.came, room)
				}
				if most := max(64<<10, 2*int(body.came)); room > most {
					t.Errorf("a buffer of %d bytes for %d that came, want at most %d", room, body.came, most)
				}
			}
			step(qH(more, told...))
			for n := 1; st.request.body.came < 900_000; n += 997 {
				step(qB(strings.Repeat(" ", n), more))
			}
		})
	}
}

// The body of a request that waits takes little more than its bytes, and comes back whole.
func TestBodyOfARequestThatWaitsSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(setup{script: func(c *cycle) {
			time.AfterFunc(time.Second, func() { pick("10.0.0.1:8000")(c) })
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var atFirst, later atomic.Int64
		time.AfterFunc(time.Millisecond, func() { atFirst.Store(r.srv.Held()) })
		time.AfterFunc(settleAfter+time.Millisecond, func() { later.Store(r.srv.Held()) })
		body := "{" + strings.Repeat("x", 40_000) + "}"
		p := newTape(ctx, qH(more), qB(body, last))
		if err := r.srv.Process(p); err != nil {
			t.Errorf("Process: %v", err)
		}
		if atFirst.Load() != 64<<10 || later.Load() != int64(len(body)) {
			t.Errorf("%d bytes are held at first and %d later, want 64 KiB and %d", atFirst.Load(), later.Load(),
				len(body))
		}
		if got := p.timed(t); len(got) != 2 || got[0] != "1s "+onePick || got[1] != fmt.Sprintf("1s qB %q eos", body) {
			t.Errorf("got %.100q, want the pick and the body", got)
		}
		if r.srv.Held() != 0 {
			t.Errorf("%d bytes are held in the end", r.srv.Held())
		}
	})
}

// A refusal gives the body's memory back at once, also if nothing is heard of the proxy any more.
func TestRefusalLetsGoOfTheBody(t *testing.T) {
	silent, drain := func(*cycle) {}, func(r *rig) { r.srv.Drain() }
	for name, tc := range map[string]struct {
		script func(*cycle)
		sent   []*ask
		refuse func(*rig) // after 2 s
		want   string
	}{
		"late":             {nil, []*ask{qH(more), qB("{", more)}, func(*rig) {}, "3s 408 body-timeout"},
		"drained, in body": {nil, []*ask{qH(more), qB("{", more)}, drain, "2s 503 rejected-shutting-down"},
		"drained, told only": {nil, []*ask{qH(more, ":path: /", "content-length: 9")}, drain,
			"2s 503 rejected-shutting-down"},
		"drained, no pick": {silent, []*ask{qH(more), qB("{}", last)}, drain, "2s 503 rejected-shutting-down"},
		"revoked, no pick": {silent, []*ask{qH(more), qB("{}", last)}, func(r *rig) {
			r.started()[0].arrived.Stream.Tell(messages.ServingRevoked{Reason: messages.NoCapacity})
		}, "2s 429 rejected-saturated"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(setup{script: tc.script, config: func(c *Config) { c.BodyTimeout = 3 * time.Second }})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var before, after int64
				time.AfterFunc(time.Second, func() { before = r.srv.Held() })
				time.AfterFunc(2*time.Second, func() { tc.refuse(r) })
				time.AfterFunc(4*time.Second, func() { after = r.srv.Held() })
				p := newTape(ctx, tc.sent...)
				if err := r.srv.Process(p); err != nil {
					t.Errorf("Process: %v", err)
				}
				<-ctx.Done()
				synctest.Wait()
				if got := fmt.Sprint(p.timed(t)); got != "["+tc.want+"]" {
					t.Errorf("answers %s, want %s", got, tc.want)
				}
				if before == 0 || after != 0 {
					t.Errorf("%d bytes held before the refusal, %d after it, want some and none", before, after)
				}
				r.settled(t)
			})
		})
	}
}
