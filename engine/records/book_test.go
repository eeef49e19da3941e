package records

import (
	"slices"
	"strings"
	"testing"
	"unsafe"

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
	got := b.Newest(10, nil, all)
	if len(got) != 3 || got[0].Request != 5 || got[2].Request != 3 {
		t.Errorf("Newest = %+v, want 5, 4, 3", got)
	}
	if b.Lost() != 2 || b.Live() != 0 {
		t.Errorf("lost %d, live %d, want 2 and 0", b.Lost(), b.Live())
	}
}

// bytes returns the memory that a book takes for its records: what is allocated of its tape, its ring, and the shapes.
func (b *Book) bytes() int {
	n := b.shapes.bytes + cap(b.ring)*int(unsafe.Sizeof(entry{}))
	for _, block := range b.tape.blocks {
		n += cap(block)
	}
	return n
}

func TestBytesAreBounded(t *testing.T) {
	const limit = 300_000
	b := NewBook(100, limit)
	for id := messages.RequestID(1); id <= 500; id++ {
		endpoints := make([]messages.EndpointID, id%7*1000)
		b.End(messages.Record{Request: id, Decision: messages.Decision{Endpoints: messages.ListOf(endpoints...),
			Profiles: messages.ListOf(messages.ProfileRun{Profile: strings.Repeat("p", int(id))})}})
		if b.bytes() > limit {
			t.Fatalf("after %d records: %d bytes, limit %d", id, b.bytes(), limit)
		}
	}
	got := b.Newest(100, nil, all)
	if len(got) < 8 || uint64(len(got))+b.Lost() != 500 {
		t.Errorf("%d records are kept, and %d lost", len(got), b.Lost())
	}
	for i, r := range got {
		if want := messages.RequestID(500 - i); r.Request != want || r.Decision.Endpoints.Len() != int(want%7*1000) ||
			len(r.Decision.Profiles.At(0).Profile) != int(want) {
			t.Errorf("record %d of request %d, with %d endpoints", i, r.Request, r.Decision.Endpoints.Len())
		}
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
	if b.Running(4) != nil || len(b.RunningIDs()) != 0 || len(b.Newest(9, nil, all)) != 1 {
		t.Error("request 4 still runs, or was forgotten")
	}
}

func TestNewestMatchesAndStopsAtItsNumber(t *testing.T) {
	b := NewBook(8, 1<<20)
	for id := messages.RequestID(1); id <= 8; id++ {
		b.End(messages.Record{Request: id})
	}
	even := func(r *messages.Record) bool { return r.Request%2 == 0 }
	if got := b.Newest(2, nil, even); len(got) != 2 || got[0].Request != 8 || got[1].Request != 6 {
		t.Errorf("Newest = %+v, want 8 and 6", got)
	}
	if got := b.Newest(0, nil, all); len(got) != 0 {
		t.Errorf("Newest(0) = %+v", got)
	}
}

func TestRecordLargerThanTheBookIsLostAlone(t *testing.T) {
	b := NewBook(8, 1) // it has one block all the same
	b.End(messages.Record{Request: 1})
	b.End(messages.Record{Request: 2, Local: strings.Repeat("x", blockBytes)})
	b.End(messages.Record{Request: 3})
	if got := b.Newest(9, nil, all); len(got) != 2 || got[0].Request != 3 || got[1].Request != 1 || b.Lost() != 1 {
		t.Errorf("Newest = %+v with %d lost, want 3 and 1, and 1 lost", got, b.Lost())
	}
	if b.shapes.recent[0].records != 2 {
		t.Errorf("the shape has %d records, want 2", b.shapes.recent[0].records)
	}
}
