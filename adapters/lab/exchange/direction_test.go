package exchange

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// steps: H headers, h headers with the end, B body, E body with the end, T trailers are sent;
// ">h" headers, ">r" headers that replace the message, ">b" chunk, ">e" chunk with the end, ">p" plain body, ">x" body
// with changed headers, ">t" trailers, ">m" trailers with a mutation are answered.
func walk(d *directionState, steps ...string) (found []Rule, fatal bool) {
	streamed := func(end bool) *extprocv3.BodyResponse {
		return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
			Mutation: &extprocv3.BodyMutation_StreamedResponse{
				StreamedResponse: &extprocv3.StreamedBodyResponse{EndOfStream: end},
			},
		}}}
	}
	answers := map[string]func() []*Violation{
		">h": func() []*Violation { return d.gotHeaders(&extprocv3.HeadersResponse{}) },
		">b": func() []*Violation { return d.gotBody(streamed(false)) },
		">e": func() []*Violation { return d.gotBody(streamed(true)) },
		">p": func() []*Violation { return d.gotBody(&extprocv3.BodyResponse{}) },
		">x": func() []*Violation { return d.gotBody(changed(d.mode)) },
		">r": func() []*Violation {
			return d.gotHeaders(&extprocv3.HeadersResponse{
				Response: &extprocv3.CommonResponse{Status: extprocv3.CommonResponse_CONTINUE_AND_REPLACE},
			})
		},
		">t": func() []*Violation { return d.gotTrailers(&extprocv3.TrailersResponse{}) },
		">m": func() []*Violation {
			return d.gotTrailers(&extprocv3.TrailersResponse{HeaderMutation: &extprocv3.HeaderMutation{}})
		},
	}
	sends := map[string]func(){
		"H": func() { d.sentHeaders(false) }, "h": func() { d.sentHeaders(true) },
		"B": func() { d.sentBody(false) }, "E": func() { d.sentBody(true) }, "T": func() { d.sentTrailers() },
	}
	for _, step := range steps {
		if send := sends[step]; send != nil {
			send()
			continue
		}
		for _, v := range answers[step]() {
			found, fatal = append(found, v.Rule), fatal || v.Fatal
		}
	}
	return found, fatal
}

// changed is a body answer with a header mutation, in the form that the mode has.
func changed(m Mode) *extprocv3.BodyResponse {
	common := &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{}, ClearRouteCache: true}
	if m.Duplex() {
		common.BodyMutation = &extprocv3.BodyMutation{
			Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{}},
		}
	}
	return &extprocv3.BodyResponse{Response: common}
}

func TestFullDuplexDirection(t *testing.T) {
	tests := map[string]struct {
		steps    []string
		found    []Rule
		fatal    bool
		complete bool
	}{
		"headers only":                 {steps: []string{"h", ">h"}, complete: true},
		"streamed as it comes":         {steps: []string{"H", ">h", "B", ">b", "E", ">e"}, complete: true},
		"headers after the whole body": {steps: []string{"H", "B", "E", ">h", ">b", ">b", ">e"}, complete: true},
		"body then trailers":           {steps: []string{"H", "B", "T", ">h", ">b", ">t"}, complete: true},
		"trailers only":                {steps: []string{"H", "T", ">h", ">t"}, complete: true},
		"end not answered":             {steps: []string{"H", "E", ">h", ">b"}},
		"nothing sent: headers":        {steps: []string{">h"}, found: []Rule{WrongDirection}, fatal: true},
		"nothing sent: body":           {steps: []string{">b"}, found: []Rule{WrongDirection}, fatal: true},
		"nothing sent: trailers":       {steps: []string{">t"}, found: []Rule{WrongDirection}, fatal: true},
		"second headers": {steps: []string{"H", ">h", ">h"}, found: []Rule{DuplicateHeaders},
			fatal: true},
		"second headers amid the body": {steps: []string{"H", "B", ">h", ">b", ">h"},
			found: []Rule{DuplicateHeaders}, fatal: true},
		"body before headers": {steps: []string{"H", "B", ">b"}, found: []Rule{BodyBeforeHeaders},
			fatal: true},
		"body before any was sent": {steps: []string{"H", ">h", ">b"}, found: []Rule{BodyNotSent}, fatal: true},
		"body to headers with end": {steps: []string{"h", ">h", ">e"}, found: []Rule{BodyNotSent}, fatal: true,
			complete: true},
		"plain body": {steps: []string{"H", "B", ">h", ">p"}, found: []Rule{PlainBody},
			fatal: true},
		"body after the end": {steps: []string{"H", "E", ">h", ">e", ">b"}, found: []Rule{AfterEnd},
			fatal: true, complete: true},
		"second end": {steps: []string{"H", "E", ">h", ">e", ">e"}, found: []Rule{AfterEnd},
			fatal: true, complete: true},
		"body after the trailers": {steps: []string{"H", "B", "T", ">h", ">t", ">b"}, found: []Rule{AfterEnd},
			fatal: true, complete: true},
		"chunk in headers and trailers": {steps: []string{"H", "T", ">h", ">b"}, found: []Rule{BodyBeforeTrailers},
			fatal: true},
		"trailers before headers": {steps: []string{"H", "T", ">t"}, found: []Rule{TrailersBeforeHeaders},
			fatal: true},
		"trailers not sent, headers open": {steps: []string{"H", ">t"}, found: []Rule{TrailersNotSent}, fatal: true},
		"trailers not sent, body open": {steps: []string{"H", "B", ">h", ">t"}, found: []Rule{TrailersNotSent},
			fatal: true},
		"trailers not sent, complete": {steps: []string{"H", "E", ">h", ">e", ">t"}, found: []Rule{TrailersNotSent},
			complete: true},
		"the same with a mutation": {steps: []string{"H", "E", ">h", ">e", ">m"}, found: []Rule{TrailersNotSent},
			fatal: true, complete: true},
		"trailers twice": {steps: []string{"H", "T", ">h", ">t", ">t"}, found: []Rule{TrailersNotSent},
			complete: true},
		"end before the input's end": {steps: []string{"H", "B", ">h", ">e"}, found: []Rule{EarlyEnd},
			complete: true},
		"end although trailers follow": {steps: []string{"H", "B", "T", ">h", ">e", ">t"},
			found: []Rule{EndBeforeTrailers}, complete: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := &directionState{mode: FullDuplex()}
			found, fatal := walk(d, test.steps...)
			if diff := cmp.Diff(test.found, found); diff != "" || fatal != test.fatal || d.complete() != test.complete {
				t.Errorf("steps %v: fatal %v, complete %v, rules (-want +got):\n%s", test.steps, fatal, d.complete(),
					diff)
			}
		})
	}
}

