package reference

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/signalbox-epp/signalbox/adapters/lab/conformance"
	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// Where the reference and the traces are, as README.md has it.
const (
	referenceVariable = "REFERENCE_EPP"
	tracesVariable    = "REFERENCE_TRACES"
	requestsVariable  = "REFERENCE_REQUESTS"
)

// besideFiles are the files that both pickers run. %s is the entry of file-discovery.
var besideFiles = map[string]string{
	"3:2:2": `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- %s
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: prefix-cache-scorer}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
dataLayer: {discovery: {pluginRef: file-discovery}}
`,
	"sticky": `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- %s
- {type: inflight-load-producer}
- {type: prefix-cache-affinity-filter, parameters: {peakPrefillThroughput: 8000, maxTTFTPenaltyMs: 2000}}
- {type: token-load-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: prefix-cache-affinity-filter}, {pluginRef: token-load-scorer}]
dataLayer: {discovery: {pluginRef: file-discovery}}
`,
	"tokens": `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- %s
- type: inflight-load-producer
  parameters: {addEstimatedOutputTokens: true, outputRatio: 0.5, maxEstimatedOutputTokens: 500}
- {type: concurrency-detector, parameters: {concurrencyMode: hybrid, maxConcurrency: 40, maxTokenConcurrency: 100000}}
- {type: token-load-scorer, parameters: {queueThresholdTokens: 100000}}
- {type: prefix-cache-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: concurrency-detector}, {pluginRef: token-load-scorer, weight: 2},
	{pluginRef: prefix-cache-scorer}]
dataLayer: {discovery: {pluginRef: file-discovery}}
`,
}

const (
	besidePods   = 8
	leastEqual   = 0.98
	shownAtMost  = 12
	answerWithin = 20 * time.Second
	mostStarts   = 30
)

