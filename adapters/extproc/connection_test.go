package extproc

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"

	"github.com/signalbox-epp/signalbox/messages"
)

// link is a connection whose log is in some state.
type link struct {
	id    messages.ConnectionID // 0 = 12
	log   messages.LogState
	shown []bool // of each request
	asked int    // for its log
}

func (l *link) ID() messages.ConnectionID {
	if l.id == 0 {
		return 12
	}
	return l.id
}
func (*link) Name() string       { return "12" }
func (l *link) Asked(shown bool) { l.shown = append(l.shown, shown) }
func (l *link) Log() messages.LogState {
	l.asked++
	return l.log
}

// over is a rig all of whose streams come on a connection.
func over(l *link) *rig {
	r := newRig(setup{})
	r.srv.deps.Connection = func(context.Context) Connection { return l }
	return r
}

// halfClosed is a proxy that sends frames and half-closes.
func halfClosed(ctx context.Context, frames ...*ask) *tape {
	p := newTape(ctx, frames...)
	p.half = true
	return p
}

// A request names its connection: to its cycle, and, where its response bypasses us, to the access log. Its stream's
// end says what has come of that log.
func TestStreamNamesItsConnection(t *testing.T) {
	type told struct {
		Connection messages.ConnectionID
		Visible    []bool
		Logged     bool
		Log        messages.LogState
		Metadata   any // of the pick: the connection's name
	}
	for name, tc := range map[string]struct {
		frames []*ask
		log    messages.LogState
		want   told
	}{
		"light lane, its log comes": {with(withModes(qH(last), fds, none), rH(more)), messages.LogSeen,
			told{12, []bool{false}, true, messages.LogSeen, "12"}},
		"light lane, it is awaited": {with(withModes(qH(last), fds, none), rH(more)), messages.LogAwaited,
			told{12, []bool{false}, true, messages.LogAwaited, "12"}},
		"light lane, it is missing": {with(withModes(qH(last), fds, none), rH(more)), messages.LogMissing,
			told{12, []bool{false}, true, messages.LogMissing, "12"}},
		"light lane, headers alone": {with(withModes(qH(last), fds, none), rH(last)), messages.LogMissing,
			told{12, []bool{false}, false, messages.LogUnknown, "12"}},
		"full lane: no log is asked": {with(withModes(qH(last), fds, fds), rH(more), rB("x", last)),
			messages.LogMissing, told{12, []bool{true}, false, messages.LogUnknown, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &link{log: tc.log}
			r := over(l)
			tape := halfClosed(t.Context(), tc.frames...)
			if err := r.srv.Process(tape); err != nil {
				t.Fatal(err)
			}
			c := r.only(t)
			list := c.list()
			gone := list[len(list)-1].(messages.StreamGone)
			got := told{c.arrived.Connection, l.shown, gone.Logged, gone.Log, nil}
			for _, m := range tape.sent {
				if lb, ok := m.GetDynamicMetadata().AsMap()[lbNamespace].(map[string]any); ok {
					got.Metadata = lb[connectionKey]
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
			if !gone.Logged && l.asked != 0 {
				t.Errorf("asked %d times for a log that is not needed", l.asked)
			}
		})
	}
}

// A proxy that says that it has an access log counts as one that has sent an entry, until one is overdue.
func TestAnnouncedLogIsAwaitedAsOneThatCame(t *testing.T) {
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(LogMark, "1"))
	for state, want := range map[messages.LogState]messages.LogState{
		messages.LogAwaited: messages.LogSeen, messages.LogMissing: messages.LogMissing,
		messages.LogSeen: messages.LogSeen,
	} {
		l := &link{log: state}
		r := over(l)
		if err := r.srv.Process(halfClosed(ctx, withModes(qH(last), fds, none), rH(more))); err != nil {
			t.Fatal(err)
		}
		list := r.only(t).list()
		if gone := list[len(list)-1].(messages.StreamGone); gone.Log != want || l.asked != 1 {
			t.Errorf("log %v after %v, want %v; asked %d times, want 1", gone.Log, state, want, l.asked)
		}
	}
}

// A conformance checker's request is marked, has no connection that could log, and leaves no record when it is refused
// at the door.
func TestCheckIsMarked(t *testing.T) {
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(CheckMark, "1"))
	l := &link{}
	r := over(l)
	if err := r.srv.Process(halfClosed(ctx, withModes(qH(last), fds, none), rH(more))); err != nil {
		t.Fatal(err)
	}
	if c := r.only(t); !c.arrived.Check || c.arrived.Connection != 0 || len(l.shown) != 0 {
		t.Errorf("told %+v of connection %+v, want a check on no connection", c.arrived, l)
	}
	if err := r.srv.Process(halfClosed(ctx, qH(more), qB("{", more))); err != nil { // its client leaves
		t.Fatal(err)
	}
	if len(r.refused) != 0 {
		t.Errorf("records %+v, want none", r.refused)
	}
	unmarked := over(&link{})
	if err := unmarked.srv.Process(halfClosed(t.Context(), qH(last))); err != nil {
		t.Fatal(err)
	}
	if unmarked.only(t).arrived.Check {
		t.Error("a request is taken for a check")
	}
}

// No entry is awaited of a request whose pick was not sent, for its entry would not name it: its client left first, or
// our answer was lost.
func TestNoLogIsAwaitedWithoutAPick(t *testing.T) {
	for name, before := range map[string]bool{"the client left first": true, "the answer was lost": false} {
		t.Run(name, func(t *testing.T) {
			l := &link{log: messages.LogAwaited}
			r := over(l)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			p := newTape(ctx, withModes(qH(last), fds, none))
			p.sendOK = 0
			if before {
				start := r.inForce.Start
				r.inForce.Start = func(m messages.RequestArrived) (messages.Port[messages.CycleMsg], bool) {
					port, ok := start(m)
					<-m.Stream.(*stream).inbox.answer // the pick is not made yet
					leave()
					return port, ok
				}
			}
			if err := r.srv.Process(p); err != nil {
				t.Fatal(err)
			}
			list := r.only(t).list()
			if end := list[len(list)-1].(messages.StreamGone); l.asked != 0 || end.Log != messages.LogUnknown ||
				!end.Logged {
				t.Errorf("asked %d times for a log, told %+v", l.asked, end)
			}
		})
	}
}
