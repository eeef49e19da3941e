package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/adapters/lab/demo"
)

func newDemoOptions(out io.Writer, length time.Duration) *demoOptions {
	return &demoOptions{Config: demo.Config{Seed: 1, Length: length, Plain: true, Out: out}}
}

// TestDemoPlaysTheLoad reads off what the demo prints that every request of both runs was picked and answered. The seed
// is one whose load has a conversation with an adapter, which only one of the servers has.
func TestDemoPlaysTheLoad(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out bytes.Buffer
	o := newDemoOptions(&out, 1500*time.Millisecond)
	o.Seed = 5
	var quiet exitError
	// so short a load need not show which is better
	if err := o.run(t.Context()); err != nil && !errors.As(err, &quiet) {
		t.Fatal(err)
	}
	numbers := func(pattern string) (all []int) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(out.String(), -1) {
			for _, digits := range m[1:] {
				n, err := strconv.Atoi(digits)
				if err != nil {
					t.Fatalf("%q in %q is no number", digits, m[0])
				}
				all = append(all, n)
			}
		}
		return all
	}
	planned := numbers(`conversations, (\d+) requests at most`)[0]
	for pattern, want := range map[string][]int{
		`requests done +(\d+) +(\d+)`:   {planned, planned},
		`requests failed +(\d+) +(\d+)`: {0, 0},
		`requests cut +(\d+) +(\d+)`:    {0, 0},
		// running and queue of four servers in each table
		`tok/s(?:, LoRA)? +\d+ +(\d+) +(\d+)`: make([]int, 16),
	} {
		if got := numbers(pattern); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", pattern, got, want)
		}
	}
	var picks [2]int
	for i, n := range numbers(`picks \S+ +(\d+) +(\d+)`) {
		picks[i%2] += n
	}
	if picks != [2]int{planned, planned} {
		t.Errorf("picks of all endpoints: got %v, want %d in each run", picks, planned)
	}
	for _, pattern := range []string{`TTFT mean +[\d.]+ \S+ +[\d.]+ `, `prefix hits +[1-9]\d* % +[1-9]\d* %`,
		`pick mean +[\d.]+ \S+ +[\d.]+ `} {
		if !regexp.MustCompile(pattern).MatchString(out.String()) {
			t.Errorf("no %s", pattern)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// TestDemoOverloads reads off what the demo prints that both sides had the same requests, that requests waited where
// they should, and that no request is missing.
func TestDemoOverloads(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out bytes.Buffer
	o := newDemoOptions(&out, 3*time.Second)
	o.overload = true
	var quiet exitError
	// so short a load need not show what flow control is for
	if err := o.run(t.Context()); err != nil && !errors.As(err, &quiet) {
		t.Fatal(err)
	}
	numbers := func(pattern string) (all []int) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(out.String(), -1) {
			for _, digits := range m[1:] {
				n, err := strconv.Atoi(digits)
				if err != nil {
					t.Fatalf("%q in %q is no number", digits, m[0])
				}
				all = append(all, n)
			}
		}
		return all
	}
	planned, sent, ended := numbers(`(\d+) requests in 3s`)[0], 0, [2]int{}
	flows := numbers(`(?m)^ *\S+ (?:chat|batch) +(\d+) +\| +(\d+) +(\d+) .*\| +(\d+) +(\d+) `)
	if len(flows) != 4*5 {
		t.Fatalf("numbers of flows: got %v, want five of each of four\n%s", flows, out.String())
	}
	for f := range slices.Chunk(flows, 5) {
		sent += f[0]
		ended[0] += f[1] + f[2]
		ended[1] += f[3] + f[4]
	}
	if want := [2]int{planned, planned}; planned == 0 || sent != planned || ended != want {
		t.Errorf("%d requests: %d sent, %v served or refused", planned, sent, ended)
	}
	for pattern, want := range map[string][]int{
		`cut +(\d+) +(\d+)`: {0, 0}, `failed +(\d+) +(\d+)`: {0, 0},
		`: (\d+) wait in Signalbox, (\d+) in servers, (\d+) run`: make([]int, 6),
	} {
		if got := numbers(pattern); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", pattern, got, want)
		}
	}
	here := numbers(`most waiting in Signalbox +(\d+) +(\d+)`)
	there := numbers(`most waiting in servers +(\d+) +(\d+)`)
	if here[0] == 0 || here[1] != 0 || there[1] == 0 {
		t.Errorf("most waiting in Signalbox %v, in servers %v; want some in Signalbox with flow control alone", here,
			there)
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestDemoEndsWithItsContext(t *testing.T) {
	for _, overload := range []bool{false, true} {
		t.Run(fmt.Sprint("overload ", overload), func(t *testing.T) {
			defer goleak.VerifyNone(t)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			o := newDemoOptions(io.Discard, 20*time.Second)
			o.overload = overload
			if err := o.run(ctx); err == nil || err.Error() != "interrupted" {
				t.Errorf("got %v, want interrupted", err)
			}
		})
	}
}

// lockedBuffer is written by the demo while the test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestDemoStaysUpAndExplains(t *testing.T) {
	for name, overload := range map[string]bool{"chat": false, "overload": true} {
		t.Run(name, func(t *testing.T) { staysUpAndExplains(t, overload) })
	}
}

func staysUpAndExplains(t *testing.T, overload bool) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out lockedBuffer
	serving := newDemoOptions(&out, time.Second)
	serving.serve, serving.overload = true, overload
	ended := make(chan error, 1)
	go func() { ended <- serving.run(ctx) }()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(out.String(), "Interrupt to end."); {
		if !sleep(ctx, 10*time.Millisecond) || time.Now().After(deadline) {
			t.Fatalf("the demo does not come up; it printed\n%s", out.String())
		}
	}
	find := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(out.String())
		if m == nil {
			t.Fatalf("no %s in\n%s", pattern, out.String())
		}
		return m[1]
	}
	status, id := postWith(t, find(`curl -i (\S+)`), find(`-d '(.*)'`),
		regexp.MustCompile(`-H '(\S+): (\S+)'`).FindAllStringSubmatch(out.String(), -1))
	var explained strings.Builder
	explain := newRoot()
	explain.SetArgs([]string{"explain", id, "--addr", find(`--addr (\S+)`)})
	explain.SetOut(&explained)
	err := explain.ExecuteContext(ctx)
	if err != nil || status != http.StatusOK || !strings.Contains(explained.String(), "demo-model") ||
		strings.Contains(explained.String(), "priority 10") != overload {
		t.Errorf("status %d; explain %s: %v\n%s", status, id, err, explained.String())
	}
	rings := read(t, find(`--addr (\S+)`)+"/debug/rings")
	if !strings.Contains(rings, "RequestArrived") || !strings.Contains(rings, "ScrapeFinished") {
		t.Errorf("rings without the request or the scrapes:\n%s", rings)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("interrupted: got %v, want no error", err)
	}
}

