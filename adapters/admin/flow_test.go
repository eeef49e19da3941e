package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/window"
	"github.com/signalbox-epp/signalbox/messages"
)

// line is a capacity that answers queries, or does not.
type line func(messages.FlowsQueried) bool

func (l line) Post(m messages.CapacityMsg) bool { return l(m.(messages.FlowsQueried)) }

// queues is what waits in two bands, of which one is of an earlier configuration.
func queues() messages.FlowsAnswered {
	names := messages.PolicyNames{
		Ordering: "fcfs-ordering-policy", Queue: "list-queue", Fairness: "round-robin-fairness-policy",
		Displacement: "longest-flow-displacement-policy",
	}
	panicked := names
	panicked.BuiltIn = true
	evil := "evil\x1b[31m" + strings.Repeat("x", 100)
	return messages.FlowsAnswered{
		Waiting: messages.Held{Requests: 9, Bytes: 12_345}, Limits: messages.Held{Requests: 10_000}, Rate: 12.345,
		UsageLimit: "priority-holdback-policy",
		Panics:     3,
		Trying: messages.Trying{
			Request: 7, Flow: messages.FlowKey{Fairness: "team-a", Priority: 5}, Waited: 3 * time.Second,
		},
		Full: messages.ListOf(
			messages.ClassState{Class: 17, Waiting: 2, Next: 8}, messages.ClassState{Class: 40},
		),
		Bands: messages.ListOf(messages.BandState{
			Priority: 5, Ceiling: 1, Limits: messages.Held{Requests: 5000, Bytes: 1_000_000_000}, Policies: names,
			Served: 1, Known: 1, Service: 120,
			Flows: messages.ListOf(messages.FlowState{Fairness: "team-a", Weight: 1, Service: 120, Served: 1}),
		}, messages.BandState{
			Older: true, Ceiling: .5, Waiting: messages.Held{Requests: 1, Bytes: 1}, Policies: panicked, Known: 1,
		}, messages.BandState{
			Ceiling: .5, Waiting: messages.Held{Requests: 8, Bytes: 12_344}, Limits: messages.Held{Requests: 5000},
			Oldest: 90 * time.Second, Policies: names, Served: 1234, Service: 400, Known: 1001,
			Next: messages.NextTurn{Request: 8, Flow: evil},
			Flows: messages.ListOf(messages.FlowState{
				Shared: true, Weight: 1, Waiting: messages.Held{Requests: 5, Bytes: 10_000}, Service: 100,
				Oldest: time.Second,
			}, messages.FlowState{
				Fairness: evil, Weight: 2.5, Service: 300, Oldest: 90 * time.Second,
				Waiting: messages.Held{Requests: 3, Bytes: 2344},
			}),
		}),
	}
}

// showing returns a configuration whose capacity gives this answer.
func showing(answer messages.FlowsAnswered, detector string) (Config, *messages.FlowsQueried) {
	asked := new(messages.FlowsQueried)
	yes, no := true, false
	cfg := config(answering())
	cfg.Flow = FlowConfig{
		Capacity: line(func(m messages.FlowsQueried) bool {
			*asked = m
			return m.Admin.Tell(answer)
		}),
		Ends: func() []EndView {
			return []EndView{{"5", "Dispatched", 2}, {"0", "Dispatched", 1234}, {"0", "EvictedTTL", 5}}
		},
		Room: func() ([]RoomView, string) {
			return []RoomView{
				{Address: "10.0.0.1:8000", InflightRequests: 17, InflightTokens: 20_000, Room: &yes,
					Window: &WindowView{Requests: 20, Tokens: 30_000, Learned: true, Why: Why(
						window.Why{Cause: window.Page, Queue: 5.25, At: noon.Add(-4 * time.Second), From: 24}, noon)}},
				{Address: "10.0.0.2:8000", InflightRequests: 16, Room: &no, Window: &WindowView{Requests: 16}},
				{Address: "10.0.0.3:8000", Room: &yes, Window: &WindowView{}},
				{Address: "10.0.0.4:8000"},
			}, detector
		},
	}
	return cfg, asked
}

