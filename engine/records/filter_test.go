package records

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

func TestMeets(t *testing.T) {
	first, second, third := messages.EndpointID{Slot: 1, Generation: 1}, messages.EndpointID{Slot: 2, Generation: 1},
		messages.EndpointID{Slot: 2, Generation: 2}
	picked := func(of ...uint32) messages.Decision {
		return messages.Decision{
			Endpoints: messages.ListOf(first, second), Profiles: messages.ListOf(messages.ProfileRun{},
				messages.ProfileRun{Ranked: messages.ListOf(of...)}),
		}
	}
	at := func(e ...messages.EndpointID) messages.RecordFilter {
		return messages.RecordFilter{Endpoints: messages.ListOf(e...)}
	}
	record := messages.Record{Model: "a", Status: 503, Reason: messages.ServerGone, Served: first}
	done := messages.Record{ArrivedAt: time.Unix(4, 0), Ended: 6 * time.Second}
	since := func(second int64) messages.RecordFilter { return messages.RecordFilter{Ended: time.Unix(second, 0)} }
	for name, c := range map[string]struct {
		record messages.Record
		filter messages.RecordFilter
		want   bool
	}{
		"all":           {record, messages.RecordFilter{}, true},
		"model":         {record, messages.RecordFilter{Model: "a"}, true},
		"another model": {record, messages.RecordFilter{Model: "A"}, false},
		"status": {record, messages.RecordFilter{Status: messages.StatusRange{From: 503, To: 503}},
			true},
		"last of a class": {messages.Record{Status: 599},
			messages.RecordFilter{Status: messages.StatusRange{From: 500, To: 599}}, true},
		"before a class": {messages.Record{Status: 499},
			messages.RecordFilter{Status: messages.StatusRange{From: 500, To: 599}}, false},
		"after a class": {messages.Record{Status: 600},
			messages.RecordFilter{Status: messages.StatusRange{From: 500, To: 599}}, false},
		"no status": {messages.Record{},
			messages.RecordFilter{Status: messages.StatusRange{From: 200, To: 299}}, false},
		"reason": {record, messages.RecordFilter{Reasons: messages.ListOf(messages.TTLExpired,
			messages.ServerGone)}, true},
		"another reason": {record, messages.RecordFilter{Reasons: messages.ListOf(messages.TTLExpired)},
			false},
		"no reason":              {record, messages.RecordFilter{Reasons: messages.ListOf(messages.NoReason)}, false},
		"ended before":           {done, since(11), false},
		"ended then":             {done, since(10), true},
		"runs":                   {messages.Record{ArrivedAt: time.Unix(20, 0), Running: true}, since(10), false},
		"served":                 {record, at(second, first), true},
		"served elsewhere":       {record, at(second), false},
		"another incarnation":    {messages.Record{Served: second}, at(third), false},
		"served apart from pick": {messages.Record{Served: first, Decision: picked(1)}, at(second), false},
		"picked":                 {messages.Record{Decision: picked(1, 0)}, at(second), true},
		"ranked behind the pick": {messages.Record{Decision: picked(1, 0)}, at(first), false},
		"torn":                   {messages.Record{Decision: picked(7)}, at(first), false},
		"nowhere":                {messages.Record{}, at(first), false},
		"outside the pool": {messages.Record{Elsewhere: "10.0.0.9:1", Decision: picked(0)},
			messages.RecordFilter{Elsewhere: "10.0.0.9:1"}, true},
		"another, outside": {messages.Record{Elsewhere: "10.0.0.9:1", Decision: picked(0)},
			messages.RecordFilter{Elsewhere: "10.0.0.8:1", Endpoints: messages.ListOf(first)}, false},
		"an address of no one": {messages.Record{Decision: picked(0)},
			messages.RecordFilter{Elsewhere: "10.0.0.9:1"}, false},
		"all of it": {record, messages.RecordFilter{Model: "a",
			Status: messages.StatusRange{From: 500, To: 599}, Endpoints: messages.ListOf(first)}, true},
		"all of it but one thing": {record, messages.RecordFilter{Model: "a",
			Status: messages.StatusRange{From: 400, To: 499}, Endpoints: messages.ListOf(first)}, false},
	} {
		if got := Meets(&c.record, &c.filter); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if (name == "all") != MeetsAny(&c.filter) {
			t.Errorf("%s: every record meets it: %v", name, MeetsAny(&c.filter))
		}
	}
}
