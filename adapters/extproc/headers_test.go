package extproc

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/messages"
)

func hint(m *ask, value any) *ask {
	return withMeta(m, subsetNamespace, map[string]any{subsetKey: value})
}

func TestSubset(t *testing.T) {
	given := func(list ...messages.Address) messages.Subset {
		return messages.Subset{Given: true, Addresses: messages.ListOf(list...)}
	}
	tests := map[string]struct {
		sent []*ask
		want messages.Subset
	}{
		"D42 none":   {[]*ask{qH(last)}, messages.Subset{}},
		"D43 no key": {[]*ask{withMeta(qH(last), subsetNamespace, map[string]any{})}, messages.Subset{}},
		"D44 another key": {[]*ask{withMeta(qH(last), subsetNamespace, map[string]any{"x": "10.0.0.1:1"})},
			messages.Subset{}},
		"D45 one": {[]*ask{hint(qH(last), []any{"10.0.0.1:1"})}, given("10.0.0.1:1")},
		"D46 a list": {[]*ask{hint(qH(last), []any{"10.0.0.2:2", "10.0.0.1:1"})},
			given("10.0.0.2:2", "10.0.0.1:1")},
		"a comma string": {[]*ask{hint(qH(last), "10.0.0.2:2,10.0.0.1:1")}, given("10.0.0.2:2", "10.0.0.1:1")},
		"spaces":         {[]*ask{hint(qH(last), " 10.0.0.2:2 ,\t10.0.0.1:1 ,, ")}, given("10.0.0.2:2", "10.0.0.1:1")},
		"IPv6": {[]*ask{hint(qH(last), []any{"[2001:DB8::1]:80", "[::ffff:10.0.0.1]:80"})},
			given("[2001:db8::1]:80", "10.0.0.1:80")},
		"D49 junk": {[]*ask{hint(qH(last), []any{1, nil, true, "host:80", "10.0.0.1", "::1:80", map[string]any{},
			"10.0.0.1:1"})}, given("10.0.0.1:1")},
		"only junk":         {[]*ask{hint(qH(last), []any{1, "x"})}, given()},
		"a number":          {[]*ask{hint(qH(last), 7)}, given()},
		"D48 an empty list": {[]*ask{hint(qH(last), []any{})}, given()},
		"an empty string":   {[]*ask{hint(qH(last), "")}, given()},
		"on the body":       {[]*ask{qH(more), hint(qB("{}", last), "10.0.0.1:1")}, given("10.0.0.1:1")},
		"on the trailers":   {[]*ask{qH(more), qB("{}", more), hint(qT(), "10.0.0.1:1")}, given("10.0.0.1:1")},
		"list of strings": {[]*ask{hint(qH(last), []any{"10.0.0.2:2, 10.0.0.1:1", "10.0.0.3:3"})},
			given("10.0.0.2:2", "10.0.0.1:1", "10.0.0.3:3")},
		"near addresses": {[]*ask{hint(qH(last), []any{
			"10.0.0.1 :1", "10.0.0.1:", ":1", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:http", "10.0.0:1",
			"010.0.0.1:1", "[10.0.0.1]:1",
			"::1", "[::1]", "2001:db8::1:80", "[fe80::1%eth0]:1", "http://10.0.0.1:1", "10.0.0.1:1/", "[]",
			"10.0.0.1:1;10.0.0.2:2",
		})}, given()},
		"null":            {[]*ask{hint(qH(last), nil)}, given()},
		"a struct":        {[]*ask{hint(qH(last), map[string]any{"10.0.0.1:1": "10.0.0.1:1"})}, given()},
		"lists in a list": {[]*ask{hint(qH(last), []any{[]any{"10.0.0.1:1"}})}, given()},
		"a header":        {[]*ask{qH(last, ":path: /p", subsetKey+": 10.0.0.1:1")}, messages.Subset{}},
		"on the second chunk": {
			[]*ask{qH(more), qB("{", more), hint(qB("", more), "10.0.0.1:1"), qB("}", last)}, given("10.0.0.1:1"),
		},
		"too many": {[]*ask{hint(qH(last), strings.Repeat("10.0.0.1:1,", maxSubsetEntries)+"10.0.0.2:2")},
			given(slices.Repeat([]messages.Address{"10.0.0.1:1"}, maxSubsetEntries)...)},
		"the first wins": {[]*ask{hint(qH(more), "10.0.0.1:1"), hint(qB("{}", last), "10.0.0.2:2")},
			given("10.0.0.1:1")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			converse(t, r.serve(t), tc.sent...)
			got := r.only(t).arrived.Request.Subset
			if got.Given != tc.want.Given || !cmp.Equal(got.Addresses.Append(nil), tc.want.Addresses.Append(nil)) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// With the whole pool to pick from, no hint counts, wherever it stands.
func TestSubsetThatHasNoEffect(t *testing.T) {
	for name, sent := range map[string][]*ask{
		"D50 filter off, no hint":       {qH(last)},
		"D51 filter off, a hint":        {hint(qH(last), []any{"10.0.0.1:1"})},
		"D52 filter off, an empty hint": {hint(qH(last), []any{})},
		"on the body":                   {qH(more), hint(qB("{}", last), "10.0.0.1:1")},
		"on the trailers":               {qH(more), qB("{}", more), hint(qT(), "10.0.0.1:1")},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{config: func(c *Config) { c.WholePool = true }})
			converse(t, r.serve(t), sent...)
			if got := r.only(t).arrived.Request.Subset; got.Given {
				t.Errorf("got %v, want none", got)
			}
		})
	}
}

