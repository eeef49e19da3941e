package demo

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestOrdersFollowTheirSeed(t *testing.T) {
	const length = time.Minute
	load := newOrders(3, length)
	if diff := cmp.Diff(load, newOrders(3, length)); diff != "" {
		t.Errorf("two loads of seed 3 differ:\n%s", diff)
	}
	if cmp.Equal(load, newOrders(4, length)) {
		t.Error("seeds 3 and 4 give the same load")
	}
	counts := make([]float64, len(flows))
	for i, o := range load {
		if o.At < 0 || o.At >= length || i > 0 && o.At < load[i-1].At {
			t.Errorf("order %d comes at %v, after %v, in a load of %v", i, o.At, load[max(i-1, 0)].At, length)
		}
		f := flows[o.Flow]
		if n := len(o.Text) / tokenBytes; n < f.prompt.from || n > f.prompt.to {
			t.Errorf("order %d of %s: a prompt of %d tokens, want %v", i, f.name(), n, f.prompt)
		}
		if o.AnswerTokens < f.answer.from || o.AnswerTokens > f.answer.to {
			t.Errorf("order %d of %s: an answer of %d tokens, want %v", i, f.name(), o.AnswerTokens, f.answer)
		}
		counts[o.Flow]++
	}
	for i, f := range flows {
		// four standard deviations of a Poisson process
		if want := f.perSecond * length.Seconds(); math.Abs(counts[i]-want) > 4*math.Sqrt(want) {
			t.Errorf("%s: %v orders, want about %v", f.name(), counts[i], want)
		}
	}
}

// TestCrowdCountsEachOutcome has each flow end otherwise. Who is cut is counted with the time for which it waited.
func TestCrowdCountsEachOutcome(t *testing.T) {
	defer goleak.VerifyNone(t)
	const answer = "data: {\"choices\":[{\"delta\":{\"content\":\" ha\"}}]}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"completion_tokens\":7}}\n\ndata: [DONE]\n\n"
	hangs := make(chan struct{}, 1)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server notices that its client is gone only when the body is read
		switch r.Header.Get(fairnessHeader) + " " + r.Header.Get(objectiveHeader) {
		case flows[0].name():
			_, _ = io.WriteString(w, answer)
		case flows[1].name():
			w.Header().Set(reasonHeader, "rejected-saturated")
			w.WriteHeader(http.StatusTooManyRequests)
		case flows[2].name():
			http.Error(w, "no reason", http.StatusTooManyRequests)
		default:
			hangs <- struct{}{}
			<-r.Context().Done()
		}
	}))
	defer front.Close()
	c := newCrowd(front.URL)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-hangs
		for ended := 0; ended < 4 && sleep(ctx, time.Millisecond); {
			c.mu.Lock()
			ended = c.flows[0].Served + c.flows[1].refused() + c.flows[2].Failed
			c.mu.Unlock()
		}
		cancel()
	}()
	c.play(ctx, []order{{Flow: 0}, {Flow: 1}, {Flow: 1}, {Flow: 2}, {Flow: 3}})
	for i, want := range []outcome{
		{Sent: 1, Served: 1, Tokens: 7, TTFT: c.flows[0].TTFT},
		{Sent: 2, Refused: map[string]int{"rejected-saturated": 2}},
		{Sent: 1, Failed: 1},
		{Sent: 1, Cut: 1, TTFT: c.flows[3].TTFT},
	} {
		if want.Refused == nil {
			want.Refused = map[string]int{}
		}
		if diff := cmp.Diff(want, c.flows[i]); diff != "" {
			t.Errorf("%s:\n%s", flows[i].name(), diff)
		}
	}
	if len(c.flows[0].TTFT) != 1 || len(c.flows[3].TTFT) != 1 || c.problem == nil {
		t.Errorf("times %v and %v, want one each; first failure %v", c.flows[0].TTFT, c.flows[3].TTFT, c.problem)
	}
}
