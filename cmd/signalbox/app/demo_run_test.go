package app

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestDemoPlaysTheLoad(t *testing.T) {
	defer goleak.VerifyNone(t)
	o := &demoOptions{seed: 5, duration: 1500 * time.Millisecond, plain: true}
	load := newLoad(o.seed, o.duration)
	load[0].Model = demoAdapters[0]
	for i := range load {
		load[i].Turns = load[i].Turns[:min(len(load[i].Turns), 2)]
	}
	for title, config := range map[string]string{"default": "", "random": randomPicking} {
		t.Run(title, func(t *testing.T) {
			var out bytes.Buffer
			got, err := o.measure(t.Context(), demoRun{title: title, config: config, load: load, display: newDisplay(&out, true)})
			if err != nil {
				t.Fatal(err)
			}
			if n := countTurns(load); got.Sent != n || got.Done != n || got.Picks != n || got.Failed+got.Cut != 0 {
				t.Errorf("sent %d, done %d, picks %d, failed %d, cut %d; want %d, %[6]d, %[6]d, 0, 0\n%s",
					got.Sent, got.Done, got.Picks, got.Failed, got.Cut, n, out.String())
			}
			picks := 0
			for _, e := range got.Endpoints {
				picks += e.Picks
				if e.Running+e.Waiting != 0 || e.Hit > e.Queried {
					t.Errorf("%s at the end: %+v", e.Name, e)
				}
			}
			if picks != got.Done {
				t.Errorf("picks of all endpoints: got %d, want %d", picks, got.Done)
			}
			if got.TTFTMean <= 0 || got.TTFTP50 > got.TTFTP95 || got.PickMean <= 0 || got.hitRatio() <= 0 {
				t.Errorf("TTFT mean %s, p50 %s, p95 %s; pick mean %s; hits %g", got.TTFTMean, got.TTFTP50, got.TTFTP95, got.PickMean, got.hitRatio())
			}
		})
	}
}

func TestDemoEndsWithItsContext(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := (&demoOptions{seed: 1, duration: 20 * time.Second}).run(ctx, io.Discard)
	if err == nil || err.Error() != "interrupted" {
		t.Errorf("got %v, want interrupted", err)
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
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out lockedBuffer
	ended := make(chan error, 1)
	go func() { ended <- (&demoOptions{seed: 1, duration: time.Second, serve: true}).run(ctx, &out) }()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(out.String(), "Interrupt to end."); {
		if !sleep(ctx, 10*time.Millisecond) || time.Now().After(deadline) {
			t.Fatalf("the demo does not come up: %s", out.String())
		}
	}
	find := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(out.String())
		if m == nil {
			t.Fatalf("no %s in\n%s", pattern, out.String())
		}
		return m[1]
	}
	r, err := http.NewRequest(http.MethodPost, find(`curl -i (\S+)`), strings.NewReader(find(`-d '(.*)'`)))
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	var explained bytes.Buffer
	id := answer.Header.Get("x-signalbox-request-id")
	explain := newRoot()
	explain.SetArgs([]string{"explain", id, "--addr", find(`--addr (\S+)`)})
	explain.SetOut(&explained)
	if err := explain.ExecuteContext(ctx); err != nil {
		t.Fatalf("explain %q: %v", id, err)
	}
	if answer.StatusCode != http.StatusOK || !strings.Contains(explained.String(), demoModel) {
		t.Errorf("status %d; explain %s:\n%s", answer.StatusCode, id, explained.String())
	}
	if rings := read(t, find(`--addr (\S+)`)+"/debug/rings"); !strings.Contains(rings, "RequestArrived") || !strings.Contains(rings, "ScrapeFinished") {
		t.Errorf("rings without the request or the scrapes:\n%s", rings)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("interrupted: got %v, want no error", err)
	}
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
