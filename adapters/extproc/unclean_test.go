package extproc

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/messages"
)

// unclean is 97 headers, several of one name, some of 60 KB, some not UTF-8.
func unclean(pseudo ...string) []string {
	long := strings.Repeat("a\xff\x00\u2028\"", 60_000/7)
	all := append(slices.Clone(pseudo), "accept: a/b", "accept: c/d;q=\xff", "accept: ", "set-cookie: a=\xc3",
		"set-cookie: b", "set-cookie: a=\xc3",
		"x-request-id: "+long, "x-llm-d-inference-fairness-id: "+long, "x-gateway-inference-fairness-id: \xff",
		"authorization: "+long)
	for len(all) < 97 {
		all = append(all, fmt.Sprintf("x-%d: \xfe%d", len(all), len(all)))
	}
	return all
}

// Headers that are no text, repeated, many or long change nothing: no answer sets, joins or removes one of them
// (transcript sees to that), and what is kept of them is clean.
func TestUncleanHeaders(t *testing.T) {
	request := unclean(":method: PO\xffST", ":path: /v1/chat/completions\xff", ":authority: \xff", "content-type: \xff",
		"content-encoding: \xff", "content-length: \xff")
	response := unclean(":status: 200", "content-type: \xff", "grpc-status: \xff")
	reject := fail(messages.PickFailed{Reason: messages.NoEndpoints, Detail: "no \xff"})
	tests := map[string]struct {
		setup setup
		body  string
		want  []string
	}{
		"served":               {setup{}, "{}", []string{"qH 10.0.0.1:8000", `qB "{}" eos`, "rH", `rB "x" eos`}},
		"refused by its cycle": {setup{script: reject}, "{}", []string{"503 rejected-no-endpoints"}},
		"refused before": {setup{config: func(c *Config) { c.MaxBodyBytes = 1 }}, "{}",
			[]string{"413 body-too-large"}},
		"no room": {setup{full: true}, "{}", []string{"503 overloaded"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(tc.setup)
			sent := []*ask{qH(more, request...), qB(tc.body, last)}
			if len(tc.want) > 1 {
				sent = append(sent, rH(more, response...), rB("x", last))
			}
			answers := converse(t, r.serve(t), sent...)
			if diff := cmp.Diff(tc.want, transcript(t, answers)); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
			for _, a := range answers {
				if i := a.GetImmediateResponse(); i != nil && (!utf8.Valid(i.GetBody()) || !json.Valid(i.GetBody())) {
					t.Errorf("refused with %q", i.GetBody())
				}
			}
			r.clean(t)
		})
	}
}

// clean checks that all that is kept of requests is clean and short: what cycles got, records, and labels of metrics.
func (r *rig) clean(t *testing.T) {
	t.Helper()
	kept := map[string]string{}
	for _, c := range r.started() {
		q := c.arrived.Request
		kept["path"], kept["client id"], kept["model"], kept["flow"] = q.Path, q.ClientID, q.Model,
			c.arrived.Flow.Fairness
	}
	for _, record := range r.refused {
		kept["record's client id"], kept["record's model"], kept["record's flow"] = record.ClientID, record.Model,
			record.Flow.Fairness
	}
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for i, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				kept[fmt.Sprintf("label %s of %s %d", l.GetName(), f.GetName(), i)] = l.GetValue()
			}
		}
	}
	for what, s := range kept {
		if !utf8.ValidString(s) || len(s) > 128 {
			t.Errorf("%s is %q, want at most 128 bytes of UTF-8", what, s)
		}
	}
}

// seen is a Parser that keeps what it is told of a body.
type seen struct{ path, contentType, contentEncoding string }

func (s *seen) Parse(path, contentType, contentEncoding string, _ []byte, _ *messages.Request) error {
	*s = seen{path, contentType, contentEncoding}
	return nil
}

func (*seen) SetPriority(string, string, string, []byte, int) (from, to int, text []byte) {
	return 0, 0, nil
}

func (*seen) Rename(string, string, string, []byte, string) (from, to int, text []byte) {
	return 0, 0, nil
}

// What the parser is told is what all lines say, or that the body is unreadable.
func TestHeadersOfTheBody(t *testing.T) {
	flood := func(n int, more ...string) []string {
		return append(append([]string{":path: " + chatPath}, slices.Repeat([]string{"x-filler: y"}, n-1)...), more...)
	}
	tests := map[string]struct {
		lines []string
		want  seen
	}{
		"plain":       {[]string{":path: /p?q", "content-type: t", "content-type: u"}, seen{"/p", "t", ""}},
		"an encoding": {[]string{"content-encoding: gzip"}, seen{pathless, "", "gzip"}},
		"encodings add up": {[]string{"content-encoding: identity", "content-type: t", "content-encoding: ",
			"content-encoding: gzip, br"}, seen{pathless, "t", "identity,,gzip, br"}},
		"many encodings": {slices.Repeat([]string{"content-encoding: identity"}, 100),
			seen{pathless, "", unreadable}},
		"a long encoding": {[]string{"content-encoding: " + strings.Repeat("identity,", 100) + "gzip"},
			seen{pathless, "", unreadable}},
		"a long one, then short": {[]string{"content-encoding: " + strings.Repeat("x", 60<<10),
			"content-encoding: gzip"}, seen{pathless, "", unreadable}},
		"a long content type": {[]string{"content-type: application/json;" + strings.Repeat("x", 60<<10)},
			seen{pathless, "application/json;" + strings.Repeat("x", 2<<10-17), ""}},
		"a long path": {[]string{":path: /" + strings.Repeat("x", 60<<10) + chatPath},
			seen{"/" + strings.Repeat("x", 8<<10-1), "", unreadable}},
		"as many headers":  {flood(maxHeaders), seen{chatPath, "", ""}},
		"too many headers": {flood(maxHeaders, "content-encoding: gzip"), seen{chatPath, "", unreadable}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, got := newRig(setup{}), new(seen)
			r.inForce.Parser = got
			if diff := cmp.Diff(served(), transcript(t, converse(t, r.serve(t), qH(more, tc.lines...),
				qB("{}", last)))); diff != "" {
				t.Errorf("answers, want -, got +:\n%s", diff)
			}
			if *got != tc.want {
				t.Errorf("the parser was told %.300q, want %.300q", *got, tc.want)
			}
		})
	}
}