func TestFlowPage(t *testing.T) {
	cfg, asked := showing(queues(), "learning-detector")
	transcript(t, "flow", get(cfg, "/debug/flow"))
	if asked.Most != 20 {
		t.Errorf("asked for %d flows, want 20", asked.Most)
	}
	transcript(t, "flow-json", get(cfg, "/debug/flow?format=json&flows=2"))
	if asked.Most != 2 {
		t.Errorf("asked for %d flows, want 2", asked.Most)
	}
	cfg, _ = showing(messages.FlowsAnswered{}, "")
	cfg.Flow.Ends = func() []EndView { return nil }
	cfg.Flow.Room = func() ([]RoomView, string) { return nil, "" }
	transcript(t, "flow-none", get(cfg, "/debug/flow"))
	transcript(t, "flow-none-json", get(cfg, "/debug/flow?format=json"))
}

// Each cause of a change has words of its own, and so has a server where none waits.
func TestReasonsOfWindowsAreInPlainWords(t *testing.T) {
	said := map[string]window.Cause{}
	for _, c := range window.Causes() {
		text := Why(window.Why{Cause: c, Queue: 2}, noon).text()
		if other, ok := said[text]; ok || text == "" {
			t.Errorf("%v is told as %q, and so is %v", c, text, other)
		}
		said[text] = c
	}
	for _, c := range []window.Cause{window.FirstTokens, window.Page} {
		if text := Why(window.Why{Cause: c}, noon).text(); !strings.HasSuffix(text, "no request waited") {
			t.Errorf("%v without a queue is told as %q", c, text)
		}
	}
}

// takes returns a capacity that never answers.
func takes(it bool) line { return func(messages.FlowsQueried) bool { return it } }

func TestFlowPageThatCannotBeShown(t *testing.T) {
	for name, c := range map[string]struct {
		capacity line
		query    string
		status   int
		code     string
	}{
		"busy":            {takes(false), "", http.StatusServiceUnavailable, "busy"},
		"late":            {takes(true), "", http.StatusServiceUnavailable, "late"},
		"too many":        {nil, "?flows=1001", http.StatusBadRequest, "bad-number"},
		"other parameter": {nil, "?n=3", http.StatusBadRequest, "unknown-parameter"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := showing(queues(), "x")
			cfg.Flow.Capacity, cfg.AnswerWithin = c.capacity, 20*time.Millisecond
			w := get(cfg, "/debug/flow"+c.query)
			var got struct{ Code string }
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != c.status || got.Code != c.code {
				t.Errorf("status %d, %s, %v; want %d, %s", w.Code, w.Body, err, c.status, c.code)
			}
		})
	}
	if w := get(config(answering()), "/debug/flow"); w.Code != http.StatusNotFound {
		t.Errorf("status %d where nothing is shown, want 404", w.Code)
	}
}

// Only so many clients are answered at a time, so that they cannot keep capacity from its work.
func TestFlowPageOfManyClients(t *testing.T) {
	cfg, _ := showing(queues(), "x")
	var asked []messages.Sink[messages.AdminMsg]
	came := make(chan messages.Sink[messages.AdminMsg])
	cfg.Flow.Capacity = line(func(m messages.FlowsQueried) bool {
		came <- m.Admin
		return true
	})
	cfg.AnswerWithin = time.Minute
	h := NewHandler(cfg)
	ask := func() *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/debug/flow", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "127.0.0.1:9090"
		h.ServeHTTP(w, r)
		return w
	}
	done := make(chan int)
	for range mostAsking {
		go func() { done <- ask().Code }()
		asked = append(asked, <-came)
	}
	if w := ask(); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), `"busy"`) {
		t.Errorf("status %d, %s; want that it is told to ask again", w.Code, w.Body)
	}
	for _, client := range asked {
		client.Tell(queues())
		if status := <-done; status != http.StatusOK {
			t.Errorf("status %d, want 200", status)
		}
	}
	go func() { (<-came).Tell(queues()) }()
	if w := ask(); w.Code != http.StatusOK {
		t.Errorf("status %d afterwards, want 200", w.Code)
	}
}