// Wherever the hint stands, it counts in each mode in which it can come before the pick: with or without a body.
func TestSubsetInEveryMode(t *testing.T) {
	for name, mode := range map[string]modes{"NONE": none, "STREAMED": streamed, "BUFFERED": whole,
		"BUFFERED_PARTIAL": partial, "FULL_DUPLEX_STREAMED": fds, "GRPC": framed} {
		eager := mode == none || mode == streamed || mode == framed // the pick goes with the headers
		for where, sent := range map[string][]*ask{
			"headers, no body": {hint(withModes(qH(last), mode, fds), "10.0.0.1:1")},
			"headers":          {hint(withModes(qH(more), mode, fds), "10.0.0.1:1"), qB("{}", last)},
			"body":             {withModes(qH(more), mode, fds), hint(qB("{}", last), "10.0.0.1:1")},
		} {
			t.Run(name+" "+where, func(t *testing.T) {
				r := newRig(setup{})
				converse(t, r.serve(t), sent...)
				got, want := r.only(t).arrived.Request.Subset, []messages.Address{"10.0.0.1:1"}
				if where == "body" && eager {
					want = nil
				}
				if got.Given != (want != nil) || !cmp.Equal(got.Addresses.Append(nil), want) {
					t.Errorf("got %v, want %v", got, want)
				}
			})
		}
	}
}

func TestServed(t *testing.T) {
	meta := func(m *ask, v any) *ask { return withMeta(m, lbNamespace, map[string]any{servedKey: v}) }
	set := func(m *ask, name, v string) *ask {
		m.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {
			Fields: map[string]*structpb.Value{name: structpb.NewStringValue(v)},
		}}
		return m
	}
	attr := func(m *ask, v string) *ask { return set(m, upstreamAddress, v) }
	details := func(m *ask, v string) *ask { return set(m, codeDetails, v) }
	tests := map[string]struct {
		sent *ask
		want string
	}{
		"absent":               {rH(last), "started 200"},
		"the second of a list": {meta(rH(last), "10.0.0.2:8000"), "started 200 10.0.0.2:8000"},
		"IPv6":                 {meta(rH(last), "[2001:db8::1]:80"), "started 200 [2001:db8::1]:80"},
		"attribute":            {attr(rH(last), "10.0.0.3:1"), "started 200 10.0.0.3:1"},
		"attribute, mapped":    {attr(rH(last), "[::ffff:10.0.0.3]:1"), "started 200 10.0.0.3:1"},
		"both":                 {attr(meta(rH(last), "10.0.0.2:8000"), "10.0.0.3:1"), "started 200 10.0.0.2:8000"},
		"a stranger":           {meta(rH(last), "192.0.2.1:9"), "started 200 192.0.2.1:9"},
		"junk":                 {meta(rH(last), "somewhere"), "started 200"},
		"no string":            {meta(rH(last), 7), "started 200"},
		"by a model server":    {details(rH(last), "via_upstream"), "started 200"},
		"by Envoy itself":      {details(rH(last), "no_healthy_upstream"), "started 200 local no_healthy_upstream"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{script: pick("10.0.0.1:8000", "10.0.0.2:8000")})
			converse(t, r.serve(t), qH(last), tc.sent)
			if got := r.only(t).lines()[0]; got != tc.want {
				t.Errorf("told %q, want %q", got, tc.want)
			}
		})
	}
}