func TestHeadersAreHeldOnlyBehindAWholeBody(t *testing.T) {
	tests := map[string]struct {
		steps []string
		held  bool
	}{
		"whole body": {[]string{"H", "E", ">h"}, true},
		"part":       {[]string{"H", "B", ">h"}, false},
		"no body":    {[]string{"h", ">h"}, false},
	}
	for name, test := range tests {
		d := &directionState{mode: FullDuplex()}
		if walk(d, test.steps...); d.held != test.held {
			t.Errorf("%s: held %v, want %v", name, d.held, test.held)
		}
	}
}

func option(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, RawValue: []byte(value)}}
}

func TestHeaderMutations(t *testing.T) {
	appended := option("a", "3")
	appended.Append = wrapperspb.Bool(true) //nolint:staticcheck // deprecated, and the one field that Envoy heeds
	action := option("a", "3")
	action.AppendAction = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
	start := Headers{{":method", "GET"}, {":path", "/"}, {"a", "1"}, {"a", "2"}}
	tests := map[string]struct {
		mutation *extprocv3.HeaderMutation
		limits   Limits
		want     Headers
		rule     Rule
	}{
		"none": {want: start},
		"overwrite all lines": {mutation: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{option("A",
			"3")}}, want: Headers{start[0], start[1], {"a", "3"}}},
		"append counts": {mutation: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{appended}},
			want: append(start[:4:4], Field{"a", "3"})},
		"append_action does not": {mutation: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{action}},
			want: Headers{start[0], start[1], {"a", "3"}}},
		"remove before set": {mutation: &extprocv3.HeaderMutation{RemoveHeaders: []string{"a"},
			SetHeaders: []*corev3.HeaderValueOption{option("a", "4")}}, want: Headers{start[0], start[1], {"a", "4"}}},
		"path may change": {
			mutation: &extprocv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{option(":path", "/b")},
			}, want: Headers{start[0], start[2], start[3], {":path", "/b"}},
		},
		"method may not": {
			mutation: &extprocv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{option(":method", "PUT")},
			}, want: start, rule: IgnoredHeader,
		},
		"host may not": {
			mutation: &extprocv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{option("Host", "x")},
			}, want: start, rule: IgnoredHeader,
		},
		"content-length is dropped": {
			mutation: &extprocv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{option("content-length", "1")},
			}, want: start, rule: IgnoredHeader,
		},
		"path is not removed": {mutation: &extprocv3.HeaderMutation{RemoveHeaders: []string{":path"}},
			want: start, rule: IgnoredHeader},
		"rejected as a whole": {
			mutation: &extprocv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{option("b", "1"), option("c", "\n")},
			}, want: start, rule: InvalidMutation,
		},
		"result has too many lines": {
			mutation: &extprocv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{option("b", "1")},
			}, limits: Limits{Lines: 4}, want: start, rule: InvalidMutation,
		},
		"result is too large": {
			mutation: &extprocv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{option("b", "123456789012345")},
			}, limits: Limits{Bytes: 30}, want: start, rule: InvalidMutation,
		},
		"bytes beyond ASCII pass": {
			mutation: &extprocv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{option("a", "\xff")},
			}, want: Headers{start[0], start[1], {"a", "\xff"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := append(Headers(nil), start...)
			found := got.apply(&directionState{mode: FullDuplex()}, test.mutation, test.limits)
			var rule Rule
			if len(found) > 0 {
				rule = found[0].Rule
			}
			if diff := cmp.Diff(test.want, got); diff != "" || rule != test.rule || len(found) > 1 {
				t.Errorf("rule %q, want %q; headers (-want +got):\n%s", rule, test.rule, diff)
			}
		})
	}
}
