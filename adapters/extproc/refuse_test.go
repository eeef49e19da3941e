package extproc

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/adapters/extproc/grpcstatus"
	"github.com/signalbox-epp/signalbox/messages"
)

// unanswered are the reasons that no client ever hears from us.
var unanswered = map[messages.Reason]bool{
	messages.NoReason: true, messages.ClientGone: true, messages.ServerGone: true, messages.Lost: true,
}

func reasons() (all []messages.Reason) {
	for r := messages.NoReason; r.String() != "unknown"; r++ {
		all = append(all, r)
	}
	return all
}

func TestEveryReasonHasAStatus(t *testing.T) {
	if n := len(reasons()); n < 14 {
		t.Fatalf("%d reasons, want all", n)
	}
	for _, reason := range reasons() {
		r, ok := refusals[reason]
		if ok == unanswered[reason] {
			t.Errorf("reason %q: has a status: %v, want %v", reason, ok, !unanswered[reason])
		}
		if ok && (r.status < 400 || r.status > 599 || r.kind == "" || r.message == "") {
			t.Errorf("reason %q looks like %+v to a client", reason, r)
		}
	}
}

// refused is what a client sees of a refusal.
type refused struct {
	Status                         int
	ContentType, Reason, Retry, ID string
	Body                           errorBody
}

// onlyRefusal is the one answer there is, an immediate response.
func onlyRefusal(t *testing.T, all []*answer) refused {
	t.Helper()
	if len(all) != 1 || all[0].GetImmediateResponse() == nil {
		t.Fatalf("got %q, want one immediate response", transcript(t, all))
	}
	i := all[0].GetImmediateResponse()
	set := headers(t, i.GetHeaders())
	got := refused{
		Status: int(i.GetStatus().GetCode()), ContentType: set["content-type"], Reason: set[reasonHeader],
		Retry: set["retry-after"], ID: set[requestIDHeader],
	}
	for _, known := range []string{"content-type", reasonHeader, "retry-after", requestIDHeader} {
		delete(set, known)
	}
	if len(set) > 0 {
		t.Errorf("an immediate response sets %v as well", set)
	}
	if want := "signalbox_" + got.Reason; i.GetDetails() != want {
		t.Errorf("details are %q, want %q", i.GetDetails(), want)
	}
	var raw map[string]map[string]any
	if err := json.Unmarshal(i.GetBody(), &raw); err != nil {
		t.Fatalf("body %q: %v", i.GetBody(), err)
	}
	if _, ok := raw["error"]["param"]; !ok {
		t.Errorf("body %s has no error.param", i.GetBody())
	}
	if err := json.Unmarshal(i.GetBody(), &got.Body); err != nil {
		t.Fatal(err)
	}
	return got
}

