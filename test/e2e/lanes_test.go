package e2e

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// share makes the bootstraps of the light lane send so many of 100 requests through the full lane.
func share(t *testing.T, percent int) func(string) string {
	return func(text string) string {
		t.Helper()
		return replaceOnce(t, text, "numerator: 5,", fmt.Sprintf("numerator: %d,", percent))
	}
}

// counted are the families that count requests alike in both lanes, in all their labels.
var counted = []string{
	"llm_d_epp_request_total", "llm_d_epp_request_error_total", "llm_d_epp_request_duration_seconds_count",
	"llm_d_epp_request_ttft_seconds_count",
	"llm_d_epp_request_output_tokens_count", "llm_d_epp_request_size_bytes_count", "llm_d_epp_request_size_bytes_sum",
	"llm_d_epp_response_size_bytes_count", "llm_d_epp_flow_control_requests_total", "signalbox_refusals_total",
	"signalbox_endpoint_failures_total",
	"signalbox_served_elsewhere_total", "signalbox_prefix_placed_prompts", "signalbox_unlogged_total",
}

const responseBytes = "llm_d_epp_response_size_bytes_sum"

// account is what Signalbox has counted of requests that ended, by series. What is 0 is left out, and so are pages of
// servers that a busy machine made late.
func (p *picker) account(families ...string) map[string]float64 {
	account := map[string]float64{}
	_, page := get(p.metrics + "/metrics")
	for line := range strings.Lines(page) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(series, "llm_d_epp_") || strings.HasPrefix(series, "signalbox_") {
			name, _, _ := strings.Cut(series, "{")
			if n, err := strconv.ParseFloat(value, 64); ok && err == nil && n != 0 && slices.Contains(families, name) &&
				!strings.Contains(series, `kind="scrape-failed"`) {
				account[series] = n
			}
		}
	}
	return account
}

// failures is how often servers failed requests.
func (p *picker) failures() (sum float64) {
	for _, n := range p.account("signalbox_endpoint_failures_total") {
		sum += n
	}
	return sum
}

// since is an account less an earlier one.
func since(before, after map[string]float64) map[string]float64 {
	d := map[string]float64{}
	for series, n := range after {
		if n -= before[series]; n != 0 {
			d[series] = n
		}
	}
	return d
}

// laneAccount is what a lane said of the same requests.
type laneAccount struct {
	whole   map[string]float64 // those that came to their end, with the bytes of their responses
	leavers map[string]float64 // those whose clients left, without the bytes: how many had passed is chance
	tokens  float64            // of output, of all
}

// TestEnvoyLanesAccountAlike sends the same requests through both lanes: whole answers, streamed and not, refusals of
// the model server, and clients that leave. Only the output tokens are an estimate in the light lane, and the times
// that are reckoned from them. Of tokens of the prompt it knows nothing,
// and before Envoy 1.37 nothing of the first one of the output.
func TestEnvoyLanesAccountAlike(t *testing.T) {
	seenElsewhere(t)
	t.Parallel() // it mostly waits
	full := accountOf(t, "full", overrideHostFull)
	light := accountOf(t, "light", overrideHost, share(t, 0))
	if d := math.Abs(light.tokens-full.tokens) / full.tokens; d > 0.15 {
		t.Errorf("output tokens: %v in the light lane, %v in the full one: %.0f %% apart", light.tokens, full.tokens,
			100*d)
	}
	if !timesBodies() {
		for _, account := range []map[string]float64{full.whole, full.leavers} {
			maps.DeleteFunc(account, func(series string, _ float64) bool {
				return strings.HasPrefix(series, "llm_d_epp_request_ttft_seconds_count")
			})
		}
	}
	if diff := cmp.Diff(full.whole, light.whole); diff != "" || len(full.whole) == 0 {
		t.Errorf("accounts of whole answers, -full +light:\n%s", diff)
	}
	if diff := cmp.Diff(full.leavers, light.leavers); diff != "" || len(full.leavers) == 0 {
		t.Errorf("accounts of clients that left, -full +light:\n%s", diff)
	}
}

func accountOf(t *testing.T, lane, bootstrap string, changes ...func(string) string) laneAccount {
	t.Helper()
	// A prompt takes some 200 ms, so that a response's head, its first token and its end are far apart.
	servers := simulated(t, 2, "--model", model, "--decode-rate", "200", "--prefill-rate", "35")
	p := serve(t, servers)
	p.pooled(t, 2)
	learn := startEnvoy(t, overrideHostFull, p.grpcPort, servers) // what a token takes
	learn.asksPicker(t)
	send(t, newClient(learn.url), 16)
	learn.stop()
	p.idle(t)
	begun := p.account(append(counted, responseBytes)...)
	ttft, duration, tokens := p.metric(ttftSum), p.metric(durationSum), p.metric(outputSum)

	e := startEnvoy(t, bootstrap, p.grpcPort, servers, changes...)
	e.asksPicker(t)
	c := newClient(e.url)
	t.Cleanup(c.close)
	answers := send(t, c, 24)
	for range 4 {
		a := c.chat("nobody-has-this-model", "hello", 5)
		if a.status != 404 {
			t.Error(a.String())
		}
		answers = append(answers, a)
	}
	p.idle(t)
	timed(t, lane, answers, p.metric(ttftSum)-ttft, p.metric(durationSum)-duration)
	all := p.account(append(counted, responseBytes)...)
	some := p.account(counted...)
	leaving(t, p, c, servers)
	return laneAccount{since(begun, all), since(some, p.account(counted...)), p.metric(outputSum) - tokens}
}

