package e2e

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"
)

// share makes the bootstraps of the light lane send so many of 100 requests through the full lane.
func share(t *testing.T, percent int) func(string) string {
	return func(text string) string {
		t.Helper()
		return replaceOnce(t, text, "numerator: 5,", fmt.Sprintf("numerator: %d,", percent))
	}
}

// account is what Signalbox has counted of requests that ended.
func (p *picker) account() map[string]float64 {
	page := map[string]float64{}
	for _, name := range []string{
		"llm_d_epp_request_total", "llm_d_epp_request_error_total", "llm_d_epp_request_duration_seconds_count", "llm_d_epp_response_size_bytes_count",
		"llm_d_epp_response_size_bytes_sum", "llm_d_epp_request_ttft_seconds_count", "llm_d_epp_request_output_tokens_count", "llm_d_epp_request_output_tokens_sum",
		"signalbox_served_elsewhere_total", "signalbox_prefix_placed_prompts", "signalbox_unlogged_total",
	} {
		page[name] = p.metric(name)
	}
	return page
}

// TestEnvoyLanesAccountAlike sends the same requests through both lanes: whole answers, streamed and not, refusals of the model
// server, and clients that leave. Only the tokens are an estimate in the light lane.
func TestEnvoyLanesAccountAlike(t *testing.T) {
	full := laneAccount(t, overrideHostFull)
	light := laneAccount(t, overrideHost, share(t, 0))
	t.Logf("full  %v", full)
	t.Logf("light %v", light)
	const tokens = "llm_d_epp_request_output_tokens_sum"
	if d := math.Abs(light[tokens]-full[tokens]) / full[tokens]; d > 0.15 {
		t.Errorf("output tokens: %v in the light lane, %v in the full one: %.0f %% apart", light[tokens], full[tokens], 100*d)
	}
	delete(full, tokens)
	delete(light, tokens)
	if !maps.Equal(full, light) {
		t.Errorf("accounts differ:\nfull  %v\nlight %v", full, light)
	}
}

