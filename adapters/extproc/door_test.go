package extproc

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/messages"
)

// spaces is a body of 4 KiB.
var spaces = "{" + strings.Repeat(" ", 4<<10-2) + "}"

// Answers of capacity to a stream that asks for memory.

// evicts has the oldest request make way, after a while.
func evicts(after time.Duration) func(*rig, messages.MemoryRequested) bool {
	return func(r *rig, m messages.MemoryRequested) bool {
		victim := r.started()[0].arrived.Stream
		time.AfterFunc(after, func() { victim.Tell(messages.PickFailed{Reason: messages.Displaced}) })
		m.Stream.Tell(messages.MemoryYielded{Enough: true, RetryAfter: time.Second})
		return true
	}
}

func yieldsNone(_ *rig, m messages.MemoryRequested) bool {
	m.Stream.Tell(messages.MemoryYielded{RetryAfter: 7 * time.Second})
	return true
}

func yieldsInVain(_ *rig, m messages.MemoryRequested) bool {
	m.Stream.Tell(messages.MemoryYielded{Enough: true, RetryAfter: time.Second})
	return true
}

func refusesToSay(*rig, messages.MemoryRequested) bool { return false }

// withoutServer has the pool be empty when memory is asked for.
func withoutServer(
	yields func(*rig, messages.MemoryRequested) bool,
) func(*rig, messages.MemoryRequested) bool {
	return func(r *rig, m messages.MemoryRequested) bool {
		r.empty.Store(true)
		return yields(r, m)
	}
}

const (
	saturated = "429 rejected-saturated"
	noServer  = "503 rejected-no-endpoints"
)

// A body that does not fit has others make way, and waits for their memory, until its deadline at the latest.
func TestBodyTakesRoomOfOthers(t *testing.T) {
	body := qB(spaces, last)
	for name, tc := range map[string]struct {
		makeWay func(*rig, messages.MemoryRequested) bool
		comes   []*ask
		then    func(*rig, context.CancelFunc) // a second later
		want    []string
		waiting string // the answer to the request that waits
	}{
		"at once": {
			evicts(0), []*ask{qH(more), body}, nil, []string{"0s " + onePick, "0s qB"}, "0s 429 evicted-priority",
		},
		"later": {
			evicts(2 * time.Second), []*ask{qH(more), body}, nil, []string{"2s " + onePick, "2s qB"},
			"2s 429 evicted-priority",
		},
		"its length is told": {
			evicts(2 * time.Second), []*ask{qH(more, ":path: /", "content-length: 4096"), body}, nil,
			[]string{"2s " + onePick, "2s qB"}, "2s 429 evicted-priority",
		},
		"nobody makes way": {yieldsNone, []*ask{qH(more), body}, nil, []string{"0s " + saturated}, ""},
		"in vain":          {yieldsInVain, []*ask{qH(more), body}, nil, []string{"30s " + saturated}, ""},
		"nobody makes way, and there is no server": {
			withoutServer(yieldsNone), []*ask{qH(more), body}, nil, []string{"0s " + noServer}, "",
		},
		"in vain, and there is no server": {
			withoutServer(yieldsInVain), []*ask{qH(more), body}, nil, []string{"30s " + noServer}, "",
		},
		"in vain, before its end": {
			yieldsInVain, []*ask{qH(more), qB(spaces, more)}, nil, []string{"30s " + saturated}, "",
		},
		"in vain, in mode BUFFERED": {
			yieldsInVain, []*ask{withModes(qH(more), whole, fds), body}, nil,
			[]string{"0s qH -", "8s " + saturated}, "",
		},
		"capacity is overrun": {refusesToSay, []*ask{qH(more), body}, nil, []string{"0s 503 overloaded"}, ""},
		"drained": {
			yieldsInVain, []*ask{qH(more), body}, func(r *rig, _ context.CancelFunc) { r.srv.Drain() },
			[]string{"1s 503 rejected-shutting-down"}, "1s 503 rejected-shutting-down",
		},
		"its client leaves": {
			yieldsInVain, []*ask{qH(more), body}, func(_ *rig, leave context.CancelFunc) { leave() }, nil, "",
		},
		"nobody can": {nil, []*ask{qH(more), body}, nil, []string{"0s 503 overloaded"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDoorway(t, 7, tc.makeWay)
				waiting := d.process(qH(more), qB(spaces, last))
				newcomer := d.process(tc.comes...)
				if tc.then != nil {
					time.AfterFunc(time.Second, func() { tc.then(d.rig, newcomer.leave) })
				}
				<-time.After(time.Minute)
				if got := newcomer.cut(t); !cmp.Equal(got, tc.want) {
					t.Errorf("the newcomer got %q, want %q", got, tc.want)
				}
				if got := strings.Join(waiting.cut(t), ", "); got != tc.waiting {
					t.Errorf("the one that waits got %q, want %q", got, tc.waiting)
				}
				waiting.leave()
				newcomer.leave()
				synctest.Wait()
				if !d.srv.held.Take(d.srv.held.Limit(), 0) {
					t.Errorf("%d bytes are held in the end, or others wait for them", d.srv.Held())
				}
				d.settled(t)
			})
		})
	}
}

