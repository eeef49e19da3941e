package reference

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"
)

const header = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"

const (
	token        = "x-session-token"
	prefillToken = "x-session-token-prefill"
	prefillKey   = "x-prefiller-host-port"
)

// session is a file with a plugin that keeps a session at one endpoint.
func session(plugin, parameters, more string) string {
	return header + "plugins:\n- type: " + plugin + "\n  parameters: {" + parameters + "}\n- type: max-score-picker\n" +
		more + "schedulingProfiles:\n- name: default\n" +
		"  plugins: [{pluginRef: " + plugin + "}, {pluginRef: max-score-picker}]\n"
}

// disaggregated is a file with sessions in both of its profiles.
func disaggregated(deciders string) string {
	return header + `plugins:
- type: prefill-filter
- type: decode-filter
- type: session-affinity-filter
- {type: session-affinity-filter, name: prefill-session, parameters: {profileName: prefill,
  encodedEndpointHeaderConfig: {header: x-session-token-prefill}}}
- type: max-score-picker
- type: always-disagg-pd-decider
- {type: disagg-profile-handler, parameters: {` + deciders + `}}
schedulingProfiles:
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: session-affinity-filter}, {pluginRef: max-score-picker}]
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: prefill-session}, {pluginRef: max-score-picker}]
`
}

var (
	two   = make([]pod, 2)
	roles = []pod{{role: "prefill"}, {role: "prefill"}, {role: "decode"}, {role: "decode"}}
)

// completion is a request with these headers.
func completion(headers ...string) request {
	return request{headers: append([]string{":method: POST", ":path: " + completions}, headers...),
		chunks: []string{body("hello", "m")}}
}

// turn plays a request and its response.
func (p *picker) turn(t *testing.T, r request) (outcome, replied) {
	t.Helper()
	s := p.open(t)
	o := s.ask(r)
	if o.picked == "" {
		t.Fatalf("refused: %+v", o)
	}
	return o, s.done(o.picked)
}

// The response names the endpoint in a token, by which the client's next request comes back to it.
func TestSessionTokens(t *testing.T) {
	for name, plugin := range map[string]string{"C1 filter": "session-affinity-filter",
		"C2 scorer": "session-affinity-scorer"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := setup{config: session(plugin, "", ""), pods: two, unread: true}.serve(t)
			first, answer := p.turn(t, completion())
			given := answer.headers.Get(token)
			if plain, err := base64.StdEncoding.DecodeString(given); given == "" || err != nil ||
				!strings.Contains(string(plain), first.picked) {
				t.Errorf("the token %q is not that of %s", given, first.picked)
			}
			for range 10 {
				if next, _ := p.turn(t, completion(token+": "+given)); next.picked != first.picked {
					t.Fatalf("picked %s, want %s of the token", next.picked, first.picked)
				}
			}
		})
	}
}

// A token for each server of a request whose prompt another one reads.
func TestSessionTokensOfProfiles(t *testing.T) {
	for name, tc := range map[string]struct {
		deciders string
		both     bool
	}{
		"C3 always":     {"deciders: {prefill: always-disagg-pd-decider}", true},
		"C4 no decider": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := setup{config: disaggregated(tc.deciders), pods: roles, unread: true}.serve(t)
			first, answer := p.turn(t, completion())
			if !slices.Contains(p.pods[2:], first.picked) || answer.headers.Get(token) == "" {
				t.Errorf("picked %s with token %q, want a decode server", first.picked, answer.headers.Get(token))
			}
			if got := answer.headers.Get(prefillToken) != ""; got != tc.both ||
				slices.Contains(p.pods[:2], first.sent.Get(prefillKey)) != tc.both {
				t.Fatalf("prefill server %q, token %q; want both: %t", first.sent.Get(prefillKey),
					answer.headers.Get(prefillToken), tc.both)
			}
			sent := []string{token + ": " + answer.headers.Get(token)}
			if tc.both {
				sent = append(sent, prefillToken+": "+answer.headers.Get(prefillToken))
			}
			for range 10 {
				next, again := p.turn(t, completion(sent...))
				if next.picked != first.picked || next.sent.Get(prefillKey) != first.sent.Get(prefillKey) {
					t.Fatalf("picked %s and %s, want those of the tokens", next.picked, next.sent.Get(prefillKey))
				}
				if (again.headers.Get(prefillToken) != "") != tc.both {
					t.Fatalf("a prefill token %q again, want one: %t", again.headers.Get(prefillToken), tc.both)
				}
			}
		})
	}
}

