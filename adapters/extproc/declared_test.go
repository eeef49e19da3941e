package extproc

import (
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

// What a plugin does not declare it does not see. A value is read once, of several lines the first.
func TestDeclaredHeaders(t *testing.T) {
	given := func(text string) messages.HeaderValue { return messages.HeaderValue{Text: text, Given: true} }
	for name, tc := range map[string]struct {
		declared, sent []string
		want           []messages.HeaderValue // empty = the request has none
	}{
		"none declared": {nil, []string{"x-a: 1"}, nil},
		"none sent":     {[]string{"x-a"}, []string{"x-b: 1"}, nil},
		"one":           {[]string{"x-a"}, []string{"x-b: 1", "x-a: 2"}, []messages.HeaderValue{given("2")}},
		"two of three": {[]string{"x-a", "x-b", "x-c"}, []string{"x-c: 3", "x-a: 1"},
			[]messages.HeaderValue{given("1"), {}, given("3")}},
		"empty":          {[]string{"x-a"}, []string{"x-a: "}, []messages.HeaderValue{given("")}},
		"twice":          {[]string{"x-a"}, []string{"x-a: 1", "x-a: 2"}, []messages.HeaderValue{given("1")}},
		"one of our own": {[]string{":path"}, nil, []messages.HeaderValue{given("/v1/chat/completions")}},
		"too long": {[]string{"x-a"}, []string{"x-a: " + strings.Repeat("y", 200)},
			[]messages.HeaderValue{given(strings.Repeat("y", 128))}},
		"cookie": {[]string{"cookie=sid"}, []string{"cookie: a=1; sid=2;sid=3", "x-sid: 4"},
			[]messages.HeaderValue{given("2")}},
		"cookie of the second line": {[]string{"cookie=sid"}, []string{"cookie: SID=1; xsid=2; sid", "cookie: sid=a=b"},
			[]messages.HeaderValue{given("a=b")}},
		"empty cookie": {[]string{"cookie=sid"}, []string{"cookie: sid="}, []messages.HeaderValue{given("")}},
		"no cookie":    {[]string{"cookie=sid"}, []string{"cookie: side=1", "sid: 1"}, nil},
		"cut at a letter": {[]string{"x-a"}, []string{"x-a: " + strings.Repeat("y", 127) + "é"},
			[]messages.HeaderValue{given(strings.Repeat("y", 127))}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			r.inForce.Headers = tc.declared
			converse(t, r.serve(t), qH(last, append([]string{":path: /v1/chat/completions"}, tc.sent...)...))
			if got := r.only(t).arrived.Request.Headers.Append(nil); !slices.Equal(got, tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// A request without a fairness id belongs to the flow that the first of some headers names.
func TestFlowOfAgents(t *testing.T) {
	for name, c := range map[string]struct {
		sent []string
		want string
	}{
		"D97 none":        {nil, messages.DefaultFairness},
		"D96 header":      {[]string{"x-llm-d-inference-fairness-id: f"}, "f"},
		"second":          {[]string{"x-b: two"}, "two"},
		"D98 first":       {[]string{"x-b: two", "x-a: one"}, "one"},
		"empty":           {[]string{"x-a: ", "x-b: two"}, "two"},
		"D99 fairness id": {[]string{"x-a: one", "x-gateway-inference-fairness-id: f"}, "f"},
		"not UTF-8":       {[]string{"x-a: \xff"}, "\uFFFD"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			r.inForce.Headers, r.inForce.Flows = []string{"x-b", "x-c", "x-a"}, []int{2, 0}
			converse(t, r.serve(t), qH(last, append([]string{":path: /p"}, c.sent...)...))
			if got := r.only(t).arrived.Flow.Fairness; got != c.want {
				t.Errorf("flow %q, want %q", got, c.want)
			}
		})
	}
}

// A request may prefer to be refused where its prompt is not cached.
func TestPrefersCached(t *testing.T) {
	for name, c := range map[string]struct {
		sent []string
		want bool
	}{
		"none":            {nil, false},
		"alone":           {[]string{"prefer: if-available"}, true},
		"in a list":       {[]string{"prefer: return=minimal , IF-Available;x=1, wait=10"}, true},
		"second line":     {[]string{"prefer: wait=10", "prefer: if-available"}, true},
		"D57 another one": {[]string{"prefer: return=minimal"}, false},
		"part of it":      {[]string{"prefer: if-available-now"}, false},
		"with a value":    {[]string{"prefer: if-available=1"}, false},
		"empty":           {[]string{"prefer: "}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			converse(t, r.serve(t), qH(last, append([]string{":path: /p"}, c.sent...)...))
			if got := r.only(t).arrived.Request.IfCached; got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

// The list of models is answered for a GET of its path alone, and only while models are known.
func TestModelsAreListed(t *testing.T) {
	two := func() []string { return []string{"a", `b"`} }
	get := func(path string) *ask { return qH(last, ":method: GET", ":path: "+path) }
	for name, c := range map[string]struct {
		models func() []string
		sent   []*ask
		want   string // "" = a server is asked
	}{
		"listed": {two, []*ask{get("/v1/models")},
			`{"object":"list","data":[{"id":"a","object":"model"},{"id":"b\"","object":"model"}]}`},
		"with a query": {two, []*ask{get("/v1/models/?x=1")},
			`{"object":"list","data":[{"id":"a","object":"model"},{"id":"b\"","object":"model"}]}`},
		"none known":   {func() []string { return nil }, []*ask{get("/v1/models")}, ""},
		"not set":      {nil, []*ask{get("/v1/models")}, ""},
		"one model":    {two, []*ask{get("/v1/models/a")}, ""},
		"another path": {two, []*ask{get("/x/v1/models")}, ""},
		"POST":         {two, []*ask{qH(last, ":method: POST", ":path: /v1/models")}, ""},
		"with a body":  {two, []*ask{qH(more, ":method: GET", ":path: /v1/models"), qB("{}", last)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			r.inForce.Models = c.models
			s := open(t, r.serve(t))
			s.send(c.sent...)
			got := s.finish()
			if c.want == "" {
				r.only(t) // a cycle was asked
				return
			}
			answer := got[0].GetImmediateResponse()
			if len(got) != 1 || answer.GetStatus().GetCode() != 200 || string(answer.GetBody()) != c.want {
				t.Errorf("answered %v, want %s", got, c.want)
			}
		})
	}
}
