package window

import (
	"testing"
	"time"
)

// The rate is what was computed by the time that it took, and follows a change of speed within 20 s. What takes a step
// of an engine however few its tokens are, or no time, says nothing.
func TestRateIsLearnedFromFirstTokens(t *testing.T) {
	w, now := New(began, Limits{Pace: Pace{Rate: 77}}), began
	answers := func(prompt, ahead int, took time.Duration) {
		now = now.Add(took)
		w.FirstToken(now, First{Picked: now.Add(-took), Took: took, Prompt: prompt, Ahead: ahead}, Load{Requests: 1})
	}
	if w.Limits().Pace.Rate != 77 {
		t.Errorf("it begins with %d, want the rate in force", w.Limits().Pace.Rate)
	}
	for range 20 {
		answers(4000, 6000, time.Second)
		answers(10, 0, 50*time.Millisecond)
		answers(4000, 0, 0)
	}
	if got := w.Limits().Pace.Rate; got < 9500 || got > 10_000 {
		t.Errorf("the rate is %d, want 10000", got)
	}
	for range 10 {
		answers(10_000, 0, 2*time.Second)
	}
	if got := w.Limits().Pace.Rate; got < 5000 || got > 5700 {
		t.Errorf("20 s after its speed was halved the rate is %d, want 5000", got)
	}
	now = now.Add(time.Hour)
	if answers(1000, 0, time.Second); w.Limits().Pace.Rate > 3000 {
		t.Errorf("an hour later the rate is %d, want about that of the newest token", w.Limits().Pace.Rate)
	}
}

// reader is an endpoint that computes ten thousand tokens of prompts a second, and whose page says that four wait.
type reader struct {
	*testing.T
	*Window
	now  time.Time
	load Load
}

func newReader(t *testing.T) *reader {
	return &reader{
		t,
		New(began, Limits{Requests: 20, Found: true}),
		began,
		Load{Requests: 20, Prompts: 10_000, Held: true},
	}
}

func (r *reader) play(took time.Duration, cacheUsed float64) {
	for i := range 60 {
		r.now = r.now.Add(500 * time.Millisecond)
		r.FirstToken(r.now, First{Picked: r.now.Add(-took), Took: took, Prompt: 5000, Ahead: 5000}, r.load)
		r.Sampled(r.now, Sample{
			Began:     r.now,
			Interval:  500 * time.Millisecond,
			Waiting:   4,
			Running:   float64(16 + i%2),
			CacheUsed: cacheUsed,
		}, r.load)
		r.load.Requests = min(r.load.Requests, r.Limits().Requests)
	}
}

// Requests that wait while prompts are read in chunks are no queue, unless the KV cache is full. Where the prompts take
// four times as long as they did, something else holds them up, and then those that wait are one.
func TestReadingIsNoQueue(t *testing.T) {
	r := newReader(t)
	if r.play(time.Second, .5); r.Limits().Requests < 20 {
		t.Errorf("while prompts are read the window becomes %d of 20: %v", r.Limits().Requests, r.Why())
	}
	if r.play(4*time.Second, .5); r.Limits().Requests > 15 {
		t.Errorf("where sequences are awaited the window stays at %d: %v", r.Limits().Requests, r.Why())
	}
	r = newReader(t)
	if r.play(time.Second, .95); r.Limits().Requests > 15 {
		t.Errorf("with a full cache the window stays at %d: %v", r.Limits().Requests, r.Why())
	}
	r = newReader(t)
	r.load.Prompts = 100 // nothing is to be read
	if r.play(time.Second, .5); r.Limits().Requests > 15 {
		t.Errorf("where nothing is read the window stays at %d: %v", r.Limits().Requests, r.Why())
	}
}

// sees has a page say that some wait while nothing was computed yet.
func (r *reader) sees(waiting float64) {
	r.now = r.now.Add(500 * time.Millisecond)
	r.Sampled(r.now, Sample{
		Began: r.now, Interval: 500 * time.Millisecond, Waiting: waiting, Running: 20 - waiting,
		CacheUsed: float64(r.now.UnixMilli()%997) / 1e4,
	}, r.load)
}

// Before an endpoint has shown how fast it reads, those that wait behind long prompts are no queue either, for as long
// as these may take; beyond that, and where there is nothing to read, they are.
func TestFirstPromptsAreNoQueue(t *testing.T) {
	r := newReader(t)
	r.load.Prompts = 160_000 // which take 20 s at the rate that is guessed
	for range 58 {
		r.sees(6)
	}
	if r.Limits().Requests != 20 {
		t.Errorf("while the first prompts are read the window becomes %d of 20: %v", r.Limits().Requests, r.Why())
	}
	for range 10 {
		r.sees(6)
	}
	if r.Limits().Requests > 16 {
		t.Errorf("prompts of 20 s are not read after 34 s, and the window stays at %d", r.Limits().Requests)
	}
	r = newReader(t)
	r.load.Prompts = 100
	for range 10 {
		r.sees(6)
	}
	if r.Limits().Requests > 16 {
		t.Errorf("where nothing is read the window stays at %d", r.Limits().Requests)
	}
}

// One page on which requests wait is an instant: they may have come together. Two in a row are a queue.
func TestOnePageIsNoQueue(t *testing.T) {
	r := newReader(t)
	r.load.Prompts = 100
	for i := range 40 {
		r.sees([]float64{6, 1}[i%2])
	}
	if r.Limits().Requests != 20 {
		t.Errorf("the window becomes %d of 20: %v", r.Limits().Requests, r.Why())
	}
}

// A first token is late only beyond what the prompts before it take at half the best rate, whatever shorter prompts of
// the same class of sizes took.
func TestPromptsExplainLateFirstTokens(t *testing.T) {
	took := map[bool]time.Duration{false: 1800 * time.Millisecond, true: 4 * time.Second}
	for late, took := range took {
		r := newReader(t)
		r.load.Prompts = 100 // they are computed by the time that the tokens are seen
		for range 40 {
			r.now = r.now.Add(500 * time.Millisecond)
			f := First{Picked: r.now.Add(-time.Second), Took: time.Second, Prompt: 5000, Ahead: 5000}
			r.FirstToken(r.now, f, r.load)
			f.Ahead, f.Took = 0, 200*time.Millisecond
			r.FirstToken(r.now, f, r.load)
		}
		for range 20 {
			r.now = r.now.Add(500 * time.Millisecond)
			f := First{Picked: r.now.Add(-time.Second), Took: took, Prompt: 5000, Ahead: 5000}
			r.FirstToken(r.now, f, r.load)
		}
		if shrunk := r.Limits().Requests < 20; shrunk != late {
			t.Errorf("after first tokens of 10000 tokens within %v the window is %d of 20: %v", took,
				r.Limits().Requests, r.Why())
		}
	}
}

// What was seen of short prompts half an hour ago says nothing of long ones now.
func TestOldFirstTokensSayNothing(t *testing.T) {
	var f firsts
	f.add(began, First{Took: 30 * time.Millisecond, Prompt: 64})
	long := First{Took: 3 * time.Second, Prompt: 20_000}
	if late := f.add(began.Add(time.Minute), long); late > 1e-9 && late < 1 {
		t.Errorf("a minute later a long prompt is late by %v s", late)
	}
	if late := f.add(began.Add(30*time.Minute), long); late > 0 {
		t.Errorf("half an hour later a long prompt is late by %v s", late)
	}
}