const (
	ttftSum     = "llm_d_epp_request_ttft_seconds_sum"
	durationSum = "llm_d_epp_request_duration_seconds_sum"
	outputSum   = "llm_d_epp_request_output_tokens_sum"
)

// apart is how far a mean of what Signalbox measures may be from that of the clients: they share the machine and its
// clock, and between them is Envoy with a few milliseconds; the rest is for a busy machine. Wrong times differ by 100
// ms and more here, in the mean of all.
const apart = 0.07

// timesBodies reports whether this Envoy can tell when a response's body began.
func timesBodies() bool { return envoyVersion != "1.36" }

// timed compares the sums of times to the first token, and of durations, with what the clients of those requests saw.
func timed(t *testing.T, lane string, answers []answer, ttft, duration float64) {
	t.Helper()
	var firsts, ends, served float64
	for _, a := range answers {
		ends += a.ended.Sub(a.sent).Seconds()
		switch {
		case !a.whole(): // the server refused it
			continue
		case a.events != nil:
			firsts += a.events[0].at.Sub(a.sent).Seconds()
		default:
			firsts += a.began.Sub(a.sent).Seconds()
		}
		served++
	}
	t.Logf("%s lane, means: to the first token %.3f s, clients saw %.3f s; to the end %.3f s, clients saw %.3f s", lane,
		ttft/served, firsts/served, duration/float64(len(answers)), ends/float64(len(answers)))
	if d := math.Abs(ttft-firsts) / served; d > apart && (lane == "full" || timesBodies()) {
		t.Errorf("%s lane: times to the first token are %.3f s from those of the clients, want %v at most", lane, d,
			apart)
	}
	if d := math.Abs(duration-ends) / float64(len(answers)); d > apart {
		t.Errorf("%s lane: durations are %.3f s from those of the clients, want %v at most", lane, d, apart)
	}
}

// leaving has clients leave in the middle of their answers.
func leaving(t *testing.T, p *picker, c *client, servers []string) {
	t.Helper()
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
	eventually(t, 10*time.Second, "each has its first tokens",
		func() bool { return tokens() > begun+float64(50*cap(answers)) })
	leave()
	for range cap(answers) {
		<-answers
	}
	p.idle(t)
}

// send sends n chats one after the other, of 10 to 55 tokens, every second one streamed.
func send(t *testing.T, c *client, n int) []answer {
	t.Helper()
	answers := make([]answer, 0, n)
	for i := range n {
		prompt := fmt.Sprintf("question %d", i)
		tokens := 10 + 15*(i/2%4)
		ask := func() answer { return c.stream(t.Context(), prompt, tokens) }
		if i%2 == 0 {
			ask = func() answer { return c.chat(model, prompt, tokens) }
		}
		a := ask()
		if !a.whole() {
			t.Error(a.String())
		}
		answers = append(answers, a)
	}
	return answers
}

// TestEnvoyAnswersOutliveSignalbox: killed with a hundred answers running, and clients at work beside them, Signalbox
// takes none of the hundred along.
func TestEnvoyAnswersOutliveSignalbox(t *testing.T) {
	const running, clients = 100, 8
	servers := simulated(t, 2, "--model", model, "--decode-rate", "100", "--prefill-rate", "1000000", "--max-num-seqs",
		"256")
	p := serve(t, servers, "--config-text", ungated) // all of them are to run at once, and windows begin with 16
	p.pooled(t, 2)
	e := startEnvoy(t, overrideHost, p.grpcPort, servers, share(t, 0))
	e.asksPicker(t)
	c := newClient(e.url)
	t.Cleanup(c.close)
	send(t, c, 2) // with them comes the access log, by which answers are known to outlive their streams
	p.idle(t)
	stories := startStories(c, running, 1000)
	p.inFlight(t, running)
	eventually(t, 10*time.Second, "all bypass",
		func() bool { return p.metric("signalbox_outlived_requests") >= running })
	work := steady(c, clients)
	eventually(t, 10*time.Second, "clients are at work", func() bool { return work.count() > 2*clients })
	p.kill()
	killed := time.Now()
	whole := 0
	answers := stories()
	for _, a := range answers {
		switch {
		case !a.whole():
			t.Error(a.String())
		case a.ended.After(killed):
			whole++
		}
	}
	t.Logf("%d answers that ran at the kill came whole", whole)
	if whole < running*9/10 {
		t.Errorf("%d of %d answers had ended before the kill: the test proves little", running-whole, running)
	}
	figures(t, "Signalbox killed, 100 answers running, light lane: those", answers, killed)
	before, after, _ := figures(t, "the clients beside them", work.stop(), killed)
	ejections := e.stat("cluster.epp.outlier_detection.ejections_enforced_total")
	if failed := before.sent - before.whole + after.sent - after.whole; failed > clients+ejections {
		t.Errorf("%d requests of %d clients failed in %d ejections", failed, clients, ejections)
	}
}

// startStories has n streams of so many tokens begin at once; what it returns waits for their ends.
func startStories(c *client, n, tokens int) func() []answer {
	told := make(chan answer, n)
	for i := range n {
		go func() { told <- c.stream(context.Background(), fmt.Sprintf("story %d", i), tokens) }()
	}
	return func() []answer {
		all := make([]answer, 0, n)
		for range n {
			all = append(all, <-told)
		}
		return all
	}
}
