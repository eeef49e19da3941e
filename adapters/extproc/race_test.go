package extproc

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signalbox-epp/signalbox/messages"
)

const rounds = 300

// until receives until a line satisfies done, or the stream ends.
func (c *call) until(done func(string) bool) (lines []string) {
	c.t.Helper()
	for {
		m, err := c.stream.Recv()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			c.t.Fatalf("after %q: %v", lines, err)
		}
		lines = append(lines, line(c.t, m))
		if done(lines[len(lines)-1]) {
			return lines
		}
	}
}

func final(l string) bool { return l[0] >= '4' && l[0] <= '5' }

// The body's deadline against the body's last chunk: one of them wins, and a cycle starts only if it is the chunk.
// On a machine that is too busy for any chunk to be in time, the limit is longer.
func TestBodyTimeoutAgainstLastChunk(t *testing.T) {
	for limit := 3 * time.Millisecond; ; limit *= 4 {
		r := newRig(setup{config: func(c *Config) { c.BodyTimeout = limit }})
		client, seen := r.serve(t), map[string]int{}
		for i := range rounds {
			c := open(t, client)
			c.send(qH(more), qB("{", more))
			<-time.After(limit * time.Duration(i%20) / 10) // from at once to twice the limit
			seen[strings.Join(converseLines(t, c, qB("}", last)), ", ")]++
		}
		if started := len(r.started()); started > 0 || limit > 100*time.Millisecond {
			checkTimeouts(t, seen, started)
			return
		}
	}
}

// The same with both at one instant of a bubble's clock.
func TestBodyTimeoutAtLastChunk(t *testing.T) {
	seen, started := map[string]int{}, 0
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(setup{config: func(c *Config) { c.BodyTimeout = time.Second }})
			p := newTape(t.Context(), qH(more), qB("{", more), qB("}", last))
			p.half, p.pauseBefore, p.pause = true, 1, time.Second
			if err := r.srv.Process(p); err != nil {
				t.Errorf("Process: %v", err)
			}
			r.settled(t)
			seen[strings.Join(transcript(t, p.sent), ", ")]++
			started += len(r.started())
		})
	}
	checkTimeouts(t, seen, started)
}

func checkTimeouts(t *testing.T, seen map[string]int, started int) {
	t.Helper()
	timeout, pick := seen["408 body-timeout"], seen[strings.Join(served(), ", ")]
	if timeout+pick != rounds || timeout == 0 || pick == 0 || pick != started {
		t.Errorf("saw %v, %d cycles, want 408 or a pick, each at times, and a cycle for each pick", seen, started)
	}
}

func converseLines(t *testing.T, c *call, list ...*ask) []string {
	t.Helper()
	c.send(list...)
	return transcript(t, c.finish())
}

// hesitate lets others run, by turns more and less.
func hesitate(n int) {
	for range n {
		runtime.Gosched()
	}
}

// A revocation against the answer to the headers: the client gets a refusal as the last thing, after any part of the
// answer.
func TestRevocationAgainstHeadersAnswer(t *testing.T) {
	revoke := messages.ServingRevoked{Reason: messages.NoCapacity, RetryAfter: time.Second}
	for name, script := range map[string]func(*cycle){
		"after the pick": func(c *cycle) {
			pick("10.0.0.1:8000")(c)
			c.arrived.Stream.Tell(revoke)
		},
		"elsewhere": elsewhere(func(c *cycle) {
			pick("10.0.0.1:8000")(c)
			hesitate(int(c.arrived.Request.ID) % 30)
			c.arrived.Stream.Tell(revoke)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{script: script})
			client, seen := r.serve(t), map[string]int{}
			for range rounds {
				c := open(t, client)
				c.send(qH(more), qB("{}", last))
				lines := c.until(final)
				if rest := c.finish(); len(rest) > 0 {
					t.Fatalf("after the refusal comes %q", transcript(t, rest))
				}
				seen[strings.Join(lines, ", ")]++
			}
			refusal := "429 rejected-saturated"
			legal := map[string]bool{refusal: true, strings.Join(served(refusal), ", "): true, "qH 10.0.0.1:8000, " +
				refusal: true}
			for got := range seen {
				if !legal[got] {
					t.Errorf("saw %q, want the answer or a part of it, then the refusal", got)
				}
			}
			for _, c := range r.started() {
				if got := c.lines()[0]; !strings.HasSuffix(got, " rejected-saturated") {
					t.Fatalf("told %q, want the refusal named", got)
				}
			}
			t.Log(seen)
		})
	}
}

