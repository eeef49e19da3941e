package telemetry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

func TestRequestLineSaysWhatItCameTo(t *testing.T) {
	for want, c := range map[string]struct {
		change   func(*messages.Record)
		endpoint string
	}{
		"request served":                 {func(*messages.Record) {}, "b:1"},
		"request answered with an error": {func(r *messages.Record) { r.Status = 404 }, "b:1"},
		"request left by its client":     {func(r *messages.Record) { r.Reason = messages.ClientGone }, "b:1"},
		"request not served": {func(r *messages.Record) { r.Reason, r.Status = messages.NoEndpoints, 503 },
			"b:1"},
		"request answered by Envoy itself": {func(r *messages.Record) {
			r.Served, r.Local, r.Status = messages.EndpointID{}, "no_healthy_upstream", 503
		}, ""},
	} {
		lines := logged(t, func(log *Log) {
			r := served
			c.change(&r)
			NewRequests(log, nameOf, func(messages.RequestID) string { return "0-7" }).Report(&r)
		})
		if len(lines) != 1 || lines[0]["msg"] != want || lines[0]["endpoint"] != c.endpoint {
			t.Errorf("lines %v, want one: %q of %q", lines, want, c.endpoint)
		}
	}
}

func nameOf(id messages.EndpointID) messages.Address {
	if id.Generation == 0 {
		return ""
	}
	return messages.Address([]string{"a:1", "b:1", "c:1"}[id.Slot])
}

func TestServerThatIsPassedOverIsToldOfOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := logged(t, func(log *Log) {
			q := NewRequests(log, nameOf, func(messages.RequestID) string { return "0-7" })
			q.Report(&served)
			other, stranger, unanswered := served, served, served
			other.Served = messages.EndpointID{Slot: 2, Generation: 1}
			stranger.Served, stranger.Elsewhere = messages.EndpointID{}, "z:1"
			unanswered.Served, unanswered.Local, unanswered.Status = messages.EndpointID{}, "no_healthy_upstream", 503
			q.Report(&unanswered)
			q.Report(&other)
			q.Report(&other)
			<-time.After(passedLineEvery)
			q.Report(&stranger)
		}, "-v=0")
		if len(lines) != 2 || lines[0]["served"] != "c:1" || lines[1]["served"] != "z:1" ||
			lines[1]["picked"] != "b:1" ||
			lines[0]["served_is_in_pool"] != true || lines[1]["served_is_in_pool"] != false {
			t.Errorf("lines %v, want a warning of c:1 in the place of b:1, and a minute later one of z:1", lines)
		}
	})
}
