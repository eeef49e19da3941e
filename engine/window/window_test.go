package window

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var began = time.Unix(1_800_000_000, 0)

// scene is an endpoint that works on so many requests at a time, of which there are always more: what its window lets
// in beyond that waits there.
type scene struct {
	*testing.T
	*Window
	now    time.Time
	slots  int           // requests that run at a time
	load   Load          // as the picker counts
	quick  time.Duration // to the first token of a request that does not wait
	serves time.Duration // mean time that a request runs
	dice   *rand.Rand
	silent bool // first tokens are not seen
	runs   int
	queue  []time.Time // when those were picked that wait
	due    []event     // in no order
}

// event is what happens at an endpoint.
type event struct {
	at     time.Time
	picked time.Time // of the request whose first token comes; zero = a request ends
}

func newScene(t *testing.T, slots int) *scene {
	s := &scene{
		T: t, now: began, slots: slots, quick: 100 * time.Millisecond, serves: 4 * time.Second,
		dice: rand.New(rand.NewPCG(1, 1)),
	}
	s.Window = New(s.now, Limits{Requests: 16})
	return s
}

// play lets some time pass, with a page twice a second.
func (s *scene) play(d time.Duration, page func(*scene)) {
	for end, next := s.now.Add(d), s.now; s.now.Before(end); {
		s.send()
		if at := s.next(); at >= 0 && s.due[at].at.Before(next) {
			s.happens(at)
			continue
		}
		s.now, next = next, next.Add(500*time.Millisecond)
		page(s)
	}
}

// send picks the endpoint until its window is full.
func (s *scene) send() {
	for ; s.load.Requests < s.Limits().Requests; s.load.Requests++ {
		s.queue = append(s.queue, s.now)
	}
	for s.runs < s.slots && len(s.queue) > 0 {
		picked := s.queue[0]
		s.queue, s.runs = s.queue[1:], s.runs+1
		s.due = append(s.due, event{at: s.now.Add(s.quick), picked: picked},
			event{at: s.now.Add(s.quick + time.Duration(s.dice.Int64N(2*int64(s.serves))))})
	}
}

// next returns what happens next; -1 = nothing does.
func (s *scene) next() int {
	first := -1
	for i := range s.due {
		if first < 0 || s.due[i].at.Before(s.due[first].at) {
			first = i
		}
	}
	return first
}

func (s *scene) happens(at int) {
	e := s.due[at]
	s.due[at] = s.due[len(s.due)-1]
	s.due, s.now = s.due[:len(s.due)-1], e.at
	switch {
	case e.picked.IsZero():
		s.runs--
		s.load.Requests--
	case !s.silent:
		s.FirstToken(s.now, First{Picked: e.picked, Took: s.now.Sub(e.picked), Prompt: 100}, s.load)
	}
}

// honest reads an honest page.
func honest(s *scene) { s.read(len(s.queue), s.runs) }

// none reads no page.
func none(*scene) {}

func (s *scene) read(waiting, running int) {
	s.Sampled(s.now, Sample{
		Began: s.now, Interval: 500 * time.Millisecond, Waiting: float64(waiting), Running: float64(running),
		CacheUsed: s.dice.Float64() / 2,
	}, s.load)
}

func (s *scene) wants(what string, least, most int) {
	s.Helper()
	if got := s.Limits().Requests; got < least || got > most {
		s.Errorf("%s: the window is %d, want %d to %d (%v)", what, got, least, most, s.Why())
	}
}

// Every kind of sign finds the size by itself, and follows when it changes.
func TestSizeIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		page   func(*scene)
		silent bool
	}{
		"first tokens": {none, false}, "pages": {honest, true}, "both": {honest, false},
	} {
		for _, slots := range []int{4, 16, 100, 256} {
			s := newScene(t, slots)
			s.silent = c.silent
			s.play(40*time.Second, c.page)
			s.wants(name, slots, slots+4+slots/16)
			s.slots = 2 * slots
			s.play(40*time.Second, c.page)
			s.wants(name+", once it is twice as large", 2*slots-2, 2*slots+4+slots/8)
			s.slots = slots / 2
			s.play(40*time.Second, c.page)
			s.wants(name+", once it is a quarter of that", slots/2, slots/2+4+slots/32)
		}
	}
}

