package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// model is what the simulated servers serve in every test.
const model = "e2e-model"

// quick gives servers that answer a short request in a few milliseconds; slow ones take about a second for 50 tokens.
var (
	quick = []string{"--model", model, "--decode-rate", "2000", "--prefill-rate", "1000000"}
	slow  = []string{"--model", model, "--decode-rate", "50", "--prefill-rate", "1000000"}
)

func TestEnvoyServesChatAndCompletions(t *testing.T) {
	s := startStack(t, simulated(t, 2, quick...))
	cases := map[string]struct {
		path, body string
		object     string
	}{
		"chat": {"/v1/chat/completions", chatBody(model, "What is a signal box?", 8, false), "chat.completion"},
		"chat with parts": {"/v1/chat/completions", `{"model":"` + model + `","max_tokens":4,"messages":[
			{"role":"system","content":"Be brief."},
			{"role":"user","content":[{"type":"text","text":"Grüße 🚂"},{"type":"text","text":"again"}]}]}`,
			"chat.completion"},
		"completion": {"/v1/completions", `{"model":"` + model + `","prompt":"Once upon","max_tokens":6}`,
			"text_completion"},
		"completion from tokens": {"/v1/completions", `{"model":"` + model + `","prompt":[1,2,3,4],"max_tokens":6}`,
			"text_completion"},
		"completion from strings": {"/v1/completions", `{"model":"` + model + `","prompt":["Once"],"max_tokens":6}`,
			"text_completion"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := s.picker.picks()
			a := s.client.post(c.path, c.body)
			if !a.whole() {
				t.Fatal(a.String())
			}
			var got struct {
				Object  string
				Choices []any
				Usage   struct {
					Completion int `json:"completion_tokens"`
				}
			}
			if err := json.Unmarshal([]byte(a.body), &got); err != nil {
				t.Fatalf("%v in %q", err, a.body)
			}
			if got.Object != c.object || len(got.Choices) == 0 || got.Usage.Completion == 0 {
				t.Errorf("got %+v, want a %s with choices and usage", got, c.object)
			}
			eventually(t, 5*time.Second, "it is picked for once", func() bool { return s.picker.picks()-before == 1 })
		})
	}
	s.picker.idle(t)
}

// TestEnvoyStreams: tokens arrive one by one, not all at the end, and the usage comes with the last.
func TestEnvoyStreams(t *testing.T) {
	s := startStack(t, simulated(t, 2, slow...))
	const tokens = 25 // half a second at 50 a second
	a := s.client.stream(context.Background(), "Tell me a story.", tokens)
	if !a.whole() || len(a.events) < tokens {
		t.Fatalf("%s; want %d events and [DONE]", a.String(), tokens)
	}
	if spread := a.events[len(a.events)-1].at.Sub(a.events[0].at); spread < 200*time.Millisecond {
		t.Errorf("all %d events came within %v, want them as they are made", len(a.events), spread)
	}
	var usage bool
	for _, e := range a.events {
		usage = usage || strings.Contains(e.data, fmt.Sprintf(`"completion_tokens":%d`, tokens))
	}
	if !usage {
		t.Errorf("no event carries the usage of %d tokens; the last are %v", tokens, a.events[max(0, len(a.events)-3):])
	}
	s.picker.idle(t)
}

// TestEnvoyPrefersTheAdaptersServer: once an adapter is at work on one server, its requests go there.
func TestEnvoyPrefersTheAdaptersServer(t *testing.T) {
	const adapter = "sql-adapter"
	with := simulated(t, 1, append(slow, "--adapters", adapter)...)
	without := simulated(t, 1, slow...)
	s := startStack(t, []string{with[0], without[0]}, "--config-text", `
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: lora-affinity-scorer
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: lora-affinity-scorer
  - pluginRef: max-score-picker
`)
	eventually(t, 10*time.Second, "the adapter's requests go to its server only", func() bool {
		before := served(without[0])
		for range 12 { // by chance it is one in 4 096
			if a := s.client.chat(adapter, "SELECT", 2); !a.whole() {
				return false
			}
		}
		return served(without[0]) == before
	})
	const requests = 20
	before := served(with[0])
	for range requests {
		if a := s.client.chat(adapter, "SELECT", 2); !a.whole() {
			t.Fatal(a.String())
		}
	}
	if got := served(with[0]) - before; got != requests {
		t.Errorf("the adapter's server finished %d of %d requests", got, requests)
	}
}

func TestEnvoyServes64ClientsAtOnce(t *testing.T) {
	s := startStack(t, simulated(t, 2, quick...))
	const clients, each = 64, 10
	before := s.picker.picks()
	failed := make(chan string, clients*each)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for n := range each {
				a := s.client.stream(context.Background(), fmt.Sprintf("client %d asks %d", i, n), 10)
				if !a.whole() {
					failed <- a.String()
				}
			}
		})
	}
	all.Wait()
	close(failed)
	for f := range failed {
		t.Error(f)
	}
	eventually(t, 5*time.Second, "each is picked for once", func() bool {
		return s.picker.picks()-before == clients*each
	})
	for _, server := range s.servers {
		n := served(server)
		t.Logf("%s finished %d of %d", server, n, clients*each)
		if n < clients*each/5 {
			t.Errorf("%s, one of two equal servers, finished only %d of %d", server, n, clients*each)
		}
	}
	s.picker.idle(t)
}

// TestEnvoyClientsMayLeave: nothing stays in flight, here or at the servers, when clients hang up mid-answer.
func TestEnvoyClientsMayLeave(t *testing.T) {
	s := startStack(t, simulated(t, 2, slow...))
	const clients = 24
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	answers := make(chan answer, clients)
	for range clients {
		go func() { answers <- s.client.stream(ctx, "A very long story, please.", 2000) }()
	}
	s.picker.inFlight(t, clients)
	leave()
	for range clients {
		if a := <-answers; a.err == nil {
			t.Errorf("a request that was given up ended well: %s", a.String())
		}
	}
	s.picker.idle(t)
	for _, server := range s.servers {
		eventually(t, 5*time.Second, server+" runs nothing", func() bool {
			return seriesSum("http://"+server+"/metrics", "vllm:num_requests_running") == 0
		})
	}
	if a := s.client.chat(model, "Still there?", 2); a.status != http.StatusOK {
		t.Error(a.String())
	}
}
