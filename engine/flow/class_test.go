package flow_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

// Requests are of one class only if nothing tells them apart.
func TestClassesDiffer(t *testing.T) {
	subset := func(of ...messages.Address) messages.Subset {
		return messages.Subset{Given: true, Addresses: messages.ListOf(of...)}
	}
	same := func() flow.Class {
		return flow.ClassOf("m", subset("a", "b"), flow.Reach{Pool: 1, Configuration: 1, Would: 1})
	}
	seen := map[flow.Class]bool{}
	for _, c := range []flow.Class{
		same(), flow.ClassOf("n", subset("a", "b"), flow.Reach{Pool: 1, Configuration: 1, Would: 1}),
		flow.ClassOf("m", subset("ab"), flow.Reach{Pool: 1, Configuration: 1, Would: 1}),
		flow.ClassOf("m", subset(), flow.Reach{Pool: 1, Configuration: 1, Would: 1}),
		flow.ClassOf("m", messages.Subset{}, flow.Reach{Pool: 1, Configuration: 1, Would: 1}),
		flow.ClassOf("m", subset("a", "b"), flow.Reach{Pool: 2, Configuration: 1, Would: 1}),
		flow.ClassOf("m", subset("a", "b"), flow.Reach{Pool: 1, Configuration: 2, Would: 1}),
		flow.ClassOf("m", subset("a", "b"), flow.Reach{Pool: 1, Configuration: 1, Would: 2}),
	} {
		if seen[c] {
			t.Errorf("class %x comes twice", c)
		}
		seen[c] = true
	}
	if c := same(); !seen[c] {
		t.Errorf("the same requests are of class %x, too", c)
	}
}

func TestClassWithoutRoomIsPassedOver(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, strict, flow.Limits{}), flow.Limits{})), new(waiting)
	for i, class := range []flow.Class{1, 1, 2, 2} {
		e := w.of("a", 1-i/3)
		e.Class = class
		push(t, q, e)
	}
	second := func(e *flow.Entry) bool { return e.Class == 2 }
	for _, want := range []messages.RequestID{3, 4} {
		if e := q.Next(second); e == nil || e.Request != want {
			t.Fatalf("dispatched %v, want request %d", show(e), want)
		}
	}
	if e := q.Next(second); e != nil {
		t.Errorf("dispatched %s, whose class has no room", show(e))
	}
}

// A class without room costs nothing more, however many there are, until there may be room again.
func TestFullClassIsAskedAboutOnce(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, strict, flow.Limits{}), flow.Limits{})), new(waiting)
	for class := range flow.Class(100) {
		e := w.of(fmt.Sprint(class), 0)
		e.Class = class
		push(t, q, e)
	}
	asked, roomy := 0, flow.Class(200)
	room := func(e *flow.Entry) bool {
		asked++
		return e.Class == roomy
	}
	next := func(want int) *flow.Entry {
		t.Helper()
		asked = 0
		e := q.Next(room)
		if asked > want {
			t.Errorf("asked %d times, want %d at most", asked, want)
		}
		return e
	}
	next(100)
	next(0)
	roomy = 50
	q.Open(50)
	if e := next(1); e == nil || e.Class != 50 {
		t.Fatalf("dispatched %s, want the request of the class that has room again", show(e))
	}
	e := w.of("new", 0)
	e.Class = 50
	push(t, q, e)
	if got := next(1); got != e {
		t.Errorf("dispatched %s, want one that came since", show(got))
	}
	other := w.of("99", 0)
	other.Class = 99
	push(t, q, other) // of a flow that waits already
	next(1)
	roomy = 99
	q.OpenAll()
	if got := next(99); got == nil || got.Class != 99 {
		t.Errorf("dispatched %s, want one of class 99", show(got))
	}
}

// A flow that is served has had its turn in the classes, too, that are full meanwhile.
func TestTurnsGoOnWhileAClassIsFull(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{})), new(waiting)
	for _, of := range []struct {
		flow  string
		class flow.Class
	}{{"a", 2}, {"a", 1}, {"a", 2}, {"b", 2}} {
		e := w.of(of.flow, 0)
		e.Class = of.class
		push(t, q, e)
	}
	first := func(e *flow.Entry) bool { return e.Class == 1 }
	if e := q.Next(first); e == nil || e.Request != 2 {
		t.Fatalf("dispatched %s, want request 2", show(e))
	}
	q.Open(2)
	var got []messages.RequestID
	for e := q.Next(anyRoom); e != nil; e = q.Next(anyRoom) {
		got = append(got, e.Request)
	}
	if want := []messages.RequestID{4, 1, 3}; !slices.Equal(got, want) {
		t.Errorf("dispatched %v, want %v", got, want)
	}
}

// Beyond so many classes, further ones share a few: none is forgotten.
func TestManyClassesShareAFew(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, strict, flow.Limits{}), flow.Limits{})), new(waiting)
	for i := range 3000 {
		e := w.of("a", 0)
		e.Class = flow.ClassOf("m", messages.Subset{}, flow.Reach{Would: uint64(i)})
		push(t, q, e)
	}
	asked := map[flow.Class]bool{}
	if q.Next(func(e *flow.Entry) bool { asked[e.Class] = true; return false }); len(asked) > 2064 {
		t.Errorf("%d classes, want 2064 at most", len(asked))
	}
	q.OpenAll()
	if n := len(drain(q)); n != 3000 {
		t.Errorf("%d requests are dispatched, want 3000", n)
	}
}