// A revocation against the end of the response: whatever has ended is not refused any more, and nothing follows a
// refusal.
func TestRevocationAgainstResponse(t *testing.T) {
	for _, trigger := range []string{"started", "first", "ended"} {
		t.Run(trigger, func(t *testing.T) {
			r := newRig(setup{onTell: func(c *cycle, m messages.CycleMsg) {
				if told := c.lines(); strings.HasPrefix(told[len(told)-1], trigger) {
					go func() {
						hesitate(int(c.arrived.Request.ID) % 30 * 20)
						c.arrived.Stream.Tell(messages.ServingRevoked{Reason: messages.ResponseIdle})
					}()
				}
			}})
			client, seen := r.serve(t), map[string]int{}
			for range rounds {
				c, got := open(t, client), []string{}
				c.send(qH(more), qB("{}", last))
				got = append(got, line(t, c.receive()), line(t, c.receive()))
				for _, m := range []*ask{rH(more), rB("a", more), rB("b", more), rB("c", last)} {
					c.send(m)
					if got = append(got, line(t, c.receive())); final(got[len(got)-1]) {
						break
					}
				}
				got = append(got, transcript(t, c.finish())...)
				seen[strings.Join(got, ", ")]++
			}
			whole := served("rH", `rB "a"`, `rB "b"`, `rB "c" eos`)
			legal := map[string]bool{strings.Join(whole, ", "): true}
			for i := 3; i < len(whole) && trigger != "ended"; i++ {
				legal[strings.Join(append(whole[:i:i], "504 response-idle"), ", ")] = true
			}
			for got := range seen {
				if !legal[got] {
					t.Errorf("saw %q, want a response that ends or is cut by one refusal", got)
				}
			}
			for _, c := range r.started() {
				told := strings.Join(c.lines(), "\n")
				if ended := strings.Contains(told, "ended"); ended != strings.Contains(told, "completed=true") ||
					ended == strings.Contains(told, "response-idle") {
					t.Fatalf("told\n%s\nwant it ended, or refused", told)
				}
			}
			t.Log(seen)
		})
	}
}

// The same with the revocation and the last chunk at one instant of a bubble's clock.
func TestRevocationAtResponseEnd(t *testing.T) {
	for name, end := range map[string]*ask{"last chunk": rB("c", last), "trailers": rT(), "headers": rH(last)} {
		t.Run(name, func(t *testing.T) {
			refusals := 0
			for range rounds {
				synctest.Test(t, func(t *testing.T) {
					refusals += revokeAt(t, end)
				})
			}
			if refusals == 0 || refusals == rounds {
				t.Errorf("%d of %d were refused, want some and not all", refusals, rounds)
			}
		})
	}
}

// revokeAt returns 1 if the client was refused, 0 if the response ended.
func revokeAt(t *testing.T, end *ask) int {
	t.Helper()
	r := newRig(setup{script: func(c *cycle) {
		pick("10.0.0.1:8000")(c)
		time.AfterFunc(time.Second,
			func() { c.arrived.Stream.Tell(messages.ServingRevoked{Reason: messages.ResponseIdle}) })
	}})
	frames := asked(rH(more), rB("a", more), end)
	if end.GetResponseHeaders() != nil {
		frames = asked(end)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := newTape(ctx, frames...)
	p.pauseBefore, p.pause = 1, time.Second
	if err := r.srv.Process(p); err != nil {
		t.Errorf("Process: %v", err)
	}
	r.settled(t)
	got := transcript(t, p.sent)
	n := 0
	for _, l := range got {
		if final(l) {
			n++
		}
	}
	told := strings.Join(r.only(t).lines(), "\n")
	if n > 1 || n == 1 && !final(got[len(got)-1]) || (n == 1) == strings.Contains(told, "completed=true") {
		t.Errorf("answered %q, told\n%s\nwant one end", got, told)
	}
	return n
}

// The client may leave at any step, with the pick there, on its way, or never to come.
func TestClientLeavesAtAnyStep(t *testing.T) {
	steps := asked(rH(more), rB("a", more), rB("b", last))
	release := make(chan struct{})
	for name, script := range map[string]func(*cycle){
		"picked": pick("10.0.0.1:8000"), "picked elsewhere": elsewhere(pick("10.0.0.1:8000")),
		"never picked":     func(*cycle) {},
		"failed elsewhere": elsewhere(fail(messages.PickFailed{Reason: messages.NoEndpoints})),
		"revoked elsewhere": elsewhere(func(c *cycle) {
			pick("10.0.0.1:8000")(c)
			c.arrived.Stream.Tell(messages.ServingRevoked{Reason: messages.NoCapacity})
		}),
		"picked too late": elsewhere(func(c *cycle) {
			<-release
			pick("10.0.0.1:8000")(c)
			c.arrived.Stream.Tell(messages.ServingRevoked{Reason: messages.NoCapacity})
		}),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{script: script, config: func(c *Config) { c.BodyTimeout = 100 * time.Microsecond }})
			client := r.serve(t)
			for i := range rounds {
				c := open(t, client)
				sent := i % (len(steps) + 1)
				c.send(steps[:sent]...)
				if i%3 == 0 && sent >= 2 && name == "picked" {
					c.receive()
				}
				c.cancel()
				for {
					if _, err := c.stream.Recv(); err != nil {
						break
					}
				}
			}
		})
	}
	close(release)
}

// A client's own deadline ends the wait for a pick.
func TestClientDeadline(t *testing.T) {
	r := newRig(setup{script: func(*cycle) {}})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	stream, err := r.serve(t).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(qH(last)); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, want the deadline", err)
	}
}

// A stream has the one goroutine that gRPC gives it, from its first message to its last.
func TestStreamHasOneGoroutine(t *testing.T) {
	const streams = 20
	r := newRig(setup{})
	client := r.serve(t)
	for range streams {
		c := open(t, client)
		c.send(qH(last), rH(more, ":status: 200"))
		c.receive()
		c.receive()
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for of := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(of, "extproc.(*Server).") || strings.Contains(of, "extproc.(*stream).") {
			n++
		}
	}
	if n != streams {
		t.Errorf("%d streams have %d goroutines", streams, n)
	}
}