// A window that does not limit stays as it is, whatever comes.
func TestUnusedWindowStays(t *testing.T) {
	s := newScene(t, 256)
	s.load.Requests = 5
	for range 50 {
		s.now = s.now.Add(500 * time.Millisecond)
		s.FirstToken(s.now, First{Picked: s.now.Add(-s.quick), Took: s.quick, Prompt: 100}, s.load)
		s.read(0, 5)
	}
	s.wants("five requests", 16, 16)
}

// Pages that do not account for what was sent, stand still or do not come decide nothing, in either direction.
func TestPagesThatLie(t *testing.T) {
	for name, page := range map[string]func(*scene){
		"none waits":        func(s *scene) { s.read(0, s.runs) },
		"nothing runs":      func(s *scene) { s.read(0, 0) },
		"it does not say":   func(s *scene) { s.Sampled(s.now, Sample{Began: s.now, Waiting: math.NaN()}, s.load) },
		"it does not come":  none,
		"its time is older": func(s *scene) { s.Sampled(s.now, Sample{Began: began, Running: 100}, s.load) },
		"it stands still, with a queue": func(s *scene) {
			s.Sampled(s.now, Sample{Began: s.now, Interval: 500 * time.Millisecond, Waiting: 30, Running: 70}, s.load)
		},
	} {
		s := newScene(t, 100)
		s.play(time.Minute, page)
		s.wants(name, 95, 135)
	}
}

// An endpoint of which nothing has told has no bound until a page tells, or first tokens come or requests are refused
// while it has much to do. If nothing tells any more, it has none again.
func TestNothingToldIsNoBound(t *testing.T) {
	none := func(requests int) *scene {
		s := newScene(t, 0)
		s.Window, s.load.Requests = New(s.now, Limits{}), requests
		return s
	}
	first := func(s *scene, took time.Duration) {
		s.now = s.now.Add(50 * time.Millisecond)
		s.FirstToken(s.now, First{Picked: s.now, Took: took, Prompt: 100}, s.load)
	}
	s := none(Initial - 1)
	for range 100 {
		first(s, 100*time.Millisecond)
		s.Ended(s.now, s.load)
		s.Sampled(s.now, Sample{Began: s.now, Waiting: math.NaN(), Running: math.NaN()}, s.load)
	}
	s.wants("it has little to do", 0, 0)
	s.load.Requests = 500
	first(s, 100*time.Millisecond)
	s.wants("it has much to do", 500, 500)
	for range 40 { // at 20 a second, so that some 400 wait
		first(s, 20*time.Second)
	}
	s.wants("400 of 500 wait", 100, 300)
	for s.load.Requests = s.Limits().Requests; s.Limits().Requests > 0; {
		if s.now = s.now.Add(time.Second); s.now.After(s.Why().At.Add(time.Minute)) {
			t.Fatal("nothing has told for a minute, and it is held back")
		}
		s.Ended(s.now, s.load)
	}
	s = none(3)
	s.Refused(s.now, s.load)
	s.wants("one of three is refused", 0, 0)
	s = none(500)
	s.now = s.now.Add(time.Second)
	s.Refused(s.now, s.load)
	s.wants("one of 500 is refused", 400, 480)
	for _, c := range []struct{ load, window int }{{3, Initial}, {500, 500}} {
		s = none(c.load)
		s.Sampled(s.now, Sample{Began: s.now, Interval: time.Second, Running: float64(c.load)}, s.load)
		s.wants("a page tells", c.window, c.window)
	}
}