// postWith posts a body with such headers, reads the whole answer, and returns its status and the id of the request.
func postWith(t *testing.T, url, body string, headers [][]string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	for _, header := range headers {
		r.Header.Set(header[1], header[2])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, answer.Header.Get("x-signalbox-request-id")
}

// read is what a page says.
func read(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEnvoyBootstrapFits(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/envoy/original-dst.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o := &demoEnvoy{bootstrap: string(text)}
	got, err := o.fit("127.0.0.1:4711")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		piece string
		want  int
	}{{"port_value: 0}", 2}, {"port_value: 4711}", 2}, {demo.ServersHeader, 1}, {"port_value: 9002}", 0},
		{"port_value: 8080}", 0}} {
		if n := strings.Count(got, c.piece); n != c.want {
			t.Errorf("%q stands %d times in the bootstrap, want %d", c.piece, n, c.want)
		}
	}
	o.bootstrap = "port_value: 19000}"
	if _, err := o.fit("127.0.0.1:4711"); err == nil {
		t.Error("a bootstrap without a listener was accepted")
	}
	t.Setenv("ENVOY", "/does/not/exist")
	if _, err := newDemoEnvoy("../../../deploy/envoy/original-dst.yaml"); err == nil ||
		!strings.Contains(err.Error(), "$ENVOY") {
		t.Errorf("newDemoEnvoy with a wrong $ENVOY: got %v", err)
	}
}

func TestProgramThatIsNoEnvoyIsNamed(t *testing.T) {
	t.Setenv("ENVOY", "/bin/false")
	o := newDemoOptions(io.Discard, time.Second)
	o.envoy, o.bootstrap = true, "../../../deploy/envoy/original-dst.yaml"
	err := o.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--envoy: /bin/false ended by itself, saying \"\": exit status 1") {
		t.Errorf("got %v, want that /bin/false ended by itself", err)
	}
}

func TestDemoFlags(t *testing.T) {
	for _, d := range []time.Duration{0, -time.Second, demoLongest + 1} {
		if err := newDemoOptions(io.Discard, d).run(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "--duration") {
			t.Errorf("duration %s: got %v, want an error about --duration", d, err)
		}
	}
	o := newDemoOptions(io.Discard, overloadLongest+1)
	if o.overload = true; o.run(t.Context()) == nil {
		t.Errorf("overload: a duration of %s was accepted", o.Length)
	}
}
