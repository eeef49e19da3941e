package points_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/messages"
)

// showing is a request with these media.
func showing(items ...uint64) *messages.Request {
	r := scheduletest.Request()
	for _, hash := range items {
		r.Items = messages.TakeList(append(r.Items.Append(nil), messages.Medium{Hash: hash, Kind: messages.Image}))
	}
	return r
}

// TestEmbeddingsCache sends requests, each to one server, and looks at the shares of another one.
func TestEmbeddingsCache(t *testing.T) {
	type sent struct {
		to    int
		items []uint64
	}
	nan := math.NaN()
	for name, c := range map[string]struct {
		sent []sent
		asks []uint64
		want [3]float64
	}{
		"nothing was sent": {nil, []uint64{1}, [3]float64{0, 0, 0}},
		"no media":         {[]sent{{0, []uint64{1}}}, nil, [3]float64{nan, nan, nan}},
		"some of them": {[]sent{{0, []uint64{1, 2}}, {1, []uint64{3}}}, []uint64{1, 2, 3, 4},
			[3]float64{.5, .25, 0}},
		"all of them": {[]sent{{2, []uint64{1, 2}}, {2, []uint64{3}}}, []uint64{1, 2, 3}, [3]float64{0, 0, 1}},
		// a server has room for 8: of 1 to 9 the first makes way
		"too many": {[]sent{{0, []uint64{1, 2, 3, 4, 5, 6, 7, 8}}, {0, []uint64{9}}}, []uint64{1, 9},
			[3]float64{.5, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			p := points.Types["mm-embeddings-cache-producer"]().(*points.EmbeddingsCache)
			p.CacheSizeInMBPerServer = 16
			s := scheduletest.NewSeries(t, p, scheduletest.Profile{Name: "default"})
			all := make([]scheduletest.Endpoint, 3)
			for _, one := range c.sent {
				s.Profiles[0].Ranks = []int{one.to}
				s.Pick(showing(one.items...), all...)
			}
			s.Profiles[0].Ranks = []int{0, 1, 2}
			got := s.Produced(showing(c.asks...), attributes.MediaCached.Name, all...)
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("shares %v, want %v", got, c.want)
			}
			all[2].Restarts = 1
			if got := s.Produced(showing(c.asks...), attributes.MediaCached.Name, all...)[2]; got > 0 {
				t.Errorf("the next incarnation has %v, want none", got)
			}
		})
	}
}

// staged has a last word that names stages.
type staged struct {
	schedule.Handler
	stages []schedule.Stage
}

func (s staged) Finish(_ *schedule.Course, f *schedule.Final) { f.Stages = s.stages }

// Encode servers keep media, else a prefill server does, and else the one that serves.
func TestEmbeddingsCacheIsOfEncoders(t *testing.T) {
	encode, prefill := schedule.Stage{At: 1}, schedule.Stage{At: 2, Prompt: true}
	for name, c := range map[string]struct {
		stages []schedule.Stage
		want   []float64
	}{
		"encode and prefill": {[]schedule.Stage{prefill, encode}, []float64{0, 1, 0}},
		"two encoders":       {[]schedule.Stage{encode, {At: 2}}, []float64{0, 1, 1}},
		"prefill":            {[]schedule.Stage{prefill}, []float64{0, 0, 1}},
		"none":               {nil, []float64{1, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			s := scheduletest.NewSeries(t, points.Types["mm-embeddings-cache-producer"](),
				scheduletest.Profile{Name: "default", Ranks: []int{0}})
			s.Handle(func(h schedule.Handler) schedule.Handler { return staged{h, c.stages} })
			all := make([]scheduletest.Endpoint, 3)
			s.Pick(showing(7), all...)
			s.Handle(func(h schedule.Handler) schedule.Handler { return staged{h, nil} })
			s.Profiles[0].Ranks = []int{0, 1, 2}
			got := s.Produced(showing(7), attributes.MediaCached.Name, all...)
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("shares %v, want %v", got, c.want)
			}
		})
	}
}

func TestEmbeddingsCacheDoesNotAllocateForEachEndpoint(t *testing.T) {
	p := points.Types["mm-embeddings-cache-producer"]().(*points.EmbeddingsCache)
	s := scheduletest.NewSeries(t, p, scheduletest.Profile{Name: "default", Ranks: []int{0}})
	s.Pick(showing(1, 2, 3), make([]scheduletest.Endpoint, 2)...)
	few := s.Allocs(showing(1, 2, 3), make([]scheduletest.Endpoint, 2)...)
	if many := s.Allocs(showing(1, 2, 3), make([]scheduletest.Endpoint, 200)...); many != few {
		t.Errorf("%v allocations with 200 endpoints, want %v as with 2", many, few)
	}
	if p.CacheSizeInMBPerServer = 1; fmt.Sprint(p.Validate()) != "cacheSizeInMBPerServer: got 1, want 2 to 131072" {
		t.Errorf("got %v", p.Validate())
	}
}

// heard keeps what an observer is told of media.
type heard struct {
	scheduletest.Deaf
	told []string
}

func (h *heard) MediaAsked(_ int, n messages.MediaCounts) {
	h.told = append(h.told, fmt.Sprint("asked ", n))
}

func (h *heard) MediaFound(_ int, at messages.EndpointID, found, of messages.MediaCounts) {
	h.told = append(h.told, fmt.Sprint(at.Slot, " ", found, " of ", of))
}

// What is found of each server is told by kind, once for each request that is picked for.
func TestEmbeddingsCacheTellsWhatItFinds(t *testing.T) {
	p := points.Types["mm-embeddings-cache-producer"]().(*points.EmbeddingsCache)
	s := scheduletest.NewSeries(t, p, scheduletest.Profile{Name: "default", Ranks: []int{1}})
	h := new(heard)
	s.Observe(h)
	all := make([]scheduletest.Endpoint, 2)
	media := []messages.Medium{{Hash: 1, Kind: messages.Image}, {Hash: 2, Kind: messages.Video},
		{Hash: 3, Kind: messages.Image}}
	ask := scheduletest.Request()
	ask.Items = messages.TakeList(media[:2])
	s.Pick(ask, all...)
	next := scheduletest.Request()
	next.Items = messages.TakeList(media)
	s.Allocs(next, all...) // schedules it, as requests are that then wait for room
	s.Pick(next, all...)
	s.Pick(scheduletest.Request(), all...) // without media
	want := []string{
		"asked [0 1 0 1 0]", "0 [0 0 0 0 0] of [0 1 0 1 0]", "1 [0 0 0 0 0] of [0 1 0 1 0]",
		"asked [0 2 0 1 0]", "0 [0 0 0 0 0] of [0 2 0 1 0]", "1 [0 1 0 1 0] of [0 2 0 1 0]",
	}
	if fmt.Sprint(h.told) != fmt.Sprint(want) {
		t.Errorf("told\n%q, want\n%q", h.told, want)
	}
}