func laneAccount(t *testing.T, bootstrap string, changes ...func(string) string) map[string]float64 {
	t.Helper()
	servers := simulated(t, 2, "--model", model, "--decode-rate", "200", "--prefill-rate", "1000000")
	p := serve(t, servers)
	p.pooled(t, 2)
	learn := startEnvoy(t, overrideHostFull, p.grpcPort, servers) // what a token takes
	learn.asksPicker(t)
	send(t, newClient(learn.url), 8)
	learn.stop()
	p.idle(t)
	before := p.account()

	e := startEnvoy(t, bootstrap, p.grpcPort, servers, changes...)
	e.asksPicker(t)
	c := newClient(e.url)
	t.Cleanup(c.close)
	send(t, c, 24)
	for range 4 {
		if a := c.chat("nobody-has-this-model", "hello", 5); a.status != 404 {
			t.Error(a.String())
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	answers := make(chan answer, 6)
	for range cap(answers) {
		go func() { answers <- c.stream(ctx, "A long story, please.", 2000) }()
	}
	p.inFlight(t, cap(answers))
	tokens := func() float64 {
		return seriesSum("http://"+servers[0]+"/metrics", "vllm:generation_tokens_total") +
			seriesSum("http://"+servers[1]+"/metrics", "vllm:generation_tokens_total")
	}
	begun := tokens()
	eventually(t, 10*time.Second, "each has its first tokens", func() bool { return tokens() > begun+float64(50*cap(answers)) })
	leave()
	for range cap(answers) {
		<-answers
	}
	p.idle(t)
	after := p.account()
	for name := range after {
		after[name] -= before[name]
	}
	// How much of an answer had passed when its client left is chance.
	delete(after, "llm_d_epp_response_size_bytes_sum")
	return after
}

// send sends n chats one after the other, every second one streamed.
func send(t *testing.T, c *client, n int) {
	t.Helper()
	for i := range n {
		prompt := fmt.Sprintf("question %d", i)
		a := c.stream(t.Context(), prompt, 40)
		if i%2 == 0 {
			a = c.chat(model, prompt, 40)
		}
		if !a.whole() {
			t.Error(a.String())
		}
	}
}

// TestEnvoyAnswersOutliveSignalbox: killed with a hundred answers running, Signalbox takes none of them along.
func TestEnvoyAnswersOutliveSignalbox(t *testing.T) {
	servers := simulated(t, 2, "--model", model, "--decode-rate", "100", "--prefill-rate", "1000000", "--max-num-seqs", "256")
	p := serve(t, servers)
	p.pooled(t, 2)
	e := startEnvoy(t, overrideHost, p.grpcPort, servers, share(t, 0))
	e.asksPicker(t)
	c := newClient(e.url)
	t.Cleanup(c.close)
	const running = 100
	answers := make(chan answer, running)
	for i := range running {
		go func() { answers <- c.stream(context.Background(), fmt.Sprintf("story %d", i), 400) }()
	}
	p.inFlight(t, running)
	eventually(t, 10*time.Second, "all streams have ended", func() bool { return p.metric("signalbox_streams") == 0 })
	p.kill()
	whole := 0
	for range running {
		a := <-answers
		if a.whole() {
			whole++
			continue
		}
		t.Error(a.String())
	}
	t.Logf("%d of %d answers that ran at the kill came whole", whole, running)
}

// TestEnvoyTwoPickers: each picker has a log of its own, and takes what is its own from it; the other's entries are dropped.
func TestEnvoyTwoPickers(t *testing.T) {
	servers := simulated(t, 2, "--model", model, "--decode-rate", "200", "--prefill-rate", "1000000")
	pickers := []*picker{serve(t, servers), serve(t, servers)}
	for _, p := range pickers {
		p.pooled(t, 2)
	}
	e := startEnvoy(t, overrideHost, pickers[0].grpcPort, servers, share(t, 10), func(text string) string {
		return secondPicker(t, text, pickers[0].grpcPort, pickers[1].grpcPort)
	})
	eventually(t, 10*time.Second, "envoy holds both pickers healthy", func() bool { return e.stat("cluster.epp.membership_healthy") == 2 })
	c := newClient(e.url)
	t.Cleanup(c.close)
	work := startLoad(8, func(client, n int) answer {
		return c.stream(context.Background(), fmt.Sprintf("client %d, question %d", client, n), 20)
	})
	eventually(t, 20*time.Second, "both pick", func() bool { return pickers[0].picks() > 100 && pickers[1].picks() > 100 })
	pickers[1].kill()
	before := pickers[0].picks()
	eventually(t, 20*time.Second, "one picks on", func() bool { return pickers[0].picks() > before+200 })
	var o outcome
	for _, a := range work.stop() {
		o.add(a)
	}
	foreign := pickers[0].metric("signalbox_access_log_entries_total", `whose="foreign"`)
	t.Logf("one of two killed: %+v; entries of the other instance: %v", o, foreign)
	if foreign == 0 {
		t.Error("no entry of the other instance came: the logs are not apart")
	}
	pickers[0].idle(t)
	if n := pickers[0].metric("signalbox_unlogged_total"); n != 0 {
		t.Errorf("%v requests were never logged", n)
	}
}

// secondPicker adds a picker to Envoy's cluster of them, and gives each a cluster and an access log entry of its own.
func secondPicker(t *testing.T, text string, first, second int) string {
	t.Helper()
	const logging = "  - name: epp_log\n"
	i := strings.Index(text, logging)
	if i < 0 {
		t.Fatal("the bootstrap has no cluster epp_log")
	}
	cluster, text := text[i:], text[:i]
	port := fmt.Sprintf("port_value: %d", first)
	other := fmt.Sprintf("port_value: %d", second)
	endpoint := "        - endpoint: {address: {socket_address: {address: 127.0.0.1, " + port + "}}}\n"
	named := func(name, from string) string {
		from = replaceOnce(t, from, logging, "  - name: "+name+"\n")
		return replaceOnce(t, from, "cluster_name: epp_log\n", "cluster_name: "+name+"\n")
	}
	text = replaceOnce(t, text, endpoint, endpoint+strings.Replace(endpoint, port, other, 1))
	text += named("epp_log_1", cluster) + named("epp_log_2", strings.Replace(cluster, port, other, 1))
	const logger = "          - name: envoy.access_loggers.http_grpc\n"
	begin := strings.Index(text, logger)
	end := begin + strings.Index(text[begin:], "buffer_flush_interval: 0.005s\n") + len("buffer_flush_interval: 0.005s\n")
	entry := text[begin:end]
	one := replaceOnce(t, entry, "cluster_name: epp_log,", "cluster_name: epp_log_1,")
	two := replaceOnce(t, entry, "cluster_name: epp_log,", "cluster_name: epp_log_2,")
	return text[:begin] + one + two + text[end:]
}
