package telemetry

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/messages"
)

var served = messages.Record{
	Request: 7, ClientID: "mine", Model: "m", Target: "m-v2", Flow: messages.FlowKey{Fairness: "tenant", Priority: -2},
	Status: 200,
	Ended:  3 * time.Second,
	Served: messages.EndpointID{Slot: 1, Generation: 1}, SampleAge: 20 * time.Millisecond, QueueWait: time.Second,
	Events: messages.ListOf(messages.RecordEvent{Name: "RequestArrived"}),
	Decision: messages.Decision{
		PoolVersion: 1, Endpoints: messages.ListOf(messages.EndpointID{Generation: 1},
			messages.EndpointID{Slot: 1, Generation: 1}, messages.EndpointID{Slot: 2, Generation: 1}),
		Profiles: messages.ListOf(messages.ProfileRun{
			Totals: messages.ListOf[float32](0.5, 2, -1), Ranked: messages.ListOf[uint32](1), Runner: 0,
			Reads:  messages.ListOf("queued-requests", "kv-cache-usage"),
			Values: messages.ListOf(3, 0.5, 9, float32(math.NaN())),
		}),
	},
}

// logged returns the lines of a log with these flags, each decoded.
func logged(t *testing.T, write func(*Log), flags ...string) []map[string]any {
	t.Helper()
	var o LogOptions
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.Register(f)
	if err := f.Parse(flags); err != nil {
		t.Fatal(err)
	}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	r := newReader()
	close(r.gate)
	log, err := o.New(r)
	if err != nil {
		t.Fatal(err)
	}
	write(log)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	for line := range strings.Lines(r.text()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, m)
	}
	return all
}

func report(log *Log, times int) {
	address := func(id messages.EndpointID) messages.Address {
		return messages.Address([]string{"a:1", "b:1", "c:1"}[id.Slot])
	}
	q := NewRequests(log, address, func(messages.RequestID) string { return "0-7" })
	for range times {
		r := served
		q.Report(&r)
	}
}

func TestVerbositySaysWhatIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		flags            []string
		debug, info      bool
		requests         int // of 150 within a second; -1 = sampled: 100
		scores, messages bool
	}{
		"0":           {[]string{"-v=0"}, false, false, 0, false, false},
		"1":           {[]string{"-v=1"}, false, true, 0, false, false},
		"default":     {nil, false, true, -1, false, false},
		"3":           {[]string{"-v", "3"}, false, true, 150, false, false},
		"4":           {[]string{"--v=4"}, true, true, 150, true, false},
		"5":           {[]string{"-v5"}, true, true, 150, true, true},
		"level info":  {[]string{"-v5", "--zap-log-level=info"}, false, true, -1, false, false},
		"level debug": {[]string{"--zap-log-level=debug"}, true, true, 150, true, false},
		"level warn":  {[]string{"-v5", "--zap-log-level=warn"}, false, false, 0, false, false},
		"number":      {[]string{"-v0", "--zap-log-level=3"}, false, true, 150, false, false},
	} {
		synctestRun(t, name, func(t *testing.T) {
			got := map[string]int{}
			var request map[string]any
			for _, m := range logged(t, func(log *Log) {
				log.Debug("debug")
				log.Info("info")
				log.Warn("warn")
				report(log, 150)
			}, c.flags...) {
				text := m["msg"].(string)
				got[text]++
				if text == "request served" {
					request = m
				}
			}
			if got["debug"] != count(c.debug) || got["info"] != count(c.info) || got["warn"] != 1 {
				t.Errorf("lines %v, want debug %t, info %t, warn", got, c.debug, c.info)
			}
			n := got["request served"]
			if sampled := n == 100; c.requests >= 0 && n != c.requests || c.requests < 0 && !sampled {
				t.Errorf("%d request lines of 150, want %d", n, c.requests)
			}
			if (request["scores"] != nil) != c.scores || (request["messages"] != nil) != c.messages {
				t.Errorf("request line %v, want scores %t, messages %t", request, c.scores, c.messages)
			}
		})
	}
}

