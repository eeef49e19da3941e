package scorers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/messages"
)

// loraPage is what a server says of its adapters.
type loraPage struct {
	slots, queued          int
	active, waiting        string
	resident, host, pinned string
	residency              bool // it says which adapters are in slots
}

func (p loraPage) endpoint() scheduletest.Endpoint {
	t := endpointstest.Told{
		attributes.MaxLoRAs: p.slots, attributes.WaitingRequests: p.queued,
		attributes.ActiveLoRAs: strings.Fields(p.active), attributes.WaitingLoRAs: strings.Fields(p.waiting),
		attributes.BaseModels: []string{"base"},
	}
	if p.residency {
		t[attributes.ResidentLoRAs], t[attributes.HostLoRAs] = strings.Fields(p.resident), strings.Fields(p.host)
		t[attributes.PinnedLoRAs] = strings.Fields(p.pinned)
	}
	return scheduletest.Endpoint{Sample: endpoints.Sample{Values: t.Values()}}
}

// sends is one request, for an adapter, that a server gets.
type sends struct {
	adapter string
	to      int
}

func scoresOf(out *schedule.Outcome) []float32 {
	return out.Decision.Profiles.At(0).Scorers.At(0).Scores.Append(nil)
}

// TestLoRAAffinity sends requests to servers, and then looks at the scores of one for the adapter a.
func TestLoRAAffinity(t *testing.T) {
	newPage := func(slots int, resident, active string) loraPage {
		return loraPage{slots: slots, resident: resident, active: active, residency: true}
	}
	oldPage := func(slots int, active string) loraPage { return loraPage{slots: slots, active: active} }
	queued := func(p loraPage, n int) loraPage { p.queued = n; return p }
	hosted := func(p loraPage, host string) loraPage { p.host = host; return p }
	pinned := func(p loraPage, names string) loraPage { p.pinned = names; return p }
	for name, c := range map[string]struct {
		before []sends
		pages  []loraPage
		want   []float32
	}{
		"new page, idle and in use": {nil, []loraPage{newPage(2, "a b", ""), newPage(2, "a b", "a b")},
			[]float32{1, 1}},
		"new page, a free slot": {nil, []loraPage{newPage(2, "b", "b"), hosted(newPage(2, "b", ""), "a b"),
			newPage(2, "", "")}, []float32{.8, .9, .8}},
		"new page, all slots full and idle": {nil, []loraPage{newPage(2, "b c", ""), newPage(2, "a c", "")},
			[]float32{.5, 1}},
		"new page, all slots in use": {nil, []loraPage{newPage(2, "b c", "b c"), newPage(2, "b c", "b")},
			[]float32{0, .5}},
		"new page, pinned": {nil, []loraPage{pinned(newPage(2, "b c", "b"), "c"), pinned(newPage(2, "b c", "b"), "b")},
			[]float32{0, .5}},
		"new page, from the host": {nil, []loraPage{hosted(newPage(1, "b", ""), "a b"), newPage(1, "b", "")},
			[]float32{.6, .5}},
		"new page, it has lost what was sent": {[]sends{{"a", 0}},
			[]loraPage{newPage(2, "b c", ""), newPage(2, "", "")}, []float32{.5, .8}},
		"old page, nothing sent": {nil, []loraPage{oldPage(2, ""), oldPage(2, "a")}, []float32{.8, 1}},
		"old page, idle in its slot": {[]sends{{"a", 0}, {"b", 0}}, []loraPage{oldPage(2, ""), oldPage(2, "")},
			[]float32{1, .8}},
		"old page, it made way": {[]sends{{"a", 0}, {"b", 0}, {"c", 0}, {"d", 1}, {"e", 1}},
			[]loraPage{oldPage(2, ""), oldPage(2, "")}, []float32{.5, .2}},
		"old page, all slots full and idle": {[]sends{{"b", 1}, {"c", 1}, {"d", 0}, {"e", 0}, {"f", 2}, {"a", 2}},
			[]loraPage{oldPage(2, ""), oldPage(2, ""), oldPage(2, "")}, []float32{.2, .5, 1}},
		"old page, all slots in use": {[]sends{{"b", 0}, {"c", 0}}, []loraPage{oldPage(2, "b c"), oldPage(2, "b")},
			[]float32{0, .8}},
		"base requests leave no trace": {[]sends{{"base", 0}, {"base", 0}}, []loraPage{oldPage(1, ""), oldPage(1, "b")},
			[]float32{.8, 0}},
		"hot, to a free slot": {nil, []loraPage{queued(newPage(2, "a b", "a"), 3), newPage(2, "b", "b")},
			[]float32{.7, .8}},
		"hot, for an idle one": {nil, []loraPage{queued(newPage(2, "a b", "a"), 3), newPage(2, "c b", "b")},
			[]float32{.7, .75}},
		"hot, others in use": {nil, []loraPage{queued(newPage(2, "a b", "a"), 3), newPage(2, "c b", "c b")},
			[]float32{.7, 0}},
		"not hot, one has no queue": {nil, []loraPage{queued(newPage(2, "a b", "a"), 3), newPage(2, "a b", "a"),
			newPage(2, "", "")}, []float32{1, 1, .8}},
		"hot, at as many as it may": {nil, []loraPage{queued(newPage(1, "a", "a"), 3), queued(newPage(1, "a", "a"), 3),
			newPage(1, "", "")}, []float32{1, 1, .8}},
		"no adapters reported": {[]sends{{"a", 0}}, []loraPage{{slots: -1}, newPage(1, "", "")}, []float32{0, .8}},
	} {
		t.Run(name, func(t *testing.T) {
			s := scheduletest.NewSeries(t, &LoRAAffinity{HotEndpoints: 2}, scheduletest.Profile{Name: "default"})
			all := make([]scheduletest.Endpoint, len(c.pages))
			everyone := make([]int, len(c.pages))
			for i, p := range c.pages {
				all[i], everyone[i] = p.endpoint(), i
			}
			for _, b := range c.before {
				s.Profiles[0].Ranks = []int{b.to}
				s.Pick(&messages.Request{ID: 1, Model: b.adapter}, all...)
			}
			s.Profiles[0].Ranks = everyone
			out := s.Pick(&messages.Request{ID: 1, Model: "a"}, all...)
			near := func(a, b float32) bool { return max(a-b, b-a) < 1e-6 }
			if got := scoresOf(&out); !slices.EqualFunc(got, c.want, near) {
				t.Errorf("scores %v, want %v", got, c.want)
			}
		})
	}
}

