package records

import (
	"testing"

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
	one := messages.Record{Request: 1, Decision: messages.Decision{Endpoints: messages.ListOf(make([]messages.EndpointID, 1000)...)}}
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