// synctestRun runs a test in a second that does not end while it runs.
func synctestRun(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestRequestLineSaysWhereAndWhy(t *testing.T) {
	lines := logged(t, func(log *Log) { report(log, 1) }, "-v5")
	if len(lines) != 1 {
		t.Fatalf("%d lines, want 1", len(lines))
	}
	got := lines[0]
	for key, want := range map[string]any{
		"level": "info", "request": "0-7", "x-request-id": "mine", "model": "m", "target_model": "m-v2",
		"fairness_id": "tenant",
		"priority":    -2.0,
		"endpoint":    "b:1", "score": 2.0,
		"runner_up": 0.5, "lead": 1.5, "queue_wait": 1.0, "sample_age": 0.02, "status": 200.0, "duration": 3.0,
	} {
		if got[key] != want {
			t.Errorf("%s: got %v, want %v", key, got[key], want)
		}
	}
	scores, _ := got["scores"].(map[string]any)
	if len(scores) != 2 || scores["a:1"] != 0.5 || scores["b:1"] != 2.0 {
		t.Errorf("scores %v, want a:1 0.5 and b:1 2, without what a filter took out", scores)
	}
	read, _ := got["read"].(map[string]any)
	runner, _ := got["runner_up_read"].(map[string]any)
	if len(read) != 2 || read["queued-requests"] != 3.0 || read["kv-cache-usage"] != 0.5 || len(runner) != 1 ||
		runner["queued-requests"] != 9.0 {
		t.Errorf("read %v and %v, want queues 3 and 9, a cache of 0.5, and one that is unknown left out", read, runner)
	}
	if list, _ := got["messages"].([]any); len(list) != 1 || list[0].(map[string]any)["message"] != "RequestArrived" {
		t.Errorf("messages %v", got["messages"])
	}
}

func TestLineThatIsOffCostsNothing(t *testing.T) {
	for name, verbosity := range map[string]int{"off": 1, "sampled away": 2} {
		synctestRun(t, name, func(t *testing.T) {
			o := LogOptions{Verbosity: verbosity, Encoder: "json", TimeFormat: "rfc3339"}
			r := newReader()
			close(r.gate)
			log, err := o.New(r)
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			q := NewRequests(log, func(messages.EndpointID) messages.Address { return "a" },
				func(messages.RequestID) string { return "i" })
			record := served
			for range 101 {
				q.Report(&record)
			}
			if n := testing.AllocsPerRun(50, func() { q.Report(&record) }); n != 0 {
				t.Errorf("%v allocations, want 0", n)
			}
		})
	}
}

// An error that is expected carries no stack, unless a flag asks for it.
func TestStacksAreForThoseWhoAsk(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		want  map[string]bool // by level
	}{
		"default":       {nil, map[string]bool{"warn": false, "error": false}},
		"from errors":   {[]string{"--zap-stacktrace-level=error"}, map[string]bool{"warn": false, "error": true}},
		"from warnings": {[]string{"--zap-stacktrace-level=warn"}, map[string]bool{"warn": true, "error": true}},
	} {
		t.Run(name, func(t *testing.T) {
			lines := logged(t, func(log *Log) {
				log.Warn("files: a line")
				log.Error("files: what was read before stays in force")
			}, c.flags...)
			if len(lines) != 2 {
				t.Fatalf("%d lines, want 2", len(lines))
			}
			for _, m := range lines {
				if _, has := m["stacktrace"]; has != c.want[m["level"].(string)] {
					t.Errorf("line %v, want a stack: %t", m, !has)
				}
			}
		})
	}
}

func TestFlagsThatAreWrong(t *testing.T) {
	good := LogOptions{Verbosity: 2, Encoder: "json", TimeFormat: "rfc3339"}
	for want, spoil := range map[string]func(*LogOptions){
		"--v:":                    func(o *LogOptions) { o.Verbosity = -1 },
		"--zap-encoder:":          func(o *LogOptions) { o.Encoder = "xml" },
		"--zap-time-encoding:":    func(o *LogOptions) { o.TimeFormat = "stardate" },
		"--zap-log-level: got \"": func(o *LogOptions) { o.Level = "loud" },
		"--zap-log-level:":        func(o *LogOptions) { o.Level = "-1" },
		"--zap-stacktrace-level:": func(o *LogOptions) { o.Stacktrace = "loud" },
	} {
		o := good
		spoil(&o)
		if err := o.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Check() = %v, want %s", err, want)
		}
	}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
}

func TestStaleSamplesAreToldOfOnceASecond(t *testing.T) {
	var reg *prometheus.Registry
	lines := logged(t, func(log *Log) {
		reg = prometheus.NewRegistry()
		p := NewPlugins(reg, log.Logger, nil)
		o := p.Observe(planOf(nil))
		for range 5 {
			o.AllStale()
		}
		p.stale.began = p.stale.began.Add(-staleLineEvery) // a second later
		o.AllStale()
		if n := testing.AllocsPerRun(50, o.AllStale); n != 0 {
			t.Errorf("%v allocations, want 0", n)
		}
	})
	if len(lines) != 2 || lines[0]["level"] != "warn" || lines[0]["profile_runs"] != 1.0 ||
		lines[1]["profile_runs"] != 5.0 {
		t.Errorf("lines %v, want a warning of 1 run, then one of 5", lines)
	}
	if got := sum(t, reg, "signalbox_all_samples_stale_total"); got != 6+51 {
		t.Errorf("%v runs counted, want 57", got)
	}
}