// plainValues moves header values to the older field.
func plainValues(m *ask) *ask {
	for _, h := range m.GetRequestHeaders().GetHeaders().GetHeaders() {
		h.Value, h.RawValue = string(h.GetRawValue()), nil
	}
	return m
}

// bothValues puts another value into the older field.
func bothValues(m *ask) *ask {
	for _, h := range m.GetRequestHeaders().GetHeaders().GetHeaders() {
		h.Value = "/older"
	}
	return m
}

// The parser is chosen by the first of three headers that names a path, in whatever order they come.
func TestPathOfTheParser(t *testing.T) {
	for name, tc := range map[string]struct {
		headers []string
		want    string
	}{
		"D9 its own": {[]string{"x-forwarded-path: /baz", "x-original-path: /bar", ":path: /foo?x-original-path=/q"},
			"/foo"},
		"D10 original":   {[]string{"x-forwarded-path: /baz", "x-original-path: /bar"}, "/bar"},
		"D11 forwarded":  {[]string{"x-forwarded-path: /baz", "x-original-path: "}, "/baz"},
		"D12 its query":  {[]string{":path: /v1/messages?beta=true"}, "/v1/messages"},
		"D13 another's":  {[]string{"x-original-path: /v1/messages?beta=true"}, "/v1/messages"},
		"D14 the last's": {[]string{"x-forwarded-path: /v1/messages?beta=true"}, "/v1/messages"},
		"D15 none":       {[]string{":method: POST"}, "/v1/completions"},
		"the first line": {[]string{"x-original-path: /a", "x-original-path: /b"}, "/a"},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			r := newRig(setup{parser: func(path string, _ []byte) error {
				got = path
				return nil
			}})
			converse(t, r.serve(t), qH(more, tc.headers...), qB("{}", last))
			if got != tc.want {
				t.Errorf("the parser got path %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRequestFacts(t *testing.T) {
	type want struct{ Path, ClientID, Fairness string }
	flood := []string{":path: /p"}
	for range 200 {
		flood = append(flood, "x-filler: y")
	}
	tests := map[string]struct {
		sent *ask
		want want
	}{
		"plain": {qH(last, ":path: /p", "x-request-id: id", "x-llm-d-inference-fairness-id: f"),
			want{"/p", "id", "f"}},
		"D31 capitals, which no proxy sends": {qH(last, ":path: /p", "X-Request-ID: id"),
			want{"/p", "", messages.DefaultFairness}},
		"D32 raw before value": {bothValues(qH(last, ":path: /p", "x-request-id: id")),
			want{"/p", "id", messages.DefaultFairness}},
		"value, not raw": {plainValues(qH(last, ":path: /p", "x-request-id: id")),
			want{"/p", "id", messages.DefaultFairness}},
		"query": {qH(last, ":path: /p?q=1?2"), want{"/p", "", messages.DefaultFairness}},
		"the first counts": {qH(last, ":path: /p", ":path: /q", "x-request-id: a", "x-request-id: b"),
			want{"/p", "a", messages.DefaultFairness}},
		"original path": {qH(last, "x-original-path: /p?q", "x-forwarded-path: /q"),
			want{"/p", "", messages.DefaultFairness}},
		"no path": {qH(last, ":method: GET"), want{"", "", messages.DefaultFairness}},
		"odd paths": {qH(last, ":path: http://h//a/%2e"),
			want{"http://h//a/%2e", "", messages.DefaultFairness}},
		"old fairness": {qH(last, "x-gateway-inference-fairness-id: old"), want{"", "", "old"}},
		"D33 new beats old": {qH(last, "x-gateway-inference-fairness-id: old", "x-llm-d-inference-fairness-id: new"),
			want{"", "", "new"}},
		"empty": {qH(last, "x-request-id: ", "x-llm-d-inference-fairness-id: "),
			want{"", "", messages.DefaultFairness}},
		"not UTF-8": {qH(last, "x-request-id: a\xff\xfeb", ":path: /\xc3"),
			want{"/\uFFFD", "a\uFFFDb", messages.DefaultFairness}},
		"60 KiB": {qH(last, "x-request-id: "+strings.Repeat("x", 60<<10)),
			want{"", strings.Repeat("x", 128), messages.DefaultFairness}},
		"cut in a character": {qH(last, "x-request-id: "+strings.Repeat("x", 127)+"é"),
			want{"", strings.Repeat("x", 127), messages.DefaultFairness}},
		"60 KiB, not UTF-8": {qH(last, "x-request-id: "+strings.Repeat("\xff", 60<<10)),
			want{"", "\uFFFD", messages.DefaultFairness}},
		"60 KiB of path": {qH(last, ":path: /"+strings.Repeat("x", 60<<10)),
			want{"/" + strings.Repeat("x", 127), "", messages.DefaultFairness}},
		"60 KiB of flow": {qH(last, "x-llm-d-inference-fairness-id: "+strings.Repeat("x\xff", 30<<10)),
			want{"", "", strings.Repeat("x\uFFFD", 32)}},
		"200 headers": {qH(last, flood...), want{"/p", "", messages.DefaultFairness}},
		"absurd length": {qH(last, ":path: /p", "content-length: 1000000000000"),
			want{"/p", "", messages.DefaultFairness}},
		"negative length": {qH(last, ":path: /p", "content-length: -5"), want{"/p", "", messages.DefaultFairness}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			converse(t, r.serve(t), tc.sent)
			m := r.only(t).arrived
			if diff := cmp.Diff(tc.want, want{m.Request.Path, m.Request.ClientID, m.Flow.Fairness}); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

// The configuration that a request's headers met gives its priority, also to the record of a request without a cycle.
func TestPriority(t *testing.T) {
	long := strings.Repeat("x", 128)
	first, second := map[string]int{"batch": -5, "chat": 7, long: 3}, map[string]int{"batch": 9}
	tests := map[string]struct {
		priorities map[string]int
		headers    []string
		want       int
	}{
		"none":          {first, nil, 0},
		"known":         {first, []string{"x-llm-d-inference-objective: batch"}, -5},
		"old name":      {first, []string{"x-gateway-inference-objective: chat"}, 7},
		"another one":   {second, []string{"x-llm-d-inference-objective: batch"}, 9},
		"unknown":       {second, []string{"x-llm-d-inference-objective: chat"}, 0},
		"no objectives": {nil, []string{"x-llm-d-inference-objective: chat"}, 0},
		"first line": {first, []string{"x-llm-d-inference-objective: chat", "x-llm-d-inference-objective: batch"},
			7},
		"new beats old": {first, []string{"x-gateway-inference-objective: chat", "x-llm-d-inference-objective: batch"},
			-5},
		"unknown is new": {first, []string{"x-gateway-inference-objective: chat", "x-llm-d-inference-objective: no"},
			0},
		"empty": {first, []string{"x-llm-d-inference-objective: ", "x-gateway-inference-objective: chat"}, 7},
		"cut":   {first, []string{"x-llm-d-inference-objective: " + long + "y"}, 3},
		"case":  {first, []string{"x-llm-d-inference-objective: Batch"}, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			headers := append([]string{":path: /p", "x-llm-d-inference-fairness-id: f"}, tc.headers...)
			want := messages.FlowKey{Fairness: "f", Priority: tc.want}
			r := newRig(setup{})
			r.inForce.Priorities = tc.priorities
			converse(t, r.serve(t), qH(last, headers...))
			if got := r.only(t).arrived.Flow; got != want {
				t.Errorf("its cycle has flow %+v, want %+v", got, want)
			}
			r = newRig(setup{config: func(c *Config) { c.MaxBodyBytes = 4 }})
			r.inForce.Priorities = tc.priorities
			converse(t, r.serve(t), qH(more, headers...), qB("{    }", last))
			if len(r.refused) != 1 || r.refused[0].Flow != want {
				t.Errorf("refused: %+v, want flow %+v", r.refused, want)
			}
		})
	}
}

// A length that the client only claims takes no memory, and the body is what came.
func TestClaimedLength(t *testing.T) {
	for _, claim := range []string{"1000000000000", "1048576", "1", "x", "99999999999999999999"} {
		r := newRig(setup{config: func(c *Config) { c.MaxBodyBytes = 1 << 50 }})
		got := transcript(t, converse(t, r.serve(t), qH(more, ":path: /p", "content-length: "+claim), qB("{}", last)))
		if diff := cmp.Diff(served(), got); diff != "" {
			t.Errorf("content-length %s: want -, got +:\n%s", claim, diff)
		}
	}
}

// What the client says of destinations, tracing and lengths is neither obeyed nor repeated: transcript fails on any
// other mutation.
func TestForeignHeaders(t *testing.T) {
	r := newRig(setup{script: pick("10.0.0.1:1", "[2001:db8::1]:2")})
	lines := []string{
		":method: POST", ":path: " + chatPath, ":authority: a", ":scheme: http", "host: h", "content-length: 2",
		"transfer-encoding: chunked",
		"connection: close", "x-envoy-retry-on: 5xx", "traceparent: 00-1-2-01", "tracestate: a=b", destinationKey +
			": 6.6.6.6:6",
	}
	m := qH(more, lines...)
	m.MetadataContext = &corev3.Metadata{}
	got := transcript(t, converse(t, r.serve(t), m, qB("{}", last), rH(last, ":status: 200", "traceparent: 00-1-2-01",
		"set-cookie: a")))
	want := []string{"qH 10.0.0.1:1,[2001:db8::1]:2", `qB "{}" eos`, "rH"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

// A client cannot tell a sidecar where to turn: what it says is removed, or overwritten where the pick says it too.
func TestHeadersOfOursThatAClientSends(t *testing.T) {
	set := messages.ListOf(messages.Header{Name: messages.PrefillHeader, Value: "10.0.0.9:1"})
	for name, tc := range map[string]struct {
		set  messages.List[messages.Header]
		sent []string
		want string
	}{
		"none": {want: "qH 10.0.0.1:1"},
		"set":  {set: set, want: "qH 10.0.0.1:1 x-prefiller-host-port=10.0.0.9:1"},
		"removed": {sent: []string{"x-prefiller-host-port: 6.6.6.6:6"},
			want: "qH 10.0.0.1:1 without x-prefiller-host-port"},
		"overwritten": {set: set, sent: []string{"x-prefiller-host-port: 6.6.6.6:6"},
			want: "qH 10.0.0.1:1 x-prefiller-host-port=10.0.0.9:1"},
		"all": {set: set, sent: []string{
			"x-encoder-hosts-ports: 6.6.6.6:6", "x-data-parallel-host-port: 6.6.6.6:6",
			"x-kv-cache-source-host-port: 6.6.6.6:6", "x-kv-cache-source-host-port: 6.6.6.6:7",
		}, want: "qH 10.0.0.1:1 x-prefiller-host-port=10.0.0.9:1 without x-encoder-hosts-ports " +
			"without x-data-parallel-host-port without x-kv-cache-source-host-port"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{script: func(c *cycle) {
				to := messages.ListOf[messages.Address]("10.0.0.1:1")
				c.arrived.Stream.Tell(messages.PickMade{Destinations: to, Headers: tc.set})
			}})
			got := transcript(t, converse(t, r.serve(t), qH(last, append([]string{":path: /p"}, tc.sent...)...)))
			if diff := cmp.Diff([]string{tc.want}, got); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

func TestIDs(t *testing.T) {
	s := FormatID(testInstance, 42)
	tests := map[string]struct {
		in   string
		want messages.RequestID
		ok   bool
	}{
		"ours": {s, 42, true}, "another process": {FormatID(7, 42), 42, false}, "none": {"", 0, false},
		"no number": {s[:17], 0, false},
		"zero":      {s[:17] + "0", 0, false}, "junk": {s + "x", 0, false},
	}
	for name, tc := range tests {
		got, ok := ParseID(testInstance, tc.in)
		if ok != tc.ok || ok && got != tc.want {
			t.Errorf("%s: ParseID(%q) = %d, %v, want %d, %v", name, tc.in, got, ok, tc.want, tc.ok)
		}
	}
}

// Scores come in one struct beside the destinations, in every lane and message that can carry a pick. Without scores
// the metadata are as ever.
func TestScoresAreMetadataOfThePick(t *testing.T) {
	scored := messages.ListOf(messages.EndpointScore{Address: "10.0.0.1:1", Score: 2.5},
		messages.EndpointScore{Address: "[2001:db8::1]:2"})
	for name, tc := range map[string]struct {
		scores messages.List[messages.EndpointScore]
		frames []*ask
		want   any
	}{
		"headers alone": {scored, []*ask{qH(last)}, map[string]any{"10.0.0.1:1": 2.5, "[2001:db8::1]:2": 0.}},
		"light lane": {scored, []*ask{withModes(qH(last), fds, none)},
			map[string]any{"10.0.0.1:1": 2.5, "[2001:db8::1]:2": 0.}},
		"on the body": {scored, []*ask{withModes(qH(more), whole, none), qB("{}", last)},
			map[string]any{"10.0.0.1:1": 2.5, "[2001:db8::1]:2": 0.}},
		"none": {frames: []*ask{qH(last)}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{script: func(c *cycle) {
				to := messages.ListOf[messages.Address]("10.0.0.1:1")
				c.arrived.Stream.Tell(messages.PickMade{Destinations: to, Scores: tc.scores})
			}})
			all := converse(t, r.serve(t), tc.frames...)
			lb, _ := all[len(all)-1].GetDynamicMetadata().AsMap()[lbNamespace].(map[string]any)
			if lb[destinationKey] != "10.0.0.1:1" {
				t.Errorf("destinations %v", lb[destinationKey])
			}
			if diff := cmp.Diff(tc.want, lb["x-gateway-destination-endpoint-scores"]); diff != "" {
				t.Errorf("scores, want -, got +:\n%s", diff)
			}
		})
	}
}

// A response gets the headers that plugins set for the destination that served it, and none if that is not known to be
// one of them.
func TestResponseHeadersAreThoseOfWhoServed(t *testing.T) {
	one := func(value string) messages.List[messages.Header] {
		return messages.ListOf(messages.Header{Name: "x-session-token", Value: value})
	}
	served := func(v string) *ask { return withMeta(rH(last), lbNamespace, map[string]any{servedKey: v}) }
	local := rH(last)
	local.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {
		Fields: map[string]*structpb.Value{codeDetails: structpb.NewStringValue("no_healthy_upstream")},
	}}
	for name, c := range map[string]struct {
		answer *ask
		want   string
	}{
		"the second":      {served("10.0.0.2:8000"), "two"},
		"the first":       {served("10.0.0.1:8000"), "one"},
		"not told":        {rH(last), "one"},
		"a stranger":      {served("192.0.2.1:9"), ""},
		"by Envoy itself": {local, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{script: func(c *cycle) {
				c.arrived.Stream.Tell(messages.PickMade{
					Destinations: messages.ListOf[messages.Address]("10.0.0.1:8000", "10.0.0.2:8000"),
					Responses:    messages.ListOf(one("one"), one("two")),
				})
			}})
			answers := converse(t, r.serve(t), qH(last), c.answer)
			set := mutations(t, answers[1].GetResponseHeaders().GetResponse(), requestIDHeader, "x-session-token")
			if got := set["x-session-token"]; got != c.want || set[requestIDHeader] == "" {
				t.Errorf("the response has %v, want the token %q", set, c.want)
			}
		})
	}
}
