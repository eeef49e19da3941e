package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/messages"
)

// ringRecorder answers questions about rings, and notes them.
type ringRecorder struct {
	asked  messages.RingsQueried
	answer messages.RingsAnswered
}

func (r *ringRecorder) Post(m messages.RecorderMsg) bool {
	r.asked = m.(messages.RingsQueried)
	return r.asked.Admin.Tell(r.answer)
}

// turning is a process of two loops, the second of which had a panic and told a stream.
func turning() (*ringRecorder, Config) {
	at := 3661 * time.Second
	rec := &ringRecorder{answer: messages.RingsAnswered{Loops: 2, Rings: messages.ListOf(
		messages.Ring{Loop: 0, Read: at},
		messages.Ring{Loop: 1, Read: at, Total: 5000, Events: messages.ListOf(
			messages.RingEvent{Begin: at - 2*time.Millisecond, Waited: 1200, Took: 34 * time.Microsecond, Actor: 12,
				ActorKind: 1, Message: 1},
			messages.RingEvent{Begin: at - time.Millisecond, Actor: 7, ActorKind: 2, Message: 2},
			messages.RingEvent{Begin: at - 500, Waited: 80, Took: 400, Panicked: true, Actor: 12, ActorKind: 1,
				Message: 1},
		)},
	)}}
	cfg := config(answering())
	cfg.Recorder = rec
	cfg.MessageName = func(k uint16) string { return []string{"", "Dispatched", "PickMade"}[k] }
	cfg.ActorName = func(k uint16) string { return []string{"", "cycle", "stream"}[k] }
	return rec, cfg
}

func TestRingsAsText(t *testing.T) {
	rec, cfg := turning()
	w := get(cfg, "/debug/rings")
	want := `loop 0: the last 0 of 0 messages, oldest first
  age  actor  message  waited  took

loop 1: the last 3 of 5000 messages, oldest first
     age  actor     message     waited    took
  2.00ms  cycle/12  Dispatched  1.20µs  34.0µs
  1.00ms  stream/7  PickMade         0       0
   500ns  cycle/12  Dispatched    80ns   400ns  panicked
`
	if diff := cmp.Diff(want, w.Body.String()); w.Code != http.StatusOK || diff != "" {
		t.Errorf("status %d, text (-want +got):\n%s", w.Code, diff)
	}
	if rec.asked.Loop != -1 || rec.asked.Newest != 100 {
		t.Errorf("asked %+v, want all loops and 100 events", rec.asked)
	}
	rec.answer.Partial = true
	if w := get(cfg, "/debug/rings"); !strings.HasSuffix(w.Body.String(),
		"\nincomplete: a loop did not answer in time\n") {
		t.Errorf("text %q, want that it says incomplete", w.Body)
	}
}

func TestRingsAsJSON(t *testing.T) {
	rec, cfg := turning()
	rec.answer.Rings = messages.ListOf(rec.answer.Rings.At(1))
	w := get(cfg, "/debug/rings?loop=1&newest=2&format=json")
	want := `{
  "rings": [
    {
      "loop": 1,
      "total": 5000,
      "read_seconds": 3661,
      "events": [
        {
          "begin_seconds": 3660.998,
          "actor": "cycle",
          "number": 12,
          "message": "Dispatched",
          "waited_seconds": 0.0000012,
          "took_seconds": 0.000034,
          "panicked": false
        },
`
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), want) ||
		!strings.HasSuffix(w.Body.String(), "\"panicked\": true\n        }\n      ]\n    }\n  ],\n  \"partial\": "+
			"false\n}\n") {
		t.Errorf("status %d, JSON %s", w.Code, w.Body)
	}
	if rec.asked.Loop != 1 || rec.asked.Newest != 2 {
		t.Errorf("asked %+v, want loop 1 and 2 events", rec.asked)
	}
}

func TestRingsThatCannotBeShown(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		answer messages.RingsAnswered
		status int
		text   string
	}{
		"no such loop": {"/debug/rings?loop=2", messages.RingsAnswered{Loops: 2}, 404,
			"there is no loop 2; there are 2, numbered from 0"},
		"no answer came": {"/debug/rings", messages.RingsAnswered{Loops: 2, Partial: true}, 503,
			"no loop answered in time"},
		"loop no number":   {"/debug/rings?loop=x", messages.RingsAnswered{}, 400, "loop must be 0 or more"},
		"negative loop":    {"/debug/rings?loop=-1", messages.RingsAnswered{}, 400, "loop must be 0 or more"},
		"newest no number": {"/debug/rings?newest=x", messages.RingsAnswered{}, 400, "newest must be 1 to 65536"},
		"too many":         {"/debug/rings?newest=65537", messages.RingsAnswered{}, 400, "newest must be 1 to 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			rec, cfg := turning()
			rec.answer = c.answer
			if w := get(cfg, c.path); w.Code != c.status || !strings.Contains(w.Body.String(), c.text) {
				t.Errorf("GET %s = %d %s, want %d %q", c.path, w.Code, w.Body, c.status, c.text)
			}
		})
	}
	_, cfg := turning()
	if w := get(cfg, "/debug/rings",
		func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1234" }); w.Code != http.StatusForbidden {
		t.Errorf("a stranger got %d, want 403", w.Code)
	}
}