// doorway is a rig with room for so many KiB of bodies. The first request waits for its pick, the others have
// theirs at once.
type doorway struct {
	*rig
	t *testing.T
}

func newDoorway(t *testing.T, kib int64, makeWay func(*rig, messages.MemoryRequested) bool) *doorway {
	t.Helper()
	d := &doorway{t: t}
	d.rig = newRig(setup{
		makeWay: makeWay, priorities: map[string]int{"low": -1, "high": 1},
		script: func(c *cycle) {
			if c.arrived.Request.ID > 1 {
				pick("10.0.0.1:8000")(c)
			}
		},
		config: func(c *Config) {
			c.MaxHeldBytes, c.BodyTimeout, c.WaitOtherModes = kib<<10, 30*time.Second, 8*time.Second
		},
	})
	return d
}

// doorTape is a tape whose client can leave.
type doorTape struct {
	*tape
	leave context.CancelFunc
}

// process serves a stream until its client leaves, and returns once it waits or is over.
func (d *doorway) process(frames ...*ask) doorTape {
	d.t.Helper()
	ctx, leave := context.WithCancel(d.t.Context())
	p := newTape(ctx, frames...)
	go func() {
		if err := d.srv.Process(p); err != nil {
			d.t.Errorf("Process: %v", err)
		}
	}()
	synctest.Wait()
	return doorTape{p, leave}
}

// cut are the answers, without what bodies hold.
func (p doorTape) cut(t *testing.T) (out []string) {
	t.Helper()
	synctest.Wait()
	for _, l := range p.timed(t) {
		l, _, _ = strings.Cut(l, ` "`)
		out = append(out, l)
	}
	return out
}

// The client is told how long it is to wait, and capacity who asks for how much.
func TestWhatIsAskedForABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []messages.MemoryRequested
		d := newDoorway(t, 7, func(r *rig, m messages.MemoryRequested) bool {
			asked = append(asked, m)
			return yieldsNone(r, m)
		})
		waiting := d.process(qH(more), qB(spaces, last))
		newcomer := d.process(
			qH(more, ":path: /", "x-llm-d-inference-objective: high", "x-llm-d-inference-fairness-id: a"),
			qB(spaces, last))
		waiting.leave()
		newcomer.leave()
		synctest.Wait()
		key := messages.FlowKey{Fairness: "a", Priority: 1}
		if len(asked) != 1 || asked[0].Bytes != 1<<10 || asked[0].Flow != key {
			t.Errorf("asked %+v, want 1 KiB more for a's request of priority 1", asked)
		}
		if after := headers(t, newcomer.sent[0].GetImmediateResponse().GetHeaders())["retry-after"]; after != "7" {
			t.Errorf("retry-after %q, want 7", after)
		}
		want := messages.Wait{Outcome: messages.OutcomeRejectedCapacity}
		if len(d.refused) != 1 || d.refused[0].Wait != want {
			t.Errorf("records %+v, want one of a request that was not let into the line", d.refused)
		}
	})
}

// An eighth of the memory is left to requests of priority 0 and above.
func TestLastEighthIsSpared(t *testing.T) {
	for objective, want := range map[string]string{"low": "0s " + saturated, "none": "0s " + onePick} {
		synctest.Test(t, func(t *testing.T) {
			d := newDoorway(t, 8, yieldsNone)
			waiting := d.process(qH(more), qB(spaces, last))
			newcomer := d.process(qH(more, ":path: /", "x-llm-d-inference-objective: "+objective), qB(spaces, last))
			waiting.leave()
			newcomer.leave()
			synctest.Wait()
			if got := newcomer.cut(t); len(got) == 0 || got[0] != want {
				t.Errorf("%s: got %q, want %s", objective, got, want)
			}
		})
	}
}
