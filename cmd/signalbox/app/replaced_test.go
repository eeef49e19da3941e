package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/messages"
)

// heldRequest is a request that was picked for and has not ended.
type heldRequest struct {
	id    messages.RequestID
	under uint64 // the number of the configuration that was in force when it came
	cycle messages.Port[messages.CycleMsg]
}

// hold takes a request to its pick.
func (t *tree) hold(id messages.RequestID) (heldRequest, error) {
	now, answer, under := t.picker.System().Now(), make(listener, 1), t.configuration.streams()
	cycle, ok := under.Start(messages.RequestArrived{
		Request: messages.Request{ID: id, Model: "m", Stream: true}, Configuration: under.Number, ArrivedAt: now,
		Flow: messages.FlowKey{Fairness: "f"}, Deadline: now.Add(time.Hour), Stream: answer,
	})
	if !ok {
		return heldRequest{}, fmt.Errorf("request %d: its loop has no room", id)
	}
	select {
	case m := <-answer:
		if _, picked := m.(messages.PickMade); !picked {
			return heldRequest{}, fmt.Errorf("request %d was told %+v", id, m)
		}
	case <-time.After(20 * time.Second):
		return heldRequest{}, fmt.Errorf("request %d had no answer", id)
	}
	return heldRequest{id, under.Number, cycle}, nil
}

// end lets a request be served to its end.
func (r heldRequest) end(now time.Time) {
	r.cycle.Post(messages.ResponseStarted{Status: 200, At: now})
	r.cycle.Post(messages.FirstTokenSeen{At: now})
	r.cycle.Post(messages.ResponseEnded{At: now, ResponseBytes: 1})
}

