package cycle

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// page returns the metrics page in Prometheus' text format.
func (b *bench) page() string {
	b.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		b.Fatal(err)
	}
	var out bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
			b.Fatal(err)
		}
	}
	return out.String()
}

// asked returns a request of a model and a flow that was answered with a status.
func asked(model, flow string, status int) *messages.Record {
	r := streamed
	r.Model, r.Flow.Fairness, r.Status = model, flow, status
	return &r
}

func TestNamesThatAreMadeUpAreNotOnThePage(t *testing.T) {
	b := newBench(t, spec)
	e := b.pool.Snapshot().Endpoints[0]
	for i := range 2000 {
		b.live(asked(fmt.Sprint("made-up-", i), fmt.Sprint("made-up-", i), 404), e)
	}
	page := b.page()
	t.Logf("%d bytes", len(page))
	if len(page) > 80<<10 || strings.Contains(page, "made-up") {
		t.Errorf(
			"%d bytes, a made-up name among them: %t; want at most 80 KiB, and none", len(page),
			strings.Contains(page, "made-up"),
		)
	}
	b.want("llm_d_epp_request_total", map[string]string{"other|other|2|other|": "2000"})
	b.want("llm_d_epp_request_running", map[string]string{"other|other|2|other|": "0"})
	b.want("llm_d_epp_request_error_total", map[string]string{"404|other|other|2|other|": "2000"})
	b.want("llm_d_epp_scheduler_attempts_total", map[string]string{"a|ns|8000|success|other|": "2000"})
}

func TestModelIsKnownOnceItIsAnsweredOrListed(t *testing.T) {
	for name, c := range map[string]struct {
		model, flow string
		status      int
		local       string
		want        string
	}{
		"answered":                 {"real", "mine", 200, "", "mine|real|2|real|"},
		"redirected":               {"real", "mine", 307, "", "mine|real|2|real|"},
		"refused":                  {"real", "mine", 404, "", "other|other|2|other|"},
		"failed":                   {"real", "mine", 500, "", "other|other|2|other|"},
		"no answer":                {"real", "mine", 0, "", "other|other|2|other|"},
		"answered by Envoy itself": {"real", "mine", 200, "direct_response", "other|other|2|other|"},
		"a listed model":           {"n", "mine", 500, "", "other|n|2|n|"},
		"a listed model and flow":  {"n", messages.DefaultFairness, 500, "", "default-flow|n|2|n|"},
		"no model":                 {"", messages.DefaultFairness, 500, "", "default-flow||2||"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, spec)
			r := asked(c.model, c.flow, c.status)
			r.Local = c.local
			b.live(r, b.pool.Snapshot().Endpoints[0])
			for _, family := range []string{"request_total", "request_running", "request_duration_seconds",
				"request_size_bytes"} {
				if got := b.values("llm_d_epp_" + family); got[c.want] == "" {
					t.Errorf("%s: got %v, want %s in it", family, got, c.want)
				}
			}
			if got := b.values("llm_d_epp_request_total"); got[c.want] != "1" || len(got) != 1 && c.status != 200 &&
				c.status != 307 {
				t.Errorf("got %v, want one request as %s", got, c.want)
			}
		})
	}
}

// A model that the configuration has serve counts by its name at once; one that clients make up does not, whether a
// body or a header has it.
func TestRewrittenRequestsAreCountedUnderBothNames(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		serves string // by the configuration
		want   map[string]string
		picked string
	}{
		"answered": {200, "target", map[string]string{"default-flow|real|2|target|": "1",
			"default-flow|other|2|target|": "0"}, "target"},
		"refused": {404, "target", map[string]string{"default-flow|other|2|target|": "1"}, "target"},
		"answered by header": {200, "", map[string]string{"default-flow|real|2|target|": "1",
			"default-flow|other|2|other|": "0"}, "target"},
		"refused by header": {404, "", map[string]string{"default-flow|other|2|other|": "1"}, "other"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, spec)
			r := asked("real", messages.DefaultFairness, c.status)
			r.Target = "target"
			if c.serves != "" {
				b.all.Served(c.serves)
			}
			b.live(r, b.pool.Snapshot().Endpoints[0])
			b.want("llm_d_epp_request_total", c.want)
			b.want("llm_d_epp_scheduler_attempts_total", map[string]string{"a|ns|8000|success|" + c.picked + "|": "1"})
		})
	}
}

