package records

import (
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

func all(*messages.Record) bool { return true }

func TestNewestRecordsStayAndLossesAreCounted(t *testing.T) {
	b := NewBook(3, 1<<20)
	for id := messages.RequestID(1); id <= 5; id++ {
		b.Begin(id, nil)
		b.End(messages.Record{Request: id})
	}
	got := b.Newest(10, all)
	if len(got) != 3 || got[0].Request != 5 || got[2].Request != 3 {
		t.Errorf("Newest = %+v, want 5, 4, 3", got)
	}
	if b.Lost() != 2 || b.Live() != 0 {
		t.Errorf("lost %d, live %d, want 2 and 0", b.Lost(), b.Live())
	}
}

func TestBytesAreBounded(t *testing.T) {
	one := messages.Record{Request: 1,
		Decision: messages.Decision{Endpoints: messages.ListOf(make([]messages.EndpointID, 1000)...)}}
	limit := 3*size(&one) + 10
	b := NewBook(100, limit)
	for id := messages.RequestID(1); id <= 50; id++ {
		r := one
		r.Request = id
		b.End(r)
		if b.bytes > limit {
			t.Fatalf("after %d records: %d bytes, limit %d", id, b.bytes, limit)
		}
	}
	if got := b.Newest(100, all); len(got) != 3 || got[0].Request != 50 {
		t.Errorf("%d records, first %d, want 3 and 50", len(got), got[0].Request)
	}
}

func TestRunningCyclesAreFoundUntilTheyEnd(t *testing.T) {
	b := NewBook(0, 1<<20) // room for one at least
	p := runtimetest.NewProbe[messages.CycleMsg](t)
	b.Begin(4, p)
	if b.Running(4) != p || b.Running(5) != nil || !slices.Equal(b.RunningIDs(), []messages.RequestID{4}) {
		t.Errorf("running %v", b.RunningIDs())
	}
	b.End(messages.Record{Request: 4})
	if b.Running(4) != nil || len(b.RunningIDs()) != 0 || len(b.Newest(9, all)) != 1 {
		t.Error("request 4 still runs, or was forgotten")
	}
}

func TestNewestMatchesAndStopsAtItsNumber(t *testing.T) {
	b := NewBook(8, 1<<20)
	for id := messages.RequestID(1); id <= 8; id++ {
		b.End(messages.Record{Request: id})
	}
	even := func(r *messages.Record) bool { return r.Request%2 == 0 }
	if got := b.Newest(2, even); len(got) != 2 || got[0].Request != 8 || got[1].Request != 6 {
		t.Errorf("Newest = %+v, want 8 and 6", got)
	}
	if got := b.Newest(0, all); len(got) != 0 {
		t.Errorf("Newest(0) = %+v", got)
	}
}

func TestNewestRecordStaysEvenIfItAloneIsTooLarge(t *testing.T) {
	b := NewBook(8, 1)
	b.End(messages.Record{Request: 1})
	b.End(messages.Record{Request: 2})
	if got := b.Newest(9, all); len(got) != 1 || got[0].Request != 2 || b.Lost() != 1 {
		t.Errorf("Newest = %+v with %d lost, want 2 and 1 lost", got, b.Lost())
	}
}