// TestPicksOfTheReference sends the requests of traces to both pickers, one after the other, and counts equal picks.
// Requests are served where the reference has picked, by modelled servers in a time of their own, so that both decide
// by the same pages, the same prompts and the same requests in flight. A pick that the reference scores as high as its
// own is a tie, and does not count.
func TestPicksOfTheReference(t *testing.T) {
	path, traces := os.Getenv(referenceVariable), filepath.SplitList(os.Getenv(tracesVariable))
	if path == "" || len(traces) == 0 {
		t.Skipf( //nolint:forbidigo // said aloud
			"%s, the binary of the reference, or %s, a list of traces, is not set: there is nothing to compare with",
			referenceVariable,
			tracesVariable,
		)
	}
	requests := 2000
	if text := os.Getenv(requestsVariable); text != "" {
		var err error
		if requests, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for name, config := range besideFiles {
		for _, trace := range traces {
			t.Run(name+" "+filepath.Base(trace), func(t *testing.T) {
				t.Parallel()
				b := newBeside(t, path, config)
				b.replay = newReplay(t, trace, besidePods, requests, b.now)
				for range requests {
					if !b.step() {
						break
					}
				}
				b.report(leastEqual)
			})
		}
	}
}

// beside is both pickers, and the servers that they pick among.
type beside struct {
	t      *testing.T
	now    time.Time // of the servers
	tokens *batch.Tokens
	pods   []*modelled
	client [sides]extprocv3.ExternalProcessorClient
	replay *replay
	flying map[flight]*answering

	equal, ties, other int
	shown              []string
}

// flight is a request that a server works for.
type flight struct {
	pod int
	id  uint64
}

// answering is its exchange with each picker.
type answering struct {
	asked
	with   [sides]*exchange.Stream
	tokens int // of the prompt
	begun  bool
}

func newBeside(t *testing.T, reference, config string) *beside {
	t.Helper()
	b := &beside{
		t: t, now: time.Unix(1_800_000_000, 0), tokens: batch.NewTokens(bytesPerToken), flying: map[flight]*answering{},
	}
	for range besidePods {
		b.pods = append(b.pods, newModelled(t, b.tokens, b.now))
	}
	var files [sides]string
	for side := range sides {
		endpoints := "endpoints:\n"
		for i, pod := range b.pods {
			host, port, _ := strings.Cut(pod.at[side], ":")
			endpoints += fmt.Sprintf("- {name: pod-%d, address: %q, port: %q}\n", i, host, port)
		}
		folder := t.TempDir()
		file := filepath.Join(folder, "endpoints.yaml")
		must(t, os.WriteFile(file, []byte(endpoints), 0o600))
		discovery := fmt.Sprintf("{type: file-discovery, parameters: {path: %q, watchFile: true}}", file)
		files[side] = filepath.Join(folder, "config.yaml")
		must(t, os.WriteFile(files[side], fmt.Appendf(nil, config, discovery), 0o600))
	}
	p := &picker{log: &output{found: make(chan [2]string, 1), over: make(chan struct{})}}
	p.start(t, []string{
		"serve", "--config-file", files[ours], "--grpc-port", "0", "--grpc-health-port", "0", "--metrics-port", "0",
		"--drain-delay", "0s", "--single-destination", "--emit-endpoint-scores", "--refresh-metrics-interval", "50ms",
		"--first-token-timeout", "0s", // servers have a time of their own
	})
	b.client[ours] = p.client
	for starts := 1; ; starts++ {
		started, end := startReference(t, reference, files[theirs])
		b.client[theirs] = started.client
		b.read()
		if !strings.Contains(config, "token-load-scorer") || b.addsWholePrompts(started) {
			t.Logf("the reference was started %d times", starts)
			return b
		}
		if end(); starts == mostStarts {
			t.Fatalf("the reference left out what servers hold in each of %d starts", starts)
		}
	}
}

// addsWholePrompts reports whether token-load-scorer adds the whole prompt of a request at a server that holds it. That
// depends on the order in which the reference has put its producers at its start. The prompt is sent until the page of
// metrics tells of a hit, for the reference enters it in the background.
func (b *beside) addsWholePrompts(started *picker) bool {
	b.t.Helper()
	long := text([]uint64{math.MaxUint64}, 4000)
	a := asked{body: fmt.Sprintf(`{"model":"m","prompt":%q}`, long), path: completions}
	var last picked
	lateness.Eventually(b.t, answerWithin, 10*time.Millisecond, "the reference holds a prompt", func() bool {
		var s *exchange.Stream
		s, last = b.pick(theirs, a, exchange.Context{})
		b.respond(theirs, s, last.pod)
		must(b.t, s.SendBody(exchange.Response, []byte("data: [DONE]\n\n"), true))
		b.receive(theirs, s)
		s.Close()
		return started.metric(b.t, "llm_d_epp_prefix_indexer_hit_ratio_sum") > 0
	})
	score := last.scores[last.pod] // of an idle server that holds all of it, which is whole but for the prompt
	return score != math.Round(score)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startReference starts the reference and waits until it serves. It ends with the test, or by a call.
func startReference(t *testing.T, path, config string) (started *picker, end func()) {
	t.Helper()
	ports := freePorts(t, 3)
	log := &strings.Builder{}
	command := exec.Command(path, "--grpc-port", ports[0], "--grpc-health-port", ports[1], "--metrics-port", ports[2],
		"--config-file", config, "--secure-serving=false", "--pool-name", "p", "--pool-namespace", "default",
		"--tracing=false", "--metrics-endpoint-auth=false", "--emit-endpoint-scores", "--v", "0")
	command.Stdout, command.Stderr = log, log
	must(t, command.Start())
	end = sync.OnceFunc(func() {
		_ = command.Process.Kill() // it may have ended
		_ = command.Wait()
	})
	t.Cleanup(func() {
		if end(); t.Failed() {
			t.Logf("the reference: %v\n%s", command.ProcessState, log)
		}
	})
	at := "127.0.0.1:" + ports[0]
	lateness.Eventually(t, answerWithin, 50*time.Millisecond, "the reference serves", func() bool {
		c, err := net.Dial("tcp", at)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), answerWithin)
	defer cancel()
	o := &conformance.Options{}
	hangUp, err := o.Connect(ctx, at, true)
	must(t, err)
	t.Cleanup(hangUp)
	return &picker{client: o.Client, metrics: "http://127.0.0.1:" + ports[2] + "/metrics"}, end
}

// freePorts returns ports that nobody uses.
func freePorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer func() { _ = l.Close() }()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports
}

// step has the next request picked for and sent; false = there is none.
func (b *beside) step() bool {
	next, ok := b.next()
	if !ok {
		return false
	}
	b.settle()
	a := &answering{asked: next.ask()}
	var picks [sides]picked
	for side := range sides {
		a.with[side], picks[side] = b.pick(side, a.asked, exchange.Context{})
	}
	b.compare(picks)
	pod := picks[theirs].pod
	if pod >= 0 && picks[ours].pod != pod { // as if the client had hung up; then only that server is left to pick
		a.with[ours].Close()
		a.with[ours], picks[ours] = b.pick(ours, a.asked, within(b.pods[pod].at[ours]))
	}
	if pod < 0 || picks[ours].pod < 0 { // one of them refuses the request
		for _, s := range a.with {
			s.Close()
		}
		a.ended(b.now.Add(time.Second))
		return true
	}
	for side := range sides {
		b.respond(side, a.with[side], pod)
	}
	prompt := b.tokens.Encode(nil, a.prompt)
	a.tokens = len(prompt)
	id, _ := b.pods[pod].core.Submit(b.now, batch.Request{Prompt: prompt, MaxTokens: a.output, IgnoreEnd: true})
	b.flying[flight{pod, id}] = a
	return true
}

// next moves the time to that of the next request.
func (b *beside) next() (due, bool) {
	for {
		first, at := -1, time.Time{}
		for i, pod := range b.pods {
			if t, ok := pod.core.NextEvent(); ok && (first < 0 || t.Before(at)) {
				first, at = i, t
			}
		}
		if d, ok := b.replay.next(at, first >= 0); ok {
			if d.at.After(b.now) {
				b.now = d.at
			}
			return d, true
		}
		if first < 0 {
			return due{}, false
		}
		b.now = at
		for _, p := range b.pods[first].core.Advance(at) {
			b.tell(flight{first, p.ID}, p)
		}
	}
}

// settle has both pickers know the pages of the servers as they are.
func (b *beside) settle() {
	b.t.Helper()
	for _, pod := range b.pods {
		pod.publish()
	}
	b.await()
}

// read has both pickers read all pages anew. The reference settles how much it keeps of prompts for a server when it
// first sends a request there, for good: without a page that is several times as much as the server holds.
func (b *beside) read() {
	b.t.Helper()
	for _, pod := range b.pods {
		pod.renew()
	}
	b.await()
}

// await waits until both pickers know the pages.
func (b *beside) await() {
	b.t.Helper()
	lateness.Eventually(b.t, answerWithin, time.Millisecond, "both pickers read the pages", func() bool {
		return !slices.ContainsFunc(b.pods, func(m *modelled) bool { return !m.known() })
	})
}

// modes are those that the endpoint picker protocol asks for.
var modes = exchange.Config{Request: exchange.FullDuplex(), Response: exchange.FullDuplex()}

// picked is what a picker says.
type picked struct {
	pod    int       // -1 = it refuses the request
	scores []float64 // by pod; NaN = none
}

// pick sends a request to a picker.
func (b *beside) pick(side int, a asked, about exchange.Context) (*exchange.Stream, picked) {
	b.t.Helper()
	s, err := exchange.Open(b.t.Context(), b.client[side], modes)
	must(b.t, err)
	headers := exchange.Headers{
		{Name: ":method", Value: "POST"}, {Name: ":path", Value: a.path}, {Name: ":authority", Value: "models"},
		{Name: "content-type", Value: "application/json"},
	}
	must(b.t, s.SendHeaders(exchange.Request, headers, false, about))
	for rest := []byte(a.body); len(rest) > 0; {
		n := min(len(rest), 64<<10)
		must(b.t, s.SendBody(exchange.Request, rest[:n], n == len(rest)))
		rest = rest[n:]
	}
	for ended := false; !ended; {
		answer := b.receive(side, s)
		if answer.Kind == exchange.ImmediateAnswer {
			return s, picked{pod: -1}
		}
		ended = answer.Kind == exchange.BodyAnswer && answer.Ended
	}
	told := s.Metadata(lbNamespace).GetFields()
	p := picked{pod: b.pod(side, told[destinationKey].GetStringValue()), scores: make([]float64, len(b.pods))}
	for i := range p.scores {
		p.scores[i] = math.NaN()
	}
	if p.pod < 0 {
		b.t.Fatalf("%s picked %v", sideNames[side], told)
	}
	for at, score := range told[scoresKey].GetStructValue().GetFields() {
		if i := b.pod(side, at); i >= 0 {
			p.scores[i] = score.GetNumberValue()
		}
	}
	return s, p
}

func (b *beside) pod(side int, at string) int {
	return slices.IndexFunc(b.pods, func(m *modelled) bool { return m.at[side] == at })
}

func (b *beside) receive(side int, s *exchange.Stream) exchange.Answer {
	b.t.Helper()
	answer, err := s.Recv()
	if err != nil {
		b.t.Fatalf("%s: %v", sideNames[side], err)
	}
	return answer
}

// respond sends the headers of an answer, by which both pickers know which server has the request.
func (b *beside) respond(side int, s *exchange.Stream, pod int) {
	b.t.Helper()
	headers := exchange.Headers{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "text/event-stream"}}
	must(b.t, s.SendHeaders(exchange.Response, headers, false, served(b.pods[pod].at[side])))
	b.receive(side, s)
}