// The model that is no adapter scores the same wherever it is served.
func TestLoRAAffinityForBaseModels(t *testing.T) {
	s := scheduletest.NewSeries(t, &LoRAAffinity{HotEndpoints: 2}, scheduletest.Profile{Ranks: []int{0, 1, 2}})
	out := s.Pick(&messages.Request{ID: 1, Model: "base"}, loraPage{slots: 2, active: "a b"}.endpoint(),
		loraPage{slots: 2, residency: true}.endpoint(), scheduletest.Endpoint{})
	if got := scoresOf(&out); !slices.Equal(got, []float32{1, 1, 0}) || out.Kept.Len() > 0 {
		t.Errorf("scores %v, %d kept, want 1 where it is served, and nothing kept", got, out.Kept.Len())
	}
}

// byActivity is the rule that takes running adapters for those in slots.
type byActivity struct {
	slots           attributes.NumberSlot
	active, waiting attributes.NamesSlot
}

func (s *byActivity) Declare(r *attributes.Reader) {
	s.slots = r.Number(attributes.MaxLoRAs.Name, "")
	s.active, s.waiting = r.Names(attributes.ActiveLoRAs.Name, ""), r.Names(attributes.WaitingLoRAs.Name, "")
}

func (s *byActivity) Score(in *schedule.Input, scores []float32) {
	model := in.Request().Model()
	slots, active, waiting := in.Numbers(s.slots), in.Names(s.active), in.Names(s.waiting)
	for i := range scores {
		switch {
		case active.Contains(i, model):
			scores[i] = 1
		case float64(active.Count(i)+waiting.Count(i)) < slots.At(i):
			scores[i] = 0.8
		case waiting.Contains(i, model):
			scores[i] = 0.6
		}
	}
}

