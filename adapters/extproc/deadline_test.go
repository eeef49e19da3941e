package extproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

// counted is a pool that knows how many of its buffers are in use.
type counted struct{ live atomic.Int64 }

func (p *counted) Get(n int) *[]byte {
	p.live.Add(1)
	b := make([]byte, n)
	return &b
}

func (p *counted) Put(*[]byte) { p.live.Add(-1) }

// tape is a wire.Stream without a network: it gives out frames and takes down answers. Without a frame Recv waits for
// the end of its context, or gives io.EOF if half is set.
type tape struct {
	ctx         context.Context
	pool        counted
	frames      []*ask
	half        bool
	pauseBefore int // pause is taken when so many frames are left
	pause       time.Duration
	sendOK      int // so many Sends succeed; negative = all
	at          []time.Duration
	sent        []*answer
	begin       time.Time
}

func newTape(ctx context.Context, frames ...*ask) *tape {
	return &tape{ctx: ctx, frames: frames, sendOK: -1, begin: time.Now()}
}

func (p *tape) Context() context.Context { return p.ctx }

func (p *tape) Recv(r *wire.Request) error {
	r.Release()
	if len(p.frames) == 0 {
		if p.half {
			return io.EOF
		}
		<-p.ctx.Done()
		return p.ctx.Err()
	}
	if len(p.frames) == p.pauseBefore {
		<-time.After(p.pause)
	}
	raw, err := proto.Marshal(p.frames[0])
	if err != nil {
		return err
	}
	p.frames = p.frames[1:]
	var pieces mem.BufferSlice
	for len(raw) > 0 { // as grpc cuts them
		b := p.pool.Get(min(len(raw), 16<<10))
		raw = raw[copy(*b, raw):]
		if mem.IsBelowBufferPoolingThreshold(cap(*b)) {
			p.pool.Put(b)
		}
		pieces = append(pieces, mem.NewBuffer(b, &p.pool))
	}
	defer pieces.Free()
	return wire.Codec{}.Unmarshal(pieces, r)
}

func (p *tape) Send(r *wire.Response) error {
	frame, err := wire.Codec{}.Marshal(r)
	if err != nil {
		return err
	}
	defer frame.Free()
	if p.sendOK == 0 {
		return errors.New("nobody is there")
	}
	p.sendOK--
	m := new(extprocv3.ProcessingResponse)
	if err := proto.Unmarshal(frame.Materialize(), m); err != nil {
		return err
	}
	p.sent, p.at = append(p.sent, m), append(p.at, time.Since(p.begin))
	return nil
}

// timed are the answers with the time they were sent at.
func (p *tape) timed(t *testing.T) []string {
	t.Helper()
	var out []string
	for i, l := range transcript(t, p.sent) {
		out = append(out, fmt.Sprintf("%v %s", p.at[i], l))
	}
	return out
}

