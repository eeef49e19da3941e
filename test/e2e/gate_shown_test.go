package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

const queueTime = "x-llm-d-flow-queue-duration-ms"

// line returns the log line of a request, by the id that its client gave it.
func (g *gated) line(id string) (entry map[string]any) {
	g.Helper()
	eventually(g.T, 5*time.Second, "a log line of "+id, func() bool {
		for line := range strings.Lines(g.picker.log.text()) {
			var m map[string]any
			if json.Unmarshal([]byte(line), &m) == nil && m["x-request-id"] == id {
				entry = m
			}
		}
		return entry != nil
	})
	return entry
}

// explained wants the page of a request to have all of this.
func (g *gated) explained(id string, want ...string) {
	g.Helper()
	if _, page := get(g.picker.metrics + "/debug/requests/" + id); !containsAll(page, want) {
		g.Errorf("explain %s: want all of %q in\n%s", id, want, page)
	}
}

// flows returns a metric of the reference's that has these labels.
func (g *gated) flows(name string, labels ...string) float64 {
	return g.picker.metric("llm_d_epp_flow_control_"+name, labels...)
}

// TestEnvoyWaitsAreShown plays a line behind both lanes: whoever waits, waited, or gave up is in the answer's headers,
// in the log, in explain and in the metrics, with how long, why, and how it ended.
func TestEnvoyWaitsAreShown(t *testing.T) {
	for _, bootstrap := range []string{overrideHost, overrideHostFull} {
		t.Run(bootstrap[strings.LastIndexByte(bootstrap, '/')+1:], func(t *testing.T) {
			g := newGated(t, bootstrap, "-v", "3")
			machine := lateness.Begin()
			g.sends("first", "x-request-id", "first")
			g.sends("second")
			g.server.works(t, 2)
			g.sends("hasty", "x-llm-d-inference-ttl", "300ms", "x-request-id", "hasty")
			g.got("hasty", http.StatusTooManyRequests, "rejected-ttl-expired")
			g.sends("one", "x-request-id", "one")
			g.waits(1)
			g.sends("two", "x-request-id", "two")
			g.waits(2)
			g.leaves("gone")
			g.sends("odd", "x-llm-d-inference-fairness-id", "\xff\xfe", "x-request-id", "odd")
			g.waits(3)
			g.explained("two", "so far behind 1 request, because others waited when it came")
			g.shownWhileTheyWait()
			g.pageWhileTheyWait()
			g.server.release(1)
			g.server.works(t, 3)
			g.server.release(-1)
			_, late := machine.End()
			atOnce := 50 + 2*int(late.Milliseconds())
			for prompt, least := range map[string]int{"first": 0, "one": 200, "two": 200, "odd": 0} {
				a := g.got(prompt, http.StatusOK, "")
				ms, err := strconv.Atoi(a.header.Get(queueTime))
				took := a.ended.Sub(a.sent)
				if err != nil || ms < least || ms > int(took.Milliseconds()) || prompt == "first" && ms > atOnce {
					t.Errorf("%s: %s is %q, want %d ms or more of the %v that it took", prompt, queueTime,
						a.header.Get(queueTime), least, took)
				}
			}
			g.got("second", http.StatusOK, "")
			g.picker.idle(t)
			g.shownAfterwards()
		})
	}
}

// leaves begins a request whose client leaves while it waits behind two others.
func (g *gated) leaves(id string) {
	g.Helper()
	ctx, leave := context.WithCancel(g.Context())
	ended := make(chan answer, 1)
	go func() {
		ended <- g.client.do(ctx, http.MethodPost, "/v1/chat/completions", chatBody(model, id, 2, false),
			http.Header{"X-Prompt": {id}, "X-Request-Id": {id}})
	}()
	g.waits(3)
	<-time.After(200 * time.Millisecond)
	leave()
	<-ended
	g.waits(2)
}

func (g *gated) shownWhileTheyWait() {
	g.Helper()
	n, bytes := g.flows("queue_size", `priority="0"`), g.flows("queue_bytes", `priority="0"`)
	if n != 3 || bytes < 100 {
		g.Errorf("the metrics say that %v requests of %v bytes wait, want 3", n, bytes)
	}
	g.isToPromtoolsLiking()
	full, waiting := g.flows("pool_saturation", `stage="effective"`), g.flows("global_capacity_utilization_requests")
	if full != 1 || waiting != .5 || g.flows("capacity_utilization_requests", `priority="0"`) != 3./5000 {
		g.Errorf("the metrics say that the pool is full to %v, and the line to %v; want 1, and a half", full, waiting)
	}
}