func TestRequestsInFlightMoveWhenTheirNamesBecomeKnown(t *testing.T) {
	b := newBench(t, spec)
	e := b.pool.Snapshot().Endpoints[0]
	first, second, third := asked("real", "f", 0), asked("real", "f", 0), asked("real", "f", 0)
	var open [3]account
	for i, r := range []*messages.Record{first, second, third} {
		open[i] = b.all.arrived(r)
		open[i].onDispatched(time.Second)
		open[i].onPicked(e, -1, 0)
	}
	const unknown, known = "f|other|2|other|", "f|real|2|real|"
	b.want("llm_d_epp_request_running", map[string]string{unknown: "3"})
	b.want("llm_d_epp_request_total", map[string]string{unknown: "0"})

	first.Status = 200
	open[0].responded(first)
	open[0].responded(first)
	b.want("llm_d_epp_request_running", map[string]string{unknown: "2", known: "1"})
	b.want("llm_d_epp_request_total", map[string]string{unknown: "0", known: "1"})
	b.want("llm_d_epp_flow_control_request_queue_duration_seconds",
		map[string]string{"f|pool|other|Dispatched|2|other|": "0 0", "f|pool|real|Dispatched|2|real|": "1 1"})
	b.want("llm_d_epp_scheduler_attempts_total", map[string]string{"a|ns|8000|success|real|": "1"})

	second.Status = 503 // by now the name is known
	open[1].responded(second)
	open[1].ended(second)
	third.Reason = messages.ClientGone
	open[2].ended(third)
	open[0].ended(first)
	b.want("llm_d_epp_request_running", map[string]string{unknown: "0", known: "0"})
	b.want("llm_d_epp_request_total", map[string]string{unknown: "0", known: "3"})
	b.want(
		"llm_d_epp_request_error_total",
		map[string]string{"503|f|real|2|real|": "1", "rejected-context-cancelled|f|real|2|real|": "1"},
	)
	b.want("llm_d_epp_scheduler_attempts_total", map[string]string{"a|ns|8000|success|real|": "3"})
}

// worst returns a pool of n endpoints with the longest names that discovery takes.
func worst(n int) []messages.EndpointSpec {
	specs := make([]messages.EndpointSpec, n)
	for i := range specs {
		specs[i] = messages.EndpointSpec{
			Name: fmt.Sprint(strings.Repeat("e", 249), i), Namespace: strings.Repeat("n", 253),
			Address: messages.Address(fmt.Sprintf("[2001:db8:1111:2222:3333:4444:5555:%x]:8000", i)),
		}
	}
	return specs
}

// TestPageHasABound fills every table with names that were answered: long ones, with characters that are escaped.
func TestPageHasABound(t *testing.T) {
	for name, long := range map[string]string{"short names": "", "long names": strings.Repeat("x", 100),
		"quotes": strings.Repeat(`"`, 100)} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, worst(3000)...)
			es := b.pool.Snapshot().Endpoints
			for i := range 20_000 {
				model, flow, status := fmt.Sprint(long, i/20), fmt.Sprint(long, i%300), 200
				b.live(asked(model, flow, status), es[i%len(es)])
				b.live(asked(model, flow, 400+i%200), es[i*7%len(es)])
			}
			page := len(b.page())
			t.Logf(
				"%d bytes, %d sets of labels reckoned at %d", page, len(b.all.labels.sets.All()),
				b.all.labels.taken.Load(),
			)
			if limit := requestPageBytes + attemptPageBytes + 2<<20 + 1<<20; page > limit {
				t.Errorf("%d bytes, want at most %d", page, limit)
			}
			if b.values("llm_d_epp_request_total")["other|other|0|other|"] == "" {
				t.Error("no request counts under other: the page is not full")
			}
		})
	}
}

