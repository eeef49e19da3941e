package extproc

import (
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/messages"
)

// With a destination-endpoint-served-verifier a response has what the proxy says of the server that served, or that it
// says nothing.
func TestResponseNamesWhoServed(t *testing.T) {
	lb := func(fields map[string]any) *ask { return withMeta(rH(last), lbNamespace, fields) }
	upstream := rH(last)
	upstream.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {
		Fields: map[string]*structpb.Value{upstreamAddress: structpb.NewStringValue("10.0.0.2:8000")},
	}}
	const missing = "fail: missing destination endpoint served metadata"
	for name, c := range map[string]struct {
		answer *ask
		off    bool
		want   string
	}{
		"a destination":       {lb(map[string]any{servedKey: "10.0.0.1:8000"}), false, "10.0.0.1:8000"},
		"a stranger":          {lb(map[string]any{servedKey: "192.0.2.1:9"}), false, "192.0.2.1:9"},
		"by its connection":   {upstream, false, "10.0.0.2:8000"},
		"no metadata":         {rH(last), false, "fail: missing envoy lb metadata"},
		"other metadata":      {lb(map[string]any{"x": "y"}), false, missing},
		"no value":            {lb(map[string]any{servedKey: "a\r\nb: c"}), false, missing},
		"not asked to verify": {lb(map[string]any{servedKey: "10.0.0.1:8000"}), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{script: func(s *cycle) {
				s.arrived.Stream.Tell(messages.PickMade{
					Destinations: messages.ListOf[messages.Address]("10.0.0.1:8000"),
				})
			}})
			r.inForce.VerifiesServed = !c.off
			answers := converse(t, r.serve(t), qH(last), c.answer)
			set := mutations(t, answers[1].GetResponseHeaders().GetResponse(), requestIDHeader,
				"x-conformance-test-served-endpoint")
			if got := set["x-conformance-test-served-endpoint"]; got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