// Requests with the same id go where the first one went, and no token is written.
func TestSessionIDs(t *testing.T) {
	const id, agent = "x-session-id: sess-A", "x-claude-code-session-id: agent-B"
	const sources = "strategy: session_id, sessionIdConfig: {sources: [{header: x-session-id}, " +
		"{attribute: agent-identity}]}"
	for plugin, names := range map[string][3]string{
		"session-affinity-filter": {"C5 filter, header", "C6 filter, agent", "C7 filter, both"},
		"session-affinity-scorer": {"C8 scorer, header", "C9 scorer, agent", "C10 scorer, both"},
	} {
		t.Run(plugin, func(t *testing.T) {
			t.Parallel()
			p := setup{
				config: session(plugin, sources, "- type: agent-identity\n"), pods: make([]pod, 8), unread: true,
			}.serve(t)
			first, _ := p.turn(t, completion(id))
			other, _ := p.turn(t, completion(agent))
			for i, tc := range []struct {
				sent []string
				want string
			}{{[]string{id}, first.picked}, {[]string{agent}, other.picked}, {[]string{agent, id}, first.picked}} {
				t.Run(names[i], func(t *testing.T) {
					for range 10 {
						got, answer := p.turn(t, completion(tc.sent...))
						if got.picked != tc.want || answer.headers.Get(token) != "" {
							t.Fatalf("picked %s, token %q; want %s and none", got.picked,
								answer.headers.Get(token), tc.want)
						}
					}
				})
			}
		})
	}
}

func TestEndpointScores(t *testing.T) {
	for name, flags := range map[string][]string{"C11 with the flag": {"--emit-endpoint-scores"}, "C12 without": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := setup{config: fixture, pods: near[:2], flags: flags}.serve(t)
			s := p.open(t)
			s.ask(completion())
			scores, given := s.on.Metadata(lbNamespace).GetFields()[scoresKey]
			if given != (flags != nil) {
				t.Fatalf("scores %v, want some: %t", scores, flags != nil)
			}
			for _, at := range p.pods {
				if score, ok := scores.GetStructValue().GetFields()[at]; given && (!ok || score.GetNumberValue() <= 0) {
					t.Errorf("%s has score %v, want one above 0", at, score)
				}
			}
		})
	}
}

// The answer to the end of a body, and no other, has what an expression makes of its tokens.
func TestReportedAttributes(t *testing.T) {
	const cost = "x-gateway-inference-request-cost"
	for name, r := range map[string]reply{
		"C13 JSON": {headers: []string{"content-type: application/json"},
			chunks: []string{`{"usage":{"prompt_tokens":7,"total_tokens":17,"completion_tokens":10}}`}},
		"C14 events": {headers: []string{"content-type: text/event-stream"}, chunks: []string{"data: {}\n\n",
			`data: {"usage":{"prompt_tokens":7,"total_tokens":17,"completion_tokens":10}}` + "\ndata: [DONE]\n", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := setup{config: header + `plugins:
- name: cost
  type: request-attribute-reporter
  parameters:
    attributes:
    - key: {name: ` + cost + `}
      expression: usage.completion_tokens
      condition: has(usage.completion_tokens)
- type: random-picker
`, pods: make([]pod, 1), unread: true}.serve(t)
			s := p.open(t)
			got := s.answer(s.ask(completion()).picked, r)
			if len(got.chunks) != len(r.chunks) || len(got.told) != 1 || got.told[len(r.chunks)-1] == nil {
				t.Fatalf("%d answers to %d chunks, metadata %v; want them with the last alone", len(got.chunks),
					len(r.chunks), got.told)
			}
			if n := s.on.Metadata(lbNamespace).GetFields()[cost].GetNumberValue(); n != 10 {
				t.Errorf("the cost is %v, want the 10 tokens of the completion", n)
			}
			if p.metric(t, "signalbox_reported_attributes_total", `result="told"`) != 1 {
				t.Error("it is not counted")
			}
		})
	}
}

// One request at a time: the second waits until the first has ended.
func TestRequestsWait(t *testing.T) {
	t.Run("C15 D69 one at a time", func(t *testing.T) {
		t.Parallel()
		p := setup{config: header + `featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 1}}
- type: queue-scorer
flowControl: {saturationDetector: {pluginRef: concurrency-detector}}
`, pods: make([]pod, 1)}.serve(t)
		first, second := p.open(t), p.open(t)
		one := first.ask(completion())
		second.send(completion())
		second.silent(time.Second)
		first.done(one.picked)
		if two := second.outcome(completion()); two.picked != one.picked || two.body != body("hello", "m") {
			t.Errorf("got %+v, want the pod of the first", two)
		}
	})
}
