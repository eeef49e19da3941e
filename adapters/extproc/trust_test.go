package extproc

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/trust"
	"github.com/signalbox-epp/signalbox/messages"
)

// trusting are the headers of the tests below, of which x-agent is one that a plugin reads, too.
var trusting = []string{
	"x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id", "x-llm-d-inference-objective",
	"x-llm-d-inference-ttl", "x-llm-d-slo-ttft-ms", "x-agent",
}

// said is what a request says of itself, as its cycle is told.
type said struct {
	Fairness       string
	Priority       int
	Patience, TTFT time.Duration
	Agent          string
}

// What is not trusted has no effect, wherever the header is read, and goes no further. What stands in the metadata
// counts, whatever the headers are.
func TestTrust(t *testing.T) {
	const fairness, objective = "x-llm-d-inference-fairness-id: them", "x-llm-d-inference-objective: chat"
	all := []string{fairness, objective, "x-llm-d-inference-ttl: 3s", "x-llm-d-slo-ttft-ms: 250", "x-agent: smith"}
	everything := said{"them", 10, 3 * time.Second, 250 * time.Millisecond, "smith"}
	nothing := said{Fairness: messages.DefaultFairness}
	const bare = "qH 10.0.0.1:8000"
	without := bare + " without x-llm-d-inference-fairness-id without x-llm-d-inference-objective without " +
		"x-llm-d-inference-ttl without x-llm-d-slo-ttft-ms without x-agent"
	metadata := trust.ByMetadata(trusting)
	gateways := trust.ByCertificate(trusting, []string{"spiffe://c/gateway", "envoy.example"})
	for name, c := range map[string]struct {
		policy *trust.Policy
		names  []string // in the certificate of the proxy
		sent   []string
		meta   map[string]any
		want   said
		answer string
	}{
		"every client":               {nil, nil, all, nil, everything, bare},
		"every client, and metadata": {nil, nil, nil, map[string]any{trusting[0]: "m"}, nothing, bare},
		"metadata alone":             {metadata, nil, all, nil, nothing, without},
		"no header":                  {metadata, nil, nil, nil, nothing, bare},
		"in the metadata": {metadata, nil, nil, map[string]any{trusting[0]: "us", trusting[2]: "chat",
			trusting[3]: "2s", trusting[4]: "50", trusting[5]: "brown"},
			said{"us", 10, 2 * time.Second, 50 * time.Millisecond, "brown"}, bare},
		"both": {metadata, nil, all[:2], map[string]any{trusting[0]: "us"}, said{Fairness: "us"},
			bare + " without x-llm-d-inference-fairness-id without x-llm-d-inference-objective"},
		"an agent in the metadata": {metadata, nil, all[:1], map[string]any{"x-agent": "brown"},
			said{Fairness: "brown", Agent: "brown"}, bare + " without x-llm-d-inference-fairness-id"},
		"the old name in the metadata": {metadata, nil, nil, map[string]any{trusting[1]: "old"},
			said{Fairness: "old"}, bare},
		"both names in the metadata": {metadata, nil, nil, map[string]any{trusting[1]: "old", trusting[0]: "new"},
			said{Fairness: "new"}, bare},
		"a list in the metadata": {metadata, nil, nil, map[string]any{trusting[0]: []any{"one", "two"}},
			said{Fairness: "one"}, bare},
		"a number in the metadata": {metadata, nil, nil, map[string]any{trusting[0]: 7}, nothing, bare},
		"twice": {metadata, nil, []string{fairness, fairness}, nil, nothing,
			bare + " without x-llm-d-inference-fairness-id"},
		"the old name": {metadata, nil, []string{"x-gateway-inference-fairness-id: them"}, nil, nothing,
			bare + " without x-gateway-inference-fairness-id"},
		"a gateway":              {gateways, []string{"x", "spiffe://c/gateway"}, all, nil, everything, bare},
		"another gateway":        {gateways, []string{"envoy.example"}, all, nil, everything, bare},
		"another proxy":          {gateways, []string{"spiffe://c/gateway2"}, all, nil, nothing, without},
		"no certificate":         {gateways, nil, all, nil, nothing, without},
		"metadata of no gateway": {gateways, nil, nil, map[string]any{trusting[0]: "us"}, nothing, bare},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{priorities: map[string]int{"chat": 10}})
			r.inForce.Headers, r.inForce.Flows, r.inForce.Trust = []string{"x-agent"}, []int{0}, c.policy
			r.srv.deps.Certified = func(context.Context) []string { return c.names }
			head := qH(last, append([]string{":path: /p"}, c.sent...)...)
			if c.meta != nil {
				withMeta(head, lbNamespace, c.meta)
			}
			got := transcript(t, converse(t, r.serve(t), head))
			if want := []string{c.answer}; !slices.Equal(got, want) {
				t.Errorf("answered %q, want %q", got, want)
			}
			arrived := r.only(t).arrived
			is := said{arrived.Flow.Fairness, arrived.Flow.Priority, arrived.Patience, arrived.Request.TTFT, ""}
			for _, value := range arrived.Request.Headers.All() {
				is.Agent = value.Text
			}
			if is != c.want {
				t.Errorf("it says %+v, want %+v", is, c.want)
			}
		})
	}
}

// Behind more headers than are read, one that is barred is removed, too.
func TestTrustBeyondTheHeadersThatAreRead(t *testing.T) {
	r := newRig(setup{})
	r.inForce.Trust = trust.ByMetadata(trusting[:2])
	lines := []string{":path: /p"}
	for range maxHeaders {
		lines = append(lines, "x-filler: 1")
	}
	answers := converse(t, r.serve(t), qH(last, append(lines, trusting[0]+": them")...))
	want := []string{"qH 10.0.0.1:8000 without " + trusting[0] + " without " + trusting[1]}
	if got := transcript(t, answers); !slices.Equal(got, want) {
		t.Errorf("answered %q, want %q", got, want)
	}
}

// A plugin may set a header that clients may not.
func TestTrustLeavesThePick(t *testing.T) {
	r := newRig(setup{script: func(c *cycle) {
		c.arrived.Stream.Tell(messages.PickMade{
			Destinations: messages.ListOf[messages.Address]("10.0.0.1:8000"),
			Headers:      messages.ListOf(messages.Header{Name: messages.PrefillHeader, Value: "10.0.0.9:1"}),
		})
	}})
	r.inForce.Trust = trust.ByMetadata([]string{messages.PrefillHeader})
	got := transcript(t, converse(t, r.serve(t), qH(last, ":path: /p", messages.PrefillHeader+": 6.6.6.6:6")))
	if want := []string{"qH 10.0.0.1:8000 " + messages.PrefillHeader + "=10.0.0.9:1"}; !slices.Equal(got, want) {
		t.Errorf("answered %q, want %q", got, want)
	}
}
