package endpoints_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/messages"
)

// shown is what one page says, with so many requests in flight when its scrape began.
type shown struct {
	inflight, waiting, running int // -1 = the page does not say
}

// filled returns an endpoint whose pages have said this, and the requests that it takes where so many may wait.
func filled(waiting int, pages ...shown) (e *endpoints.Endpoint, taken []endpoints.Pick) {
	e = endpoints.New(messages.EndpointID{Slot: 1, Generation: 1}, messages.EndpointSpec{})
	var of endpoints.Places
	for _, p := range pages {
		values := endpointstest.Load(p.waiting, p.running, -1)
		of = of.Next(p.inflight, &values)
		endpoints.SampleWriter{Endpoint: e}.Publish(&endpoints.Sample{Values: values, Places: of})
	}
	w, room := endpoints.LoadWriter{Endpoint: e}, endpoints.Room{Waiting: waiting}
	for len(taken) < unbounded {
		pick, ok := w.Take(endpoints.Work{Prompt: 1}, room, time.Time{})
		if !ok {
			break
		}
		taken = append(taken, pick)
	}
	return e, taken
}

const unbounded = 1000

func TestPlacesBoundWhatWaits(t *testing.T) {
	many := []shown{{200, 0, 200}}
	for range 20 {
		many = append(many, shown{200, 0, 200})
	}
	for name, c := range map[string]struct {
		waiting int
		pages   []shown
		want    int
	}{
		"a new one":                           {2, []shown{{0, 0, 0}}, endpoints.FirstWindow + 8},
		"more than the first window":          {2, []shown{{40, 0, 40}}, 40 + 16},
		"some wait":                           {5, []shown{{13, 3, 10}}, 10 + 5},
		"as many wait as may":                 {2, []shown{{12, 2, 10}}, 12},
		"too many wait":                       {2, []shown{{20, 10, 10}}, 12},
		"two are on their way":                {2, []shown{{22, 10, 10}}, 12},
		"far more wait than may":              {2, []shown{{300, 299, 1}}, 3},
		"others' wait, too":                   {2, []shown{{10, 5, 15}}, 8},
		"others' alone wait":                  {2, []shown{{0, 5, 15}}, 0},
		"others' alone run":                   {2, []shown{{0, 0, 15}}, endpoints.FirstWindow + 8},
		"a queue is over":                     {2, []shown{{30, 20, 10}, {8, 0, 8}}, 10 + 2},
		"one wait of many tells little":       {2, []shown{{100, 0, 100}, {21, 1, 20}}, 60 + 7},
		"many that wait tell how many run":    {2, []shown{{100, 0, 100}, {60, 20, 40}}, 40 + 2},
		"none waits for long":                 {2, many, 300},
		"none waits, and then many do":        {2, append(many[:len(many):len(many)], shown{260, 60, 200}), 202},
		"the batch is not known":              {2, []shown{{20, 8, -1}}, 14},
		"the batch is not known, none waits":  {2, []shown{{20, 0, -1}}, 20 + 10},
		"the queue is not known":              {2, []shown{{20, -1, 20}}, unbounded},
		"a page that lies makes nothing grow": {2, []shown{{20, 4, 16}, {18, 0, 4}, {18, 0, 4}, {18, 0, 4}}, 18},
		"a page that overflows":               {2, []shown{{20, math.MaxInt, math.MaxInt}, {20, -2, 20}}, 22},
	} {
		if _, got := filled(c.waiting, c.pages...); len(got) != c.want {
			t.Errorf("%s: takes %d, want %d", name, len(got), c.want)
		}
	}
}

// An end makes room at once, and a pick takes it, also where many are made at the same time.
func TestPlacesCountFromOnePageToTheNext(t *testing.T) {
	e, picks := filled(2, shown{0, 0, 0}, shown{40, 30, 10}) // 12 are in flight
	w, of := endpoints.LoadWriter{Endpoint: e}, endpoints.Room{Waiting: 2}
	pick := w.Add(endpoints.Work{Prompt: 1}, time.Time{})
	if _, ok := w.Take(endpoints.Work{Prompt: 1}, of, time.Time{}); ok {
		t.Error("there is room beside one too many")
	}
	w.Remove(pick)
	if _, ok := w.Take(endpoints.Work{Prompt: 1}, of, time.Time{}); ok {
		t.Error("there is room at a full endpoint")
	}
	w.Remove(picks[0])
	var taking sync.WaitGroup
	var taken [8]bool
	for i := range taken {
		taking.Go(func() { _, taken[i] = w.Take(endpoints.Work{Prompt: 1}, of, time.Time{}) })
	}
	taking.Wait()
	n := 0
	for _, ok := range taken {
		if ok {
			n++
		}
	}
	if n != 1 || e.Inflight() != 12 {
		t.Errorf("%d were taken for one that ended, and %d are in flight, want 12", n, e.Inflight())
	}
}