// Each wait has its deadline; the clock is that of the test's bubble, so the times are exact.
func TestDeadlines(t *testing.T) {
	after := func(d time.Duration, script func(*cycle)) func(*cycle) {
		return func(c *cycle) { time.AfterFunc(d, func() { script(c) }) }
	}
	due := func(d time.Duration, then func(*cycle)) func(*cycle) {
		return func(c *cycle) {
			c.arrived.Stream.Tell(messages.AnswerDue{At: time.Now().Add(d)})
			then(c)
		}
	}
	tests := map[string]struct {
		script func(*cycle)
		sent   []*ask
		want   []string
		told   string
	}{
		"9 headers, then silence": {nil, []*ask{qH(more)}, []string{"30s 408 body-timeout"}, ""},
		"36 the length came, no end": {nil, []*ask{qH(more, ":path: /", "content-length: 2"), qB("{}", more)},
			[]string{"30s 408 body-timeout"}, ""},
		"a response of the proxy's": {nil, []*ask{qH(more), qB("{", more), rH(more), rB("x", more)},
			[]string{"0s rH", `0s rB "x"`}, ""},
		"one without headers": {nil, []*ask{qH(more), qB("{", more), rB("x", more)}, []string{`0s rB "x"`}, ""},
		"a whole body in time": {pick("10.0.0.1:8000"), []*ask{qH(last)}, []string{"0s qH 10.0.0.1:8000"},
			gone(false, 1)},
		"no answer": {func(*cycle) {}, []*ask{qH(last)}, []string{"11s 503 pick-timeout"}, gone(false, 1) +
			" pick-timeout"},
		"a late answer": {after(10500*time.Millisecond, pick("10.0.0.1:8000")), []*ask{qH(last)},
			[]string{"10.5s qH 10.0.0.1:8000"}, gone(false, 1)},
		"an answer too late": {after(12*time.Second, pick("10.0.0.1:8000")), []*ask{qH(last)},
			[]string{"11s 503 pick-timeout"}, gone(false, 1) + " pick-timeout"},
		"due later": {due(time.Minute, after(50*time.Second, pick("10.0.0.1:8000"))), []*ask{qH(last)},
			[]string{"50s qH 10.0.0.1:8000"}, gone(false, 1)},
		"due later, no answer": {due(time.Minute, func(*cycle) {}), []*ask{qH(last)}, []string{"1m1s 503 pick-timeout"},
			gone(false, 1) + " pick-timeout"},
		"due twice": {due(20*time.Second, after(15*time.Second, due(time.Minute, func(*cycle) {}))),
			[]*ask{qH(last)}, []string{"1m16s 503 pick-timeout"}, gone(false, 1) + " pick-timeout"},
		"due sooner": {due(time.Second, func(*cycle) {}), []*ask{qH(last)}, []string{"11s 503 pick-timeout"},
			gone(false, 1) + " pick-timeout"},
		"a late failure": {after(5*time.Second, fail(messages.PickFailed{Reason: messages.NoEndpoints})),
			[]*ask{qH(last)}, []string{"5s 503 rejected-no-endpoints"}, gone(false, 1)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(setup{script: tc.script, config: func(c *Config) {
					c.BodyTimeout, c.AnswerWithin = 30*time.Second, 10*time.Second
				}})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				p := newTape(ctx, tc.sent...)
				if err := r.srv.Process(p); err != nil {
					t.Errorf("Process: %v", err)
				}
				if diff := cmp.Diff(tc.want, p.timed(t)); diff != "" {
					t.Errorf("answers, want -, got +:\n%s", diff)
				}
				r.settled(t)
				if tc.told != "" {
					if got := strings.Join(r.only(t).lines(), "\n"); got != tc.told {
						t.Errorf("told %q, want %q", got, tc.told)
					}
				}
			})
		})
	}
}

// Frames after a refusal end the stream, whatever they hold, and nothing is sent any more; not after the end either.
func TestNothingAfterARefusal(t *testing.T) {
	for name, late := range map[string]*ask{
		"a chunk": qB("x", more), "a chunk over the limit": qB(strings.Repeat("x", testLimit+1), more),
		"the end": qB("}", last), "nothing": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(setup{config: func(c *Config) { c.BodyTimeout = 30 * time.Second }})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				p := newTape(ctx, qH(more), late)
				p.pauseBefore, p.pause = 1, time.Minute
				if err := r.srv.Process(p); err != nil || time.Since(p.begin) != time.Minute {
					t.Errorf("Process ends with %v after %v, want at the next frame", err, time.Since(p.begin))
				}
				if diff := cmp.Diff([]string{"30s 408 body-timeout"}, p.timed(t)); diff != "" {
					t.Errorf("answers, want -, got +:\n%s", diff)
				}
			})
		})
	}
}