// Whatever the cycle says, the client gets one answer of one form.
func TestRefusals(t *testing.T) {
	for _, reason := range reasons() {
		t.Run(reason.String(), func(t *testing.T) {
			m := messages.PickFailed{Reason: reason, Detail: "because \xff\n", RetryAfter: 1500 * time.Millisecond}
			r := newRig(setup{script: fail(m)})
			got := onlyRefusal(t, converse(t, r.serve(t), qH(more), qB("{}", last)))
			if unanswered[reason] {
				reason = messages.Internal
			}
			how := refusals[reason]
			want := refused{
				Status: how.status, ContentType: "application/json", Reason: reason.String(), Retry: "2",
				ID: "0000000000000abc-1",
				Body: errorBody{errorObject{Message: how.message + ": because \uFFFD\n", Type: how.kind,
					Code: reason.String()}},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
			if diff := cmp.Diff([]string{gone(false, 2)}, r.only(t).lines()); diff != "" {
				t.Errorf("told, want -, got +:\n%s", diff)
			}
		})
	}
}

// Every 429 tells the client when to try again, in whole seconds, whoever refuses.
func TestEvery429SaysWhen(t *testing.T) {
	for _, reason := range reasons() {
		for after, want := range map[time.Duration]string{0: "1", time.Millisecond: "1", 61 * time.Second: "61"} {
			r := newRig(setup{script: fail(messages.PickFailed{Reason: reason, RetryAfter: after})})
			got := onlyRefusal(t, converse(t, r.serve(t), qH(more), qB("{}", last)))
			if got.Status == 429 && got.Retry != want {
				t.Errorf("%v after %v: retry-after %q, want %s", reason, after, got.Retry, want)
			}
		}
	}
}

// Clients of the Anthropic API get its error object.
func TestRefusalsOfTheAnthropicAPI(t *testing.T) {
	const (
		anthropic = `{"type":"error","error":{"type":"rate_limit_error","message":"the model servers are saturated"}}`
		openAI    = `{"error":{"message":"the model servers are saturated","type":"rate_limit_error",` +
			`"param":null,"code":"rejected-saturated"}}`
	)
	for path, want := range map[string]string{
		"/v1/messages": anthropic, "/v1/messages/": anthropic, "/messages?a=/v1/responses": anthropic,
		"/a/v1/messages/count_tokens?beta=1": anthropic, "/v1/messages/count_tokens/": anthropic,
		"/v1/messages/render": anthropic, "/v1/messages/render/?beta=1": anthropic, "/proxy.messages": anthropic,
		"/v1/messages/x": openAI, "/v1/mymessages": openAI, "/v1/chat/completions?a=/v1/messages": openAI,
		"/v1/chat/completions/render": openAI, "/v1/messages//": openAI, "/": openAI,
	} {
		r := newRig(setup{script: fail(messages.PickFailed{Reason: messages.NoCapacity})})
		all := converse(t, r.serve(t), qH(more, ":path: "+path), qB("{}", last))
		if got := string(all[0].GetImmediateResponse().GetBody()); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	for reason, want := range map[messages.Reason]string{
		messages.Overloaded: "overloaded_error", messages.Internal: "api_error",
		messages.BodyTooLarge:   "request_too_large",
		messages.InvalidRequest: "invalid_request_error", messages.ResponseIdle: "timeout_error",
	} {
		got := string(refusalBody("/v1/messages", refusals[reason], messages.PickFailed{Reason: reason}))
		if !strings.Contains(got, `"type":"`+want+`"`) {
			t.Errorf("%v: got %s, want type %s", reason, got, want)
		}
	}
}

// Clients of gRPC get headers alone, under the HTTP status 200, whatever the reason.
func TestRefusalsOfCalls(t *testing.T) {
	for _, reason := range reasons() {
		if unanswered[reason] {
			continue
		}
		m := messages.PickFailed{Reason: reason, Detail: "50%\n", RetryAfter: time.Second}
		r := newRig(setup{script: fail(m)})
		all := converse(t, r.serve(t), qH(more, "content-type: application/grpc+proto"), qB("{}", last))
		i := all[0].GetImmediateResponse()
		code := grpcstatus.Of(refusals[reason].status)
		want := map[string]string{
			"content-type": "application/grpc", "grpc-status": strconv.Itoa(int(code)),
			"grpc-message": refusals[reason].message + ": 50%25%0A", "retry-after": "1",
			reasonHeader: reason.String(), requestIDHeader: "0000000000000abc-1",
		}
		if diff := cmp.Diff(want, headers(t, i.GetHeaders())); diff != "" {
			t.Errorf("%v: headers, want -, got +:\n%s", reason, diff)
		}
		if i.GetStatus().GetCode() != 200 || i.GetGrpcStatus().GetStatus() != uint32(code) || code == 0 ||
			len(i.GetBody()) > 0 {
			t.Errorf("%v: status %d, gRPC %d, body %q; want 200, %d, and none", reason, i.GetStatus().GetCode(),
				i.GetGrpcStatus().GetStatus(), i.GetBody(), code)
		}
	}
}

// An error of gRPC is one of the server, wherever it is told, though the HTTP status is 200.
func TestErrorsOfCalls(t *testing.T) {
	for name, c := range map[string]struct {
		sent []*ask
		want []string
	}{
		"headers alone": {[]*ask{rH(last, ":status: 200", "grpc-status: 14")}, []string{"started 503",
			"ended 0 0/0/0"}},
		"trailers": {[]*ask{rH(more, ":status: 200"), rB("x", more), rT("grpc-status: 8")},
			[]string{"started 200", "first", "error 429", "ended 1 0/0/0"}},
		"none": {[]*ask{rH(more, ":status: 200"), rB("x", more), rT("grpc-status: 0")},
			[]string{"started 200", "first", "ended 1 0/0/0"}},
		"the HTTP status": {[]*ask{rH(last, ":status: 502", "grpc-status: 14")}, []string{"started 502",
			"ended 0 0/0/0"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			converse(t, r.serve(t), append([]*ask{qH(more, "content-type: application/grpc"), qB("{}", last)},
				c.sent...)...)
			got := r.only(t).lines()
			if diff := cmp.Diff(c.want, got[:len(got)-1]); diff != "" {
				t.Errorf("told, want -, got +:\n%s", diff)
			}
		})
	}
}

// What the stream refuses by itself.
func TestOwnRefusals(t *testing.T) {
	parser := func(string, []byte) error { return errors.New("line 1: no") }
	drain := func(r *rig) { r.srv.Drain() }
	tests := map[string]struct {
		setup       setup
		before      func(*rig)
		sent        []*ask
		status      int
		retry, text string
		reason      messages.Reason
	}{
		"the parser's error": {setup: setup{parser: parser}, status: 400, reason: messages.InvalidRequest,
			text: ": line 1: no"},
		"the body's limit": {
			sent:   []*ask{qH(more), qB(strings.Repeat("x", testLimit), more), qB("x", last)},
			status: 413, reason: messages.BodyTooLarge, text: "limit",
		},
		"the limit while more is sent": {
			sent:   []*ask{qH(more), qB(strings.Repeat("x", testLimit+1), more), qB("x", more), qB("x", last)},
			status: 413, reason: messages.BodyTooLarge, text: "limit",
		},
		"a full inbox": {setup: setup{full: true}, status: 503, retry: "1", reason: messages.Overloaded,
			text: "overloaded"},
		"a drain": {before: drain, status: 503, retry: "1", reason: messages.ShuttingDown, text: "shutting down"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(tc.setup)
			client := r.serve(t)
			if tc.before != nil {
				tc.before(r)
			}
			if tc.sent == nil {
				tc.sent = []*ask{qH(more), qB("{}", last)}
			}
			got := onlyRefusal(t, converse(t, client, tc.sent...))
			if got.Status != tc.status || got.Reason != tc.reason.String() || got.Retry != tc.retry ||
				got.ID != "0000000000000abc-1" || !strings.Contains(got.Body.Error.Message, tc.text) {
				t.Errorf("got %+v, want %d %s with %q, retry-after %q", got, tc.status, tc.reason, tc.text, tc.retry)
			}
			if n := len(r.started()); n > 0 {
				t.Errorf("%d cycles were started, want none", n)
			}
		})
	}
}

func TestObservabilityIsNeverAnswered(t *testing.T) {
	r := newRig(setup{})
	sent := []*ask{qH(more), qB("{}", last), rH(more), rB("x", last)}
	for _, m := range sent {
		m.ObservabilityMode, m.ProtocolConfig = true, nil
	}
	if got := converse(t, r.serve(t), sent...); len(got) > 0 || len(r.started()) > 0 {
		t.Errorf("answered with %q, %d cycles, want silence", transcript(t, got), len(r.started()))
	}
}

// A panic costs the stream it happens in, and nothing else.
func TestPanics(t *testing.T) {
	boom := func() { panic("boom") }
	full := []*ask{qH(more), qB("{}", last), rH(more), rB("x", last)}
	tests := map[string]struct {
		setup  setup
		answer []string
		told   []string
	}{
		"parser": {setup{parser: func(string, []byte) error { boom(); return nil }}, []string{"500 internal"}, nil},
		"Start":  {setup{script: func(*cycle) { boom() }}, []string{"500 internal"}, nil},
		"usage": {
			setup{scan: func(messages.API, string) Scanner { boom(); return nil }}, served("rH", "500 internal"),
			[]string{"started 200", "gone completed=false frames=3 internal"},
		},
		"scanner": {
			setup{scan: func(messages.API, string) Scanner { return explosive{} }}, served("rH", "500 internal"),
			[]string{"started 200", "gone completed=false frames=4 internal"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(tc.setup)
			client := r.serve(t)
			other := open(t, client)
			other.send(qH(more))
			if diff := cmp.Diff(tc.answer, transcript(t, converse(t, client, full...))); diff != "" {
				t.Errorf("answers, want -, got +:\n%s", diff)
			}
			if name != "Start" { // a cycle that never came to be cannot be told
				var told []string
				for _, c := range r.started() {
					told = append(told, c.lines()...)
				}
				if diff := cmp.Diff(tc.told, told, equateEmpty); diff != "" {
					t.Errorf("told, want -, got +:\n%s", diff)
				}
			}
			r.mu.Lock()
			panicked := r.panicked
			r.cycles = nil
			r.mu.Unlock()
			if diff := cmp.Diff([]any{"boom"}, panicked); diff != "" {
				t.Errorf("Panicked was told, want -, got +:\n%s", diff)
			}
			if got := r.gauge(t, "signalbox_stream_panics_total"); got != 1 {
				t.Errorf("%v panics are counted, want 1", got)
			}
			if rest := other.finish(); len(rest) > 0 {
				t.Errorf("another stream was told %v", rest)
			}
		})
	}
}

type explosive struct{}

func (explosive) Write([]byte)          { panic("boom") }
func (explosive) Usage() messages.Usage { return messages.Usage{} }
func (explosive) ID() []byte            { return nil }
func (explosive) ErrorStatus() int      { return 0 }
func (explosive) Began() bool           { return true }
func (explosive) Events() int           { return 0 }

// gauge is the sum of a family's samples.
func (r *rig) gauge(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := prometheus.Gatherers{r.registry}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// What becomes of a request that waits has one reason, whatever else went wrong on the way, and each reason one status.
func TestStatusOfWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		why    messages.Reason
		status int
		reason string
	}{
		"D70 no capacity":             {messages.NoCapacity, 429, "rejected-saturated"},
		"D71 D74 no endpoints":        {messages.NoEndpoints, 503, "rejected-no-endpoints"},
		"D72 D78 D79 waited too long": {messages.TTLExpired, 429, "rejected-ttl-expired"},
		"D75 D80 D81 client gone":     {messages.ClientGone, 0, "rejected-context-cancelled"},
		"D76 D77 shutting down":       {messages.ShuttingDown, 503, "rejected-shutting-down"},
		"D82 anything else":           {messages.Internal, 500, "internal"},
		"D83 ended while it ran":      {messages.Preempted, 429, "evicted"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Status(tc.why); got != tc.status || tc.why.String() != tc.reason {
				t.Errorf("%s is answered with %d, want %d and %s", tc.why, got, tc.status, tc.reason)
			}
		})
	}
}