// TestCostOfASetIsWhatItTakes compares the computed cost of a set of labels with what the set adds to the page.
func TestCostOfASetIsWhatItTakes(t *testing.T) {
	b := newBench(t, spec)
	e := b.pool.Snapshot().Endpoints[0]
	b.live(asked("m", "f", 200), e)
	for i, model := range []string{"n", strings.Repeat("x", 128), strings.Repeat(`\`, 64)} {
		before, taken := len(b.page()), b.all.labels.taken.Load()
		for status := 200; status < 430; status++ {
			b.live(asked(model, "f", status), e)
		}
		added, reckoned := len(b.page())-before, int(b.all.labels.taken.Load()-taken)
		t.Logf("%d bytes of name: %d bytes added, %d reckoned", len(model), added, reckoned)
		if added > reckoned || added < reckoned*8/10 {
			t.Errorf("case %d: %d bytes were added, %d reckoned", i, added, reckoned)
		}
	}
}

// TestFlowsLeaveRoomForModels: flows that a client invents for a served model must not take the room of models.
func TestFlowsLeaveRoomForModels(t *testing.T) {
	b := newBench(t, spec)
	e := b.pool.Snapshot().Endpoints[0]
	for i := range 1000 {
		b.live(asked("m", fmt.Sprint("tenant-", i), 200), e)
	}
	for i := range 50 {
		b.live(asked(fmt.Sprint("model-", i), "tenant-999", 200), e)
		b.live(asked(fmt.Sprint("model-", i), messages.DefaultFairness, 200), e)
	}
	got := b.values("llm_d_epp_request_total")
	for i := range 50 {
		for _, flow := range []string{"other", messages.DefaultFairness} {
			if key := fmt.Sprintf("%s|model-%d|2|model-%d|", flow, i, i); got[key] != "1" {
				t.Errorf("%s: %q requests, want 1", key, got[key])
			}
		}
	}
}

func TestWhatIsTakenIsWhatTheSetsCost(t *testing.T) {
	b := newBench(t, spec)
	for i := range 2000 {
		b.live(asked(fmt.Sprint("model-", i), fmt.Sprint("flow-", i%7), 200+200*(i%2)), b.pool.Snapshot().Endpoints[0])
	}
	cost := int64(0)
	for set := range b.all.labels.sets.All() {
		if set != rest {
			cost += b.all.labels.cost.of(set)
		}
	}
	if taken := b.all.labels.taken.Load(); taken != cost || taken > requestPageBytes {
		t.Errorf("%d bytes are taken, the sets cost %d; want the same, and at most %d", taken, cost, requestPageBytes)
	}
}

func TestPicksWithoutRoomForTheirModelsAreShownTogether(t *testing.T) {
	var specs []messages.EndpointSpec
	for i := range 1500 {
		specs = append(
			specs,
			messages.EndpointSpec{
				Name: fmt.Sprintf("e%04d", i), Namespace: "ns",
				Address: messages.Address(fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250)),
			},
		)
	}
	b := newBench(t, specs...)
	for _, e := range b.pool.Snapshot().Endpoints {
		for m := range 50 {
			endpoints.LoadWriter{Endpoint: e}.CountModel(fmt.Sprint("a-model-with-a-usual-name-", m))
		}
	}
	got := b.values("llm_d_epp_scheduler_attempts_total")
	if got["e0000|ns|8000|success|a-model-with-a-usual-name-7|"] != "1" || got["e1499|ns|8000|success|other|"] != "50" {
		t.Errorf("%d series; the first endpoint's models or the last one's sum are missing", len(got))
	}
	total := 0
	for _, v := range got {
		var n int
		if _, err := fmt.Sscan(v, &n); err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total != 1500*50 {
		t.Errorf("%d picks are shown, want %d", total, 1500*50)
	}
}

func TestEndpointsBeyondTheRoomHaveNoSeries(t *testing.T) {
	b := newBench(t, worst(3000)...)
	listed := len(b.pool.Snapshot().WithSeries())
	if n := len(b.values("signalbox_endpoint_inflight_requests")); n != listed || listed > 1000 || listed < 500 {
		t.Errorf("%d endpoints have series, %d are listed, want 500 to 1000 with names of 500 bytes", n, listed)
	}
	small := endpoints.NewSnapshot(1, b.pool.Snapshot().Endpoints[:100])
	if n := len(small.WithSeries()); n != 100 {
		t.Errorf("%d of 100 endpoints have series", n)
	}
}

// series returns the number of time series on the page.
func series(page string) int {
	n := 0
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

// TestManyFlowsAreFewSeries: however many ids clients make up, and whatever becomes of their requests, the page stays
// small.
func TestManyFlowsAreFewSeries(t *testing.T) {
	b := newBench(t, spec)
	e := b.pool.Snapshot().Endpoints[0]
	for i := range 100_000 {
		r := asked("m", fmt.Sprint("tenant-", i), 200)
		r.Flow.Priority = i % 3
		b.live(r, e)
		b.waits(inVain(r, messages.OutcomeRejectedCapacity+messages.Outcome(i%8)))
	}
	page := b.page()
	t.Logf("%d series, %d bytes", series(page), len(page))
	if n := series(page); n >= 20_000 {
		t.Errorf("%d series, want fewer than 20 000", n)
	}
}

// As many flows have labels of their own as are told apart. The default flow is none of them.
func TestFlowsToldApart(t *testing.T) {
	for most, want := range map[int]int{1: 1, 3: 3, DefaultFlowLabels: 5} {
		b := newBench(t, spec)
		b.all.TellFlows(most)
		b.all.Served("n")
		for i := range 5 {
			b.live(asked("n", fmt.Sprint("flow-", i), 200), b.pool.Snapshot().Endpoints[0])
		}
		b.live(asked("n", messages.DefaultFairness, 200), b.pool.Snapshot().Endpoints[0])
		flows := 0
		for labels := range b.values("llm_d_epp_request_total") {
			if strings.HasPrefix(labels, "flow-") {
				flows++
			}
		}
		if flows != want {
			t.Errorf("told apart %d: %d flows of 5 have labels, want %d: %v", most, flows, want,
				b.values("llm_d_epp_request_total"))
		}
	}
}