// loraServer has adapters in slots, the least recently used first, and the requests that run.
type loraServer struct {
	slots    int
	resident []string
	running  []string
	loads    int
}

// run begins a request. It loads the adapter if it is in no slot, in the place of the one that is idle the longest.
func (s *loraServer) run(adapter string) {
	s.running = append(s.running, adapter)
	if i := slices.Index(s.resident, adapter); i >= 0 {
		s.resident = append(slices.Delete(s.resident, i, i+1), adapter)
		return
	}
	s.loads++
	if len(s.resident) == s.slots {
		idle := max(slices.IndexFunc(s.resident, func(a string) bool { return !slices.Contains(s.running, a) }), 0)
		s.resident = slices.Delete(s.resident, idle, idle+1)
	}
	s.resident = append(s.resident, adapter)
}

func (s *loraServer) page(residency bool) scheduletest.Endpoint {
	active := slices.Compact(slices.Sorted(slices.Values(s.running)))
	return loraPage{slots: s.slots, active: strings.Join(active, " "), resident: strings.Join(s.resident, " "),
		residency: residency}.endpoint()
}

// loadsOf returns how many adapters are loaded for each of 1000 requests, once 300 others have come, if at each time
// four run in all.
func loadsOf(t *testing.T, scorer schedule.Scorer, adapters int, residency bool) int {
	t.Helper()
	const servers, slots, inFlight, warm, counted = 4, 4, 4, 300, 1000
	s := scheduletest.NewSeries(t, scorer, scheduletest.Profile{Ranks: []int{0, 1, 2, 3}})
	s.Ties = rand.New(rand.NewPCG(7, 7))
	draw := rand.New(rand.NewPCG(5, 6))
	all := make([]loraServer, servers)
	for i := range all {
		all[i].slots = slots
	}
	var order []int // servers, by the age of what they run
	loads := 0
	for i := range warm + counted {
		if len(order) == inFlight {
			all[order[0]].running, order = all[order[0]].running[1:], order[1:]
		}
		pages := make([]scheduletest.Endpoint, servers)
		for j := range all {
			pages[j] = all[j].page(residency)
		}
		adapter := fmt.Sprintf("adapter-%d", draw.IntN(adapters))
		out := s.Pick(&messages.Request{ID: 1, Model: adapter}, pages...)
		to := int(out.Ranked[0].ID.Slot)
		before := all[to].loads
		all[to].run(adapter)
		order = append(order, to)
		if i >= warm {
			loads += all[to].loads - before
		}
	}
	return loads
}

// Where adapters are more than slots, requests follow the adapters that are there, on old pages too.
func TestLoRALoads(t *testing.T) {
	for _, c := range []struct {
		adapters int
		share    float64 // of the loads by activity, at most
		what     string
	}{{8, 0.02, "twice as many adapters as slots of a server"}, {32, 0.7, "twice as many as slots of all servers"}} {
		old := loadsOf(t, new(byActivity), c.adapters, false)
		learned := loadsOf(t, &LoRAAffinity{HotEndpoints: 4}, c.adapters, false)
		told := loadsOf(t, &LoRAAffinity{HotEndpoints: 4}, c.adapters, true)
		t.Logf("%s: loads per 1000 requests: %d by activity, %d learned, %d told", c.what, old, learned, told)
		for _, got := range []int{learned, told} {
			if float64(got) > c.share*float64(old) {
				t.Errorf("%s: %d loads, want at most %v of %d", c.what, got, c.share, old)
			}
		}
	}
}