func TestDroppedLinesAreAMetric(t *testing.T) {
	r := newReader()
	close(r.gate)
	o := LogOptions{Verbosity: 2, Encoder: "json", TimeFormat: "rfc3339"}
	log, err := o.New(r)
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(log.Sink.Metric())
	log.Info("long", zap.String("x", strings.Repeat("x", sinkBytes)))
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if got := sum(t, reg, "signalbox_log_lines_dropped_total"); got != 1 {
		t.Errorf("%v lines dropped, want 1", got)
	}
	if !strings.Contains(r.text(), `"lines":1`) {
		t.Errorf("the log says %q, want that one line was lost", r.text())
	}
}

// sum adds up a family's counters and gauges.
func sum(t *testing.T, g prometheus.Gatherer, name string) (total float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return total
}

// A line tells tokens and times by how they are known, and what is not known has no field: 0 is a number.
func TestLineSaysHowTokensAreKnown(t *testing.T) {
	all := []string{"prompt_tokens", "cached_tokens", "output_tokens", "prompt_tokens_estimated",
		"output_tokens_estimated", "ttft", "response_headers"}
	for name, c := range map[string]struct {
		record messages.Record
		want   map[string]any
	}{
		"reported": {
			messages.Record{
				Headers: time.Second, FirstToken: 2 * time.Second, PromptTokens: 9,
				Usage: messages.Usage{
					Source: messages.UsageReported, PromptKnown: true, PromptTokens: 7, CachedKnown: true,
				},
			},
			map[string]any{"usage": "reported", "prompt_tokens": 7.0, "cached_tokens": 0.0, "output_tokens": 0.0,
				"ttft": 2.0, "response_headers": 1.0},
		},
		"reported, without cached tokens": {
			messages.Record{Usage: messages.Usage{Source: messages.UsageReported, PromptKnown: true, PromptTokens: 7}},
			map[string]any{"usage": "reported", "prompt_tokens": 7.0, "output_tokens": 0.0},
		},
		"the output alone": {
			messages.Record{PromptTokens: 9, Usage: messages.Usage{Source: messages.UsageReported, OutputTokens: 5}},
			map[string]any{"usage": "reported", "prompt_tokens_estimated": 9.0, "output_tokens": 5.0},
		},
		"the prompt alone": {
			messages.Record{
				Usage: messages.Usage{Source: messages.UsageNotReported, PromptKnown: true, PromptTokens: 7},
			},
			map[string]any{"usage": "not-reported", "prompt_tokens": 7.0},
		},
		"estimated": {
			messages.Record{Headers: time.Second, PromptTokens: 9,
				Usage: messages.Usage{Source: messages.UsageEstimated, OutputTokens: 5}},
			map[string]any{"usage": "estimated", "prompt_tokens_estimated": 9.0, "output_tokens_estimated": 5.0,
				"response_headers": 1.0},
		},
		"unknown": {messages.Record{Usage: messages.Usage{Source: messages.UsageNotLearned}},
			map[string]any{"usage": "not-learned"}},
	} {
		lines := logged(t, func(log *Log) {
			NewRequests(log, func(messages.EndpointID) messages.Address { return "a" },
				func(messages.RequestID) string { return "i" }).Report(&c.record)
		})
		got := map[string]any{"usage": lines[0]["usage"]}
		for _, field := range all {
			if v, there := lines[0][field]; there {
				got[field] = v
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s, want -, got +:\n%s", name, diff)
		}
	}
}

// The line of a request under a configuration with a gate says how it waited; that of another has no such field.
func TestRequestLineSaysHowItWaited(t *testing.T) {
	for name, c := range map[string]struct {
		wait messages.Wait
		want map[string]any
	}{
		"no gate": {messages.Wait{}, map[string]any{}},
		"room":    {messages.Wait{Outcome: messages.OutcomeDispatched}, map[string]any{"queue_outcome": "Dispatched"}},
		"waited": {
			messages.Wait{Outcome: messages.OutcomeEvictedTTL, Cause: messages.NoRoom, Ahead: 3, Failed: 2},
			map[string]any{"queue_outcome": "EvictedTTL", "queue_cause": "no-room", "queue_ahead": 3.0,
				"queue_turns_failed": 2.0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			lines := logged(t, func(log *Log) {
				r := served
				r.Wait = c.wait
				NewRequests(log, func(messages.EndpointID) messages.Address { return "a:1" },
					func(messages.RequestID) string { return "0-7" }).Report(&r)
			}, "-v3")
			got := map[string]any{}
			for key, value := range lines[0] {
				if strings.HasPrefix(key, "queue_") && key != "queue_wait" {
					got[key] = value
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}