// An endpoint of which nothing tells any more is held back for seconds only.
func TestABlindWindowHoldsNothingBack(t *testing.T) {
	s := newScene(t, 0)
	s.Sampled(s.now, Sample{Began: s.now}, s.load)
	for range 5 {
		s.now = s.now.Add(1100 * time.Millisecond)
		s.load.Requests = s.Limits().Requests
		s.Ended(s.now, s.load)
	}
	s.wants("5 ends", 200, math.MaxInt)
	if why := s.Why().Cause; why != Blind {
		t.Errorf("it was changed by %v", why)
	}
}

// An endpoint whose pages know nothing of its work, and whose first tokens are not seen, is held back for seconds only.
func TestPagesOfNothingHoldNothingBack(t *testing.T) {
	s := newScene(t, 0)
	for range 14 {
		s.load.Requests = s.Limits().Requests
		s.now = s.now.Add(500 * time.Millisecond)
		s.Sampled(s.now, Sample{Began: s.now, Interval: 500 * time.Millisecond}, s.load)
		if s.now.Before(began.Add(time.Second)) {
			s.wants("a page that may have begun before", Initial, Initial)
		}
	}
	s.wants("seven seconds of such pages", 500, math.MaxInt)
}

// Refusals shrink the window, those of one moment once.
func TestRefusals(t *testing.T) {
	s := newScene(t, 100)
	s.play(40*time.Second, honest)
	before := s.Limits().Requests
	s.load.Requests = before
	for range 10 {
		s.Refused(s.now, s.load)
	}
	s.wants("refusals of one moment", before*8/10, before*95/100)
}

// A full KV cache bounds the tokens of prompts, and requests with short ones go on.
func TestTokens(t *testing.T) {
	s := newScene(t, 100)
	s.load = Load{Requests: 16, Tokens: 16_000}
	for range 2 {
		s.now = s.now.Add(time.Second)
		s.Sampled(s.now, Sample{Began: s.now, Interval: time.Second, Waiting: 8, Running: 8, CacheUsed: .95}, s.load)
	}
	if got := s.Limits().Tokens; got < 7000 || got > 9000 {
		t.Errorf("the window is %d tokens, want about those of 8 requests of 1000", got)
	}
	s.load = Load{Requests: 6, Tokens: s.Limits().Tokens}
	before := s.Limits().Tokens
	for range 20 {
		s.now = s.now.Add(time.Second)
		s.Sampled(s.now, Sample{
			Began: s.now, Interval: time.Second, Running: 6, CacheUsed: .2 + float64(s.now.Unix()%10)/100,
		}, s.load)
		s.load.Tokens = s.Limits().Tokens
	}
	if got := s.Limits().Tokens; got < 2*before {
		t.Errorf("the window is %d tokens, want more than twice %d: the cache is empty", got, before)
	}
}

// What was learned before a restart of the learner is where it goes on.
func TestLearnedBefore(t *testing.T) {
	s := newScene(t, 200)
	s.Window = New(s.now, Limits{Requests: 190, Tokens: 7, Found: true})
	if got := s.Limits(); got != (Limits{Requests: 190, Tokens: 7, Found: true}) {
		t.Errorf("got %v", got)
	}
}

// The time to the first token grows with the prompt: a long one that takes long waits for none.
func TestLongPromptsTakeLong(t *testing.T) {
	s := newScene(t, 1000)
	s.load.Requests = 16
	for i := range 200 {
		prompt := 100 << (i % 6)
		s.now = s.now.Add(50 * time.Millisecond)
		took := 50*time.Millisecond + time.Duration(prompt)*100*time.Microsecond
		s.FirstToken(s.now, First{Picked: s.now.Add(-took), Took: took, Prompt: prompt}, s.load)
		s.load.Requests = s.Limits().Requests
	}
	if s.Limits().Requests < 64 {
		t.Errorf("the window is %d, want it to have grown: %v", s.Limits().Requests, s.Why())
	}
}

func TestCausesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Causes() {
		if seen[c.String()] || c.String() == "" || c.String() == "unknown" {
			t.Errorf("cause %d is called %q", c, c)
		}
		seen[c.String()] = true
	}
	if Cause(200).String() != "unknown" {
		t.Error("a cause that is none has a name")
	}
}