// tell shows both pickers the first token of an answer, and its end.
func (b *beside) tell(f flight, p batch.Progress) {
	b.t.Helper()
	a := b.flying[f]
	ended := p.Ended != batch.Running
	if a.begun && !ended {
		return
	}
	events := ""
	if !a.begun {
		events = `data: {"id":"a","object":"chunk","model":"m","choices":[{"index":0,"text":"a","delta":{"content":"a"}}]}` + "\n\n"
	}
	if ended {
		events += fmt.Sprintf(`data: {"id":"a","object":"chunk","model":"m","choices":[],"usage":{"prompt_tokens":%d,`+
			`"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}}`+
			"\n\ndata: [DONE]\n\n", a.tokens, p.Generated, a.tokens+p.Generated, p.Cached)
	}
	a.begun = true
	for side, s := range a.with {
		must(b.t, s.SendBody(exchange.Response, []byte(events), ended))
		b.receive(side, s)
		if ended {
			must(b.t, s.HalfClose())
			if _, err := s.Recv(); !errors.Is(err, io.EOF) {
				b.t.Fatalf("%s, at the end: %v", sideNames[side], err)
			}
			s.Close()
		}
	}
	if ended {
		delete(b.flying, f)
		a.ended(b.now)
	}
}

// compare counts a pick.
func (b *beside) compare(picks [sides]picked) {
	us, them := picks[ours], picks[theirs]
	switch {
	case us.pod == them.pod:
		b.equal++
	case us.pod < 0 || them.pod < 0:
		b.other++
	case math.Abs(them.scores[us.pod]-them.scores[them.pod]) < 1e-6:
		b.ties++
	default:
		b.other++
		if len(b.shown) < shownAtMost {
			b.shown = append(b.shown, fmt.Sprintf("request %d: %d by %.7f, the reference %d by %.7f",
				b.equal+b.ties+b.other, us.pod, us.scores, them.pod, them.scores))
		}
	}
}

// report says how many picks were equal.
func (b *beside) report(least float64) {
	b.t.Helper()
	share := float64(b.equal) / float64(b.equal+b.other)
	b.t.Logf("%d picks equal, %d ties, %d different: %.2f %%", b.equal, b.ties, b.other, 100*share)
	if share < least {
		b.t.Errorf("%.2f %% of picks are equal, want %.0f %%; different ones:\n%s", 100*share, 100*least,
			strings.Join(b.shown, "\n"))
	}
}
