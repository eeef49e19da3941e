package extproc

import (
	"strconv"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/rewrites"
	"github.com/signalbox-epp/signalbox/messages"
)

// pickOf picks an endpoint of an engine.
func pickOf(engine string) func(*cycle) {
	return func(c *cycle) {
		c.arrived.Stream.Tell(messages.PickMade{
			Destinations: messages.ListOf[messages.Address]("10.0.0.1:8000"), Engine: engine,
		})
	}
}

// The body that goes on has the priority of its objective, in the modes that show the body, for the engine that was
// picked.
func TestPriorityOfTheBody(t *testing.T) {
	const objective = "x-llm-d-inference-objective: chat"
	tests := map[string]struct {
		engine    string
		headers   []string
		body      string
		want      string // "" = body
		unchanged bool   // the configuration does not say so
	}{
		"an objective":   {"", []string{objective}, "{##}", "{#10#}", false},
		"the client's":   {"sglang", []string{objective}, "{#-99999#}", "{#10#}", false},
		"vLLM":           {"vLLM", []string{objective}, "{#5#}", "{#-10#}", false},
		"no objective":   {"vllm", nil, "{#5#}", "{#0#}", false},
		"a long body":    {"", []string{objective}, "{#" + strings.Repeat("5", 100_000) + "#}", "{#10#}", false},
		"a model too":    {"", []string{objective}, "{<a>##}", "{<longer-name>#10#}", false},
		"not read":       {"", []string{objective}, "{}", "", false},
		"encoded":        {"", []string{objective, "content-encoding: gzip"}, "{#5#}", "", false},
		"not configured": {"", []string{objective}, "{#5#}", "", true},
	}
	for name, tc := range tests {
		for mode, request := range map[string]modes{"full duplex": fds, "buffered": whole, "partial": partial} {
			t.Run(name+", "+mode, func(t *testing.T) {
				r := newRig(setup{script: pickOf(tc.engine), priorities: map[string]int{"chat": 10}})
				r.inForce.Parser, r.inForce.SetsPriority = angled{}, !tc.unchanged
				r.inForce.Rewrites = rewrites.NewTable([]rewrites.Rewrite{{Name: "r", Rules: []rewrites.Rule{
					{Models: []string{"a"}, Targets: []rewrites.Target{{Model: "longer-name", Weight: 1}}},
				}}})
				want, length := tc.body, ""
				if tc.want != "" {
					want, length = tc.want, strconv.Itoa(len(tc.want))
				}
				lines := append([]string{":path: " + chatPath, "content-length: " + strconv.Itoa(len(tc.body))},
					tc.headers...)
				head := withModes(qH(more, lines...), request, none)
				got, gotLength := sent(t, tc.body, converse(t, r.serve(t), head, qB(tc.body, last)))
				if got != want || gotLength != length {
					t.Errorf("got %.60s, length %q, want %.60s, length %q", got, gotLength, want, length)
				}
			})
		}
	}
}

// A body that does not fit with its priority is refused like any other that does not fit.
func TestPriorityWithoutMemory(t *testing.T) {
	r := newRig(setup{config: func(c *Config) { c.MaxHeldBytes = 1 << 10 }, priorities: map[string]int{"chat": 10}})
	r.inForce.Parser, r.inForce.SetsPriority = angled{}, true
	body := "{##" + strings.Repeat("x", 1<<10-3) // as much as is held
	got := transcript(t, converse(t, r.serve(t), qH(more, ":path: "+chatPath, "x-llm-d-inference-objective: chat"),
		qB(body, last)))
	if len(got) != 1 || got[0] != "503 overloaded" {
		t.Errorf("got %q, want 503 overloaded", got)
	}
}