// isToPromtoolsLiking has Prometheus' linter look at the metrics of what waits, if it is there.
func (g *gated) isToPromtoolsLiking() {
	g.Helper()
	promtool := findPromtool()
	if promtool == "" {
		return // TestEnvoyPageIsToPromtoolsLiking says so
	}
	_, page := get(g.picker.metrics + "/metrics")
	if found := checkMetrics(g.T, promtool, strings.ReplaceAll(page, referencePrefix, "reference_")); found != "" {
		g.Errorf("promtool finds:\n%s", found)
	}
}

// pageWhileTheyWait looks at /debug/flow, as text and as JSON.
func (g *gated) pageWhileTheyWait() {
	g.Helper()
	_, text := get(g.picker.metrics + "/debug/flow")
	if want := []string{
		"detector      concurrency-detector\n", "waiting       3 requests, ", "at most 6 requests\n",
		"turn          -\n",
		"without room  3 requests of class ", "priority 0\n", "; the oldest for ",
		"round-robin-fairness-policy, fcfs-ordering-policy, longest-flow-displacement-policy, list-queue\n",
		"\n  default-flow        2  ",
		"EvictedContextCancelled         1\n", "         2       ", "no    -\n",
	}; !containsAll(text, want) {
		g.Errorf("want all of %q in\n%s", want, text)
	}
	var page struct {
		Bands []struct {
			Flows []struct {
				Fairness string  `json:"fairness_id"`
				Oldest   float64 `json:"oldest_seconds"`
			}
		}
	}
	_, body := get(g.picker.metrics + "/debug/flow?format=json&flows=1")
	if err := json.Unmarshal([]byte(body), &page); err != nil || len(page.Bands) != 1 || len(page.Bands[0].Flows) != 1 {
		g.Fatalf("%v, want one flow of one band in\n%s", err, body)
	}
	if f := page.Bands[0].Flows[0]; f.Fairness != "default-flow" || f.Oldest < .2 {
		g.Errorf("flow %+v, want the longest one", f)
	}
}

func (g *gated) shownAfterwards() {
	g.Helper()
	for id, want := range map[string]map[string]any{
		"first": {"queue_outcome": "Dispatched", "queue_cause": nil},
		"one":   {"queue_outcome": "Dispatched", "queue_cause": "no-room", "queue_ahead": 0.0},
		"two":   {"queue_outcome": "Dispatched", "queue_cause": "others-waited", "queue_ahead": 1.0},
		"hasty": {"queue_outcome": "EvictedTTL", "queue_cause": "no-room", "reason": "rejected-ttl-expired"},
		"odd":   {"queue_outcome": "Dispatched", "queue_cause": "others-waited", "fairness_id": "\uFFFD"},
		"gone":  {"queue_outcome": "EvictedContextCancelled", "queue_cause": "others-waited", "queue_ahead": 2.0},
	} {
		line := g.line(id)
		for key, value := range want {
			if line[key] != value {
				g.Errorf("%s: the log says %s %v, want %v", id, key, line[key], value)
			}
		}
		if waited, _ := line["queue_wait"].(float64); id != "first" && id != "odd" && (waited < 0.2 || waited > 20) {
			g.Errorf("%s: the log says that it waited %v s", id, line["queue_wait"])
		}
	}
	g.explained("one", " behind 0 requests, because no endpoint that it may use had room", "; Dispatched")
	g.explained("hasty", "; EvictedTTL", "concurrency-detector kept 0 of 1")
	for outcome, want := range map[string]float64{
		"Dispatched": 5, "EvictedTTL": 1, "EvictedContextCancelled": 1, "RejectedCapacity": 0,
	} {
		label := `outcome="` + outcome + `"`
		if n := g.flows("requests_total", label); n != want {
			g.Errorf("%v requests ended as %s, want %v", n, outcome, want)
		}
		if n := g.flows("request_queue_duration_seconds_count", label); n != want {
			g.Errorf("%v waits ended as %s, want %v", n, outcome, want)
		}
	}
	if n := g.flows("request_enqueue_duration_seconds_count", `outcome="NotYetFinalized"`); n != 5 {
		g.Errorf("%v requests entered the line, want 5", n)
	}
	if n := g.flows("queue_size") + g.flows("queue_bytes"); n != 0 {
		g.Errorf("the metrics say that %v requests and bytes wait, want none", n)
	}
}