// scorerRuns returns how often each scorer ran, by its name.
func (t *tree) scorerRuns(tt *testing.T) map[string]uint64 {
	tt.Helper()
	families, err := t.registry.Gather()
	if err != nil {
		tt.Fatal(err)
	}
	runs := map[string]uint64{}
	for _, f := range families {
		if f.GetName() != "signalbox_plugin_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["extension_point"] == "Scorer" {
				runs[labels["plugin_name"]] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	return runs
}

// recordOf returns what explain shows of a request.
func (t *tree) recordOf(tt *testing.T, id messages.RequestID) (r struct {
	Configuration uint64 `json:"configuration"`
	Status        int    `json:"status"`
	Reason        string `json:"reason"`
	Running       bool   `json:"running"`
}) {
	tt.Helper()
	w := httptest.NewRecorder()
	q := httptest.NewRequest(http.MethodGet, "/debug/requests/"+t.formatID(id)+"?format=json", nil)
	q.RemoteAddr, q.Host = "127.0.0.1:1", "127.0.0.1"
	t.admin.ServeHTTP(w, q)
	var page struct {
		Requests []json.RawMessage `json:"requests"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || len(page.Requests) != 1 {
		tt.Fatalf("request %d: %d records, %v: %s", id, len(page.Requests), err, w.Body)
	}
	if err := json.Unmarshal(page.Requests[0], &r); err != nil {
		tt.Fatal(err)
	}
	return r
}

// crowd sends requests from several goroutines and keeps them waiting.
type crowd struct {
	tree    *tree
	turns   chan struct{} // one for each request, so that they come while configurations do
	last    atomic.Uint64
	calls   sync.WaitGroup
	waiting [4][]heldRequest
	failed  [4]error
}

func newCrowd(t *tree) *crowd {
	c := &crowd{tree: t, turns: make(chan struct{})}
	for i := range c.waiting {
		c.calls.Go(func() {
			for range c.turns {
				r, err := t.hold(messages.RequestID(c.last.Add(1)))
				if c.failed[i] = errors.Join(c.failed[i], err); err == nil {
					c.waiting[i] = append(c.waiting[i], r)
				}
			}
		})
	}
	return c
}

// all sends no further request, and returns those that wait.
func (c *crowd) all(t *testing.T) []heldRequest {
	t.Helper()
	close(c.turns)
	c.calls.Wait()
	if err := errors.Join(c.failed[:]...); err != nil {
		t.Fatal(err)
	}
	return slices.Concat(c.waiting[:]...)
}

// While 200 configurations come and go, good and bad, 1 000 requests come and wait: each is served and ends under the
// configuration that was in force when it came, whose plugins are counted in series of its own. Once its requests have
// ended nothing is left of it.
func TestRequestsEndUnderTheConfigurationTheyCameWith(t *testing.T) {
	const configurations, each = 200, 5
	file := configFile(t, pickingBy("s1"))
	tr, end := quietTree(t, io.Discard, "--config-file", file)
	defer end()
	come := newCrowd(tr)
	var made []weak.Pointer[configuration]
	for n := range configurations {
		made = append(made, weak.Make(tr.configuration.current.Load()))
		tr.change(t, file, n%5 == 4)
		for range each {
			come.turns <- struct{}{}
		}
	}
	all := come.all(t)
	if len(all) != configurations*each {
		t.Fatalf("%d requests wait, want %d", len(all), configurations*each)
	}
	tr.ranApart(t, all)
	tr.endApart(t, all)
	awaitTrue(t, "configurations that were replaced are garbage, with their series", func() bool {
		runtime.GC()
		return len(tr.scorerRuns(t)) == 1 && !slices.ContainsFunc(made, func(c weak.Pointer[configuration]) bool {
			v := c.Value()
			return v != nil && v != tr.configuration.current.Load()
		})
	})
}

// change brings another configuration into force, or tries to with a bad one.
func (t *tree) change(tt *testing.T, file string, bad bool) {
	tt.Helper()
	f := t.configuration
	text := pickingBy(fmt.Sprint("s", f.current.Load().number+1))
	if bad {
		text = badConfiguration
	}
	rewrite(tt, file, text)
	if err := f.reload(); bad != (err != nil) {
		tt.Fatalf("bad %t: %v", bad, err)
	}
}

// ranApart checks that the scorer of each configuration ran for its own requests, and that there were many.
func (t *tree) ranApart(tt *testing.T, all []heldRequest) {
	tt.Helper()
	under, ran := map[uint64]uint64{}, t.scorerRuns(tt)
	for _, r := range all {
		under[r.under]++
	}
	if len(under) < 100 {
		tt.Errorf("requests came under %d configurations, want 100 or more", len(under))
	}
	for number, want := range under {
		if got := ran[fmt.Sprint("s", number)]; got != want {
			tt.Errorf("the scorer of configuration %d ran %d times, want %d", number, got, want)
		}
	}
}

// endApart ends the requests, and checks that each is recorded under its configuration.
func (t *tree) endApart(tt *testing.T, all []heldRequest) {
	tt.Helper()
	for _, r := range all {
		r.end(t.picker.System().Now())
	}
	for _, r := range all {
		awaitTrue(tt, fmt.Sprintf("request %d has ended", r.id), func() bool { return !t.recordOf(tt, r.id).Running })
		if got := t.recordOf(tt, r.id); got.Configuration != r.under || got.Status != 200 || got.Reason != "" {
			tt.Errorf("request %d is recorded as %+v, want 200 under configuration %d", r.id, got, r.under)
		}
	}
}

// inLine begins a request under the configuration in force, which waits for room. What it is told goes to told.
func (t *tree) inLine(tt *testing.T, id messages.RequestID, objective string, patience time.Duration, told listener) (
	messages.Port[messages.CycleMsg], time.Time,
) {
	tt.Helper()
	now, under := t.picker.System().Now(), t.configuration.streams()
	priority := under.Priorities[objective]
	cycle, ok := under.Start(messages.RequestArrived{
		Request:       messages.Request{ID: id, Model: "m", Stream: true, Priority: priority},
		Configuration: under.Number, ArrivedAt: now, Deadline: now.Add(time.Hour), Patience: patience, Stream: told,
		Flow: messages.FlowKey{Fairness: "f", Priority: priority},
	})
	if !ok {
		tt.Fatalf("request %d: its loop has no room", id)
	}
	return cycle, now
}

// An objective that changes leaves alone what waits: requests keep their order, their place before those that come
// later, the priority that they came with, and the time until which they wait. The change counts for those that come
// later.
func TestRequestsInLineOutliveAChangeOfObjectives(t *testing.T) {
	const patience, before = 3 * time.Second, 1500 * time.Millisecond // which leave a busy machine as much time
	tr, end := quietTree(t, io.Discard, "--config-text", `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins: [{type: concurrency-detector, parameters: {maxConcurrency: 1}}]
flowControl: {saturationDetector: {pluginRef: concurrency-detector}}
`)
	defer end()
	f := tr.configuration
	f.add(config.Additions{Objectives: map[string]int{"chat": 1}})
	running, err := tr.hold(1)
	if err != nil {
		t.Fatal(err)
	}
	l := &line{tr, map[messages.RequestID]listener{}, map[messages.RequestID]messages.Port[messages.CycleMsg]{}}
	began := l.arrives(t, 4, "chat", patience)
	for id := messages.RequestID(2); id < 4; id++ {
		l.arrives(t, id, "chat", time.Minute)
	}
	<-time.After(before - time.Since(began))
	f.add(config.Additions{Objectives: map[string]int{"chat": -5, "urgent": 7}})
	l.arrives(t, 5, "chat", time.Minute)
	l.arrives(t, 6, "urgent", time.Minute)
	for id, answers := range l.told {
		for n := len(answers); n > 0; n-- {
			if m, due := (<-answers).(messages.AnswerDue); !due || n > 1 {
				t.Errorf("request %d was told %+v and %d more, want when its answer is due, once at most", id, m, n-1)
			}
		}
	}

	answer := <-l.told[4]
	if m, failed := answer.(messages.PickFailed); !failed || m.Reason != messages.TTLExpired {
		t.Errorf("request 4 was told %+v, want that its time was over", answer)
	}
	if took := tr.picker.System().Now().Sub(began); took < patience || took >= before+patience {
		t.Errorf("request 4 waited for %v, want %v, which began when it came", took, patience)
	}
	l.leaves(t, running, 6, 2, 3, 5)
}

// line is requests that wait for room.
type line struct {
	tree   *tree
	told   map[messages.RequestID]listener
	cycles map[messages.RequestID]messages.Port[messages.CycleMsg]
}

// arrives adds a request to the line.
func (l *line) arrives(t *testing.T, id messages.RequestID, objective string, patience time.Duration) (at time.Time) {
	t.Helper()
	l.told[id] = make(listener, 8)
	l.cycles[id], at = l.tree.inLine(t, id, objective, patience, l.told[id])
	awaitTrue(t, fmt.Sprintf("request %d waits", id), func() bool {
		return l.tree.gauge(t, "llm_d_epp_flow_control_queue_size") == float64(len(l.told))
	})
	return at
}

// leaves ends the request that runs, and each that has its place then, and checks that they come in this order.
func (l *line) leaves(t *testing.T, running heldRequest, order ...messages.RequestID) {
	t.Helper()
	for _, id := range order {
		running.end(l.tree.picker.System().Now())
		select {
		case m := <-l.told[id]:
			if _, picked := m.(messages.PickMade); !picked {
				t.Fatalf("request %d was told %+v, want a pick", id, m)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("request %d is not next", id)
		}
		running = heldRequest{id: id, cycle: l.cycles[id]}
	}
	running.end(l.tree.picker.System().Now())
}

// gauge returns the sum of a family of gauges.
func (t *tree) gauge(tt *testing.T, family string) (sum float64) {
	tt.Helper()
	families, err := t.registry.Gather()
	if err != nil {
		tt.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == family {
				sum += m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
