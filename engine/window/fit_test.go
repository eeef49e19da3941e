package window

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// What tokens take and what requests take is told apart by first tokens that had different ones before them, and
// followed within 20 s where it changes. Where they come together, a token takes what is assumed.
func TestTokensAndRequestsAreToldApart(t *testing.T) {
	near := func(t *testing.T, f *fit, wantToken, wantRequest float64) {
		t.Helper()
		token, request := f.solve(1. / 8000)
		if math.Abs(token-wantToken) > wantToken/10 || math.Abs(request-wantRequest) > wantRequest/10+.001 {
			t.Errorf("a token takes %.6f s and a request %.4f s, want %.6f and %.4f", token, request, wantToken,
				wantRequest)
		}
	}
	for name, c := range map[string]struct{ token, request float64 }{
		"prompts take the time": {1. / 2000, 0}, "sequences do": {1. / 20_000, .06}, "both": {1. / 8000, .03},
	} {
		t.Run(name, func(t *testing.T) {
			var f fit
			r, now := rand.New(rand.NewPCG(1, 2)), began
			play := func(faster float64) {
				for range 200 {
					now = now.Add(100 * time.Millisecond)
					tokens, requests := 5000*r.Float64(), float64(1+r.IntN(30))
					late := .9 + .2*r.Float64()
					f.add(now, tokens, requests, late*(tokens*c.token+requests*c.request)/faster)
				}
			}
			play(1)
			near(t, &f, c.token, c.request)
			play(2)
			token, request := f.solve(1. / 8000)
			took, want := 2500*token+15*request, (2500*c.token+15*c.request)/2
			if math.Abs(took-want) > want/5 {
				t.Errorf("20 s after it has become twice as fast a first token takes %.3f s, want %.3f", took, want)
			}
		})
	}
	t.Run("as many tokens for each request", func(t *testing.T) {
		var f fit
		for i := range 50 {
			n := float64(1 + i%20)
			f.add(began, 100*n, n, .05*n)
		}
		near(t, &f, 1./8000, .05-100./8000)
	})
	t.Run("neither takes less than no time", func(t *testing.T) {
		for _, seconds := range []float64{0, 1e-9, 1e9} {
			var f fit
			f.add(began, 1e4, 1, seconds)
			f.add(began, 10, 100, 1)
			f.add(began, 1e4, 100, 0)
			if token, request := f.solve(1. / 8000); !(token > 0) || !(request >= 0) || math.IsInf(token+request, 0) {
				t.Errorf("of first tokens after %v s: %v and %v", seconds, token, request)
			}
		}
	})
}

// A server of which all prompts are cached shows how long requests wait for places.
func TestWaitForSequencesIsLearned(t *testing.T) {
	w, now := New(began, Limits{}), began
	for range 60 {
		now = now.Add(100 * time.Millisecond)
		first := First{Picked: now.Add(-time.Second), Took: time.Second, Prompt: 10, Before: 24}
		w.FirstToken(now, first, Load{Requests: 24})
	}
	if each := w.Limits().Pace.PerRequest; each < 35*time.Millisecond || each > 45*time.Millisecond {
		t.Errorf("each of 25 requests delays others by %v, want a twenty-fifth of the second", each)
	}
}

// What was learned stays when the actor that learns begins anew, and the next first tokens add to it.
func TestPaceIsResumed(t *testing.T) {
	before := Pace{Rate: 900, Marginal: 2000, PerRequest: 60 * time.Millisecond, Count: 40}
	w := New(began, Limits{Pace: before})
	w.FirstToken(began.Add(time.Second), First{Took: time.Second, Prompt: 1000, Before: 7}, Load{Requests: 7})
	after := w.Limits().Pace
	if after.Marginal < 1900 || after.Marginal > 2100 || after.Count < 30 || after.Count > 40 ||
		after.PerRequest < 55*time.Millisecond || after.PerRequest > 65*time.Millisecond {
		t.Errorf("one first token later the pace is %+v, want about %+v", after, before)
	}
}
