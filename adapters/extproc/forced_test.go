package extproc

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/messages"
)

// withAttr adds an attribute of the ext_proc filter to a message.
func withAttr(m *ask, key string, value any) *ask {
	s, err := structpb.NewStruct(map[string]any{key: value})
	if err != nil {
		panic(err)
	}
	m.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": s}
	return m
}

// A client names its endpoint with a token, or if Envoy says that it is on Envoy's machine. The headers go no further,
// whether they count or not.
func TestForcedEndpoint(t *testing.T) {
	const to, token = "x-signalbox-endpoint: 10.0.0.9:8000", "x-signalbox-token: right"
	const without = "qH 10.0.0.1:8000 without x-signalbox-endpoint"
	const neither = without + " without x-signalbox-token"
	for name, c := range map[string]struct {
		sent   []string
		source string // Envoy's attribute; "" = it does not tell
		forced messages.Address
		answer string
	}{
		"nothing":              {nil, "127.0.0.1:5", "", "qH 10.0.0.1:8000"},
		"a token":              {[]string{to, token}, "", "10.0.0.9:8000", neither},
		"a token from afar":    {[]string{to, token}, "192.0.2.1:5", "10.0.0.9:8000", neither},
		"another token":        {[]string{to, "x-signalbox-token: wrong"}, "192.0.2.1:5", "", neither},
		"an empty token":       {[]string{to, "x-signalbox-token: "}, "", "", neither},
		"no token":             {[]string{to}, "", "", without},
		"a token alone":        {[]string{token}, "127.0.0.1:5", "", "qH 10.0.0.1:8000 without x-signalbox-token"},
		"loopback":             {[]string{to}, "127.0.0.1:5", "10.0.0.9:8000", without},
		"loopback of IPv6":     {[]string{to}, "[::1]:5", "10.0.0.9:8000", without},
		"loopback within IPv6": {[]string{to}, "[::ffff:127.0.0.1]:5", "10.0.0.9:8000", without},
		"elsewhere":            {[]string{to}, "10.0.0.1:5", "", without},
		"a pipe":               {[]string{to}, "/run/envoy.sock", "", without},
		"forwarded":            {[]string{to, "x-forwarded-for: 127.0.0.1"}, "192.0.2.1:5", "", without},
		"IPv4 within IPv6": {[]string{"x-signalbox-endpoint: [::ffff:10.0.0.9]:8000"}, "127.0.0.1:5", "10.0.0.9:8000",
			without},
		"no address":              {[]string{"x-signalbox-endpoint: gpu-3"}, "127.0.0.1:5", "", "400 invalid-request"},
		"an address that may not": {[]string{"x-signalbox-endpoint: gpu-3"}, "", "", without},
		"empty":                   {[]string{"x-signalbox-endpoint: "}, "127.0.0.1:5", "", without},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			r.srv.deps.Accepted = func(token string) bool { return token == "right" }
			head := qH(last, append([]string{":path: /p"}, c.sent...)...)
			withMeta(head, subsetNamespace, map[string]any{subsetKey: []any{"10.0.0.1:8000"}})
			if c.source != "" {
				withAttr(head, sourceAddress, c.source)
			}
			got := transcript(t, converse(t, r.serve(t), head))
			if !slices.Equal(got, []string{c.answer}) {
				t.Errorf("answered %q, want %q", got, c.answer)
			}
			for _, cycle := range r.started() { // none after a refusal
				req, want := cycle.arrived.Request, messages.Address("10.0.0.1:8000") // of the hint
				if c.forced != "" {
					want = c.forced
				}
				if req.Forced != (c.forced != "") || !slices.Equal(req.Subset.Addresses.Append(nil),
					[]messages.Address{want}) {
					t.Errorf("forced %t to %v, want %t to %v", req.Forced, req.Subset, c.forced != "", want)
				}
			}
		})
	}
}
