package runtime_test

import (
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// spy writes down what it is asked, and wraps what it is given.
type spy struct {
	births []runtime.Birth
	handed []string
	heard  journal
}

func (s *spy) Incarnation(of runtime.Birth, actor any) any {
	s.births = append(s.births, of)
	return &shadow{actor.(runtime.Actor[noteMsg]), s}
}

func (s *spy) Address(from, to string, sink any) any {
	s.handed = append(s.handed, from+" to "+to)
	return lossy{sink.(messages.Sink[noteMsg])}
}

type shadow struct {
	runtime.Actor[noteMsg]
	spy *spy
}

func (s *shadow) Receive(ctx runtime.Context[noteMsg], m noteMsg) {
	s.spy.heard.add("%s", m.(note).verb)
	s.Actor.Receive(ctx, m)
}

// lossy loses what is called lost.
type lossy struct{ messages.Sink[noteMsg] }

func (l lossy) Tell(m noteMsg) bool { return m.(note).verb == "lost" || l.Sink.Tell(m) }

func TestInterceptorStandsAroundEachIncarnationAndAddress(t *testing.T) {
	seen := &spy{}
	s := start(t, runtime.Config{Mode: runtime.Stepped, Start: time.Unix(1_800_000_000, 0), Intercept: seen})
	var log journal
	falls := func(_ runtime.Context[noteMsg], n note) {
		if n.verb == "fall" {
			panic("as told")
		}
	}
	ref, _ := runtime.Spawn(s.Root(0), role(&log, runtime.RestartOnPanic, falls), noteMsg(note{verb: "born"}))
	to := runtime.Handed[noteMsg](s, "a", "b", ref)
	for _, verb := range []string{"one", "fall", "lost", "two"} {
		if !to.Tell(note{verb: verb}) {
			t.Errorf("%s was not taken", verb)
		}
	}
	run(s)
	if got, want := seen.heard.take(), []string{"born", "one", "fall", "born", "two"}; !slices.Equal(got, want) {
		t.Errorf("the wrapped actor heard %q, want %q", got, want)
	}
	if len(seen.births) != 2 || seen.births[0].Again || !seen.births[1].Again ||
		seen.births[1].First != noteMsg(note{verb: "born"}) {
		t.Errorf("births %+v, want the first, and one again with the first message", seen.births)
	}
	if !slices.Equal(seen.handed, []string{"a to b"}) {
		t.Errorf("addresses %q", seen.handed)
	}
}

func TestHandedIsTheAddressItselfWithoutAnInterceptor(t *testing.T) {
	s := start(t, runtime.Config{Mode: runtime.Stepped, Start: time.Unix(1_800_000_000, 0)})
	ref, _ := runtime.Spawn(s.Root(0), role(new(journal), runtime.StopOnPanic, nil), noteMsg(note{verb: "born"}))
	if got := runtime.Handed[noteMsg](s, "a", "b", ref); got != messages.Sink[noteMsg](ref) {
		t.Errorf("%v is handed, want %v", got, ref)
	}
	run(s)
}