// Where a message cannot be sent nothing else is, and the proxy is not counted as refused.
func TestNothingAfterABrokenSend(t *testing.T) {
	r := newRig(setup{})
	p := newTape(t.Context())
	p.sendOK = 0
	st := newStream(r.srv, p)
	if err := st.send(func(out *wire.Response) { out.SetEmptyHeaders(wire.RequestDirection) }); err == nil {
		t.Fatal("it can be sent")
	}
	p.sendOK = -1
	st.refuse(messages.PickFailed{Reason: messages.Internal})
	if n := r.series(t, "signalbox_refusals_total", "internal"); len(p.sent) != 0 || n != 0 {
		t.Errorf("then comes %v, %v counted as refused", p.sent, n)
	}
}

func TestNothingAfterTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(setup{})
		p := newTape(t.Context(), qH(last))
		p.half = true
		if err := r.srv.Process(p); err != nil {
			t.Errorf("Process: %v", err)
		}
		r.only(t).arrived.Stream.Tell(messages.ServingRevoked{Reason: messages.NoCapacity})
		synctest.Wait()
		if diff := cmp.Diff([]string{"0s qH 10.0.0.1:8000"}, p.timed(t)); diff != "" {
			t.Errorf("answers, want -, got +:\n%s", diff)
		}
	})
}

// A response that lives is reported at most every ten seconds: that is checked on the clock of the bubble.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(setup{})
		st := newStream(r.srv, newTape(t.Context()))
		st.cycle = &cycle{}
		for range 25 {
			st.tellProgress(1)
			<-time.After(time.Second)
		}
		st.tellProgress(0)
		want := []string{"first", "progressed", "progressed"}
		if diff := cmp.Diff(want, st.cycle.(*cycle).lines()); diff != "" {
			t.Errorf("25 chunks, one a second: want -, got +:\n%s", diff)
		}
	})
}

// Received buffers go back before the wait for a pick, and everything when the stream ends, however it does.
func TestMemoryIsReleased(t *testing.T) {
	big := strings.Repeat("x", 200_000)
	full := []*ask{qH(more), qB(big, more), qB(big, last), rH(more), rB(big, more), rB(big, last)}
	tests := map[string]struct {
		setup  setup
		frames []*ask
		sendOK int
	}{
		"a full cycle":          {setup{}, full, -1},
		"trailers":              {setup{}, []*ask{qH(more), qB(big, more), qT(), rH(more), rB(big, more), rT()}, -1},
		"left in the body":      {setup{}, full[:2], -1},
		"left in the response":  {setup{}, full[:5], -1},
		"a failed pick":         {setup{script: fail(messages.PickFailed{Reason: messages.NoEndpoints})}, full, -1},
		"over the limit":        {setup{config: func(c *Config) { c.MaxBodyBytes = 300_000 }}, full, -1},
		"a parser's panic":      {setup{parser: func(string, []byte) error { panic("boom") }}, full, -1},
		"a panic in the answer": {setup{scan: func(messages.API, string) Scanner { return explosive{} }}, full, -1},
		"no mode of ours":       {setup{}, []*ask{withModes(qB(big, last), 99, 0)}, -1},
	}
	for n := range 14 {
		tests[fmt.Sprintf("%d sends succeed", n)] = struct {
			setup  setup
			frames []*ask
			sendOK int
		}{setup{}, full, n}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := newTape(t.Context(), tc.frames...)
			p.half, p.sendOK = true, tc.sendOK
			script := tc.setup.script
			if script == nil {
				script = pick("10.0.0.1:8000")
			}
			tc.setup.script = func(c *cycle) {
				if n := p.pool.live.Load(); n != 0 {
					t.Errorf("%d received buffers are held while the pick is awaited", n)
				}
				script(c)
			}
			r := newRig(tc.setup)
			st := newStream(r.srv, p)
			func() {
				defer st.gone()
				st.serve()
			}()
			if n, held := p.pool.live.Load(), st.request.body.buffer.Bytes(); n != 0 || held != nil {
				t.Errorf("%d received buffers and %d bytes of body are held after the end", n, len(held))
			}
			r.settled(t)
		})
	}
}
