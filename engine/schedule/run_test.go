package schedule_test

import (
	"math"
	"reflect"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/pickers"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestScoresAreWeighedAndSummed(t *testing.T) {
	s := newScene(t, 3)
	s.scorer("a", 2, nil, fixed(0.5, 0.25, 1))
	s.scorer("b", 1, nil, fixed(0.5, 1, 0))
	out := s.run()
	s.ranked(out, 2, 0, 1)
	run := out.Decision.Profiles.At(0)
	if got := run.Totals.Append(nil); !reflect.DeepEqual(got, []float32{1.5, 1.5, 2}) {
		t.Errorf("totals %v", got)
	}
	if run.Runner != 0 || run.Scorers.At(1).Plugin != "b" || run.Scorers.At(0).Weight != 2 ||
		out.Decision.PoolVersion != 5 {
		t.Errorf("run %+v", run)
	}
	if s.counts.ran[10] != 1 || s.counts.ran[11] != 1 || s.counts.ran[20] != 1 {
		t.Errorf("runs %v, want one of each plugin", s.counts.ran)
	}
}

func TestOutOfRangeIsClampedAndNaNCountsAsZero(t *testing.T) {
	s := newScene(t, 5)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	s.scorer("odd", 1, nil, fixed(-1, 7, nan, inf, -inf))
	out := s.run()
	got := out.Decision.Profiles.At(0).Scorers.At(0).Scores.Append(nil)
	if !reflect.DeepEqual(got, []float32{0, 1, 0, 1, 0}) {
		t.Errorf("scores %v, want 0 1 0 1 0", got)
	}
	if s.counts.clamped[10] != 4 || s.counts.nan[10] != 1 {
		t.Errorf("%d clamped and %d NaN counted, want 4 and 1", s.counts.clamped[10], s.counts.nan[10])
	}
}

func TestPickerFaultsAreOurs(t *testing.T) {
	for name, c := range map[string]struct {
		picks []int
		want  string
	}{
		"nothing":   {nil, "picker p picked nothing"},
		"twice":     {[]int{1, 0, 1}, "picker p picked 1 twice"},
		"too large": {[]int{0, 2}, "picker p picked 2 of 2"},
		"negative":  {[]int{-1}, "picker p picked -1 of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 2)
			s.profiles[0].Picker = picker("p", func(_ *schedule.Input, _ []float32, ranked []int) []int {
				return append(ranked, c.picks...)
			})
			s.failed(s.run(), messages.Internal, c.want)
		})
	}
}

type handler struct {
	next    func(earlier int) int
	primary int
}

func (h handler) Next(c *schedule.Course) schedule.Run {
	return schedule.Run{Profile: h.next(c.Results().Len())}
}
func (h handler) Primary(*schedule.Course) int { return h.primary }

func TestHandlerFaultsAreOurs(t *testing.T) {
	for name, c := range map[string]struct {
		h    handler
		want string
	}{
		"no profile ran":  {handler{func(int) int { return -1 }, 0}, "the profile handler named no profile that ran"},
		"no such result":  {handler{func(n int) int { return -n }, 1}, "the profile handler named no profile that ran"},
		"no such profile": {handler{func(int) int { return 1 }, 0}, "the profile handler named profile 1 of 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 2)
			s.plan, s.handler = nil, c.h
			s.failed(s.run(), messages.Internal, c.want)
		})
	}
	t.Run("a profile twice", func(t *testing.T) {
		s, ran := newScene(t, 2), 0
		s.scorer("counts", 1, nil, func(*schedule.Input, []float32) { ran++ })
		s.plan, s.handler = nil, handler{func(int) int { return 0 }, 0}
		s.failed(s.run(), messages.Internal, "the profile handler named profile default twice")
		if ran != 1 {
			t.Errorf("the profile ran %d times, want 1", ran)
		}
	})
}

// The handler says which run is primary, in any order: its pick serves, its outlier is probed, and the decision
// records it.
func TestPrimaryNeedNotBeTheLastRun(t *testing.T) {
	s := newScene(t, 3)
	last := func(_ *schedule.Input, totals []float32, ranked []int) []int { return append(ranked, len(totals)-1) }
	s.plan, s.profiles = nil, append(s.profiles, schedule.Profile{Name: "second", Picker: picker("last", last)})
	s.plan, s.handler = nil, handler{func(ran int) int {
		if ran == 2 {
			return -1
		}
		return ran
	}, 0}
	out := s.run()
	s.ranked(out, 0, 1, 2)
	if out.Decision.Primary != 0 || out.Decision.Profiles.Len() != 2 {
		t.Errorf("primary %d of %d, want 0 of 2", out.Decision.Primary, out.Decision.Profiles.Len())
	}
	s.eject(1, 0)
	if out = s.run(); !out.Probe || out.Ranked[0] != s.snap.Endpoints[1] ||
		out.Decision.Profiles.At(1).Ranked.At(0) == 1 {
		t.Errorf("probe %v of %v; the last run picked %v", out.Probe, out.Ranked[0].ID,
			out.Decision.Profiles.At(1).Ranked)
	}
	s.plan, s.handler = nil, handler{func(int) int { return -1 }, 0}
	if out = s.run(); out.Decision.Primary != -1 {
		t.Errorf("primary %d of none, want -1", out.Decision.Primary)
	}
}

func TestFilterThatLeavesNoneIsNamed(t *testing.T) {
	s := newScene(t, 3)
	late := 0
	s.filter("some", only(1, 2))
	s.filter("strict", only(0))
	s.filter("never", func(*schedule.Input, []bool) { late++ })
	s.scorer("never", 1, nil, func(*schedule.Input, []float32) { late++ })
	out := s.run()
	s.failed(out, messages.NoEndpoints, "filter strict left no endpoint")
	run := out.Decision.Profiles.At(0)
	if late != 0 || run.Filters.Len() != 2 {
		t.Errorf("%d plugins ran after nothing was left; %d filters in the record, want 2", late, run.Filters.Len())
	}
	if got := run.Filters.At(0).Kept.Append(nil); !reflect.DeepEqual(got, []bool{false, true, true}) {
		t.Errorf("kept %v, want false true true", got)
	}
}

func TestFilteredCandidatesAreNotScoredAndPlacesStayRight(t *testing.T) {
	s := newScene(t, 5)
	s.filter("some", only(1, 3, 4))
	s.scorer("a", 1, nil, fixed(0.1, 0.9, 0.5))
	out := s.run()
	s.ranked(out, 3, 4, 1)
	run := out.Decision.Profiles.At(0)
	if got := run.Totals.Append(nil); !reflect.DeepEqual(got, []float32{-1, 0.1, -1, 0.9, 0.5}) || run.Runner != 4 {
		t.Errorf("totals %v, runner-up %d, want 4", got, run.Runner)
	}
}

// Of equal totals the runner-up is the one that the picker put second; a better total beats that.
func TestRunnerUpFollowsTheRanking(t *testing.T) {
	for name, c := range map[string]struct {
		scores []float32
		order  []int
		want   int
	}{
		"equal totals":          {[]float32{.5, .5, .5}, []int{2, 1, 0}, 1},
		"a better one left":     {[]float32{.5, .9, .7}, []int{0, 2}, 1},
		"second is also best":   {[]float32{.5, .9, .9}, []int{0, 2}, 2},
		"the pick stands alone": {[]float32{.9, .5, .5}, []int{0}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 3)
			s.scorer("a", 1, nil, fixed(c.scores...))
			s.profiles[0].Picker = picker("so", func(*schedule.Input, []float32, []int) []int { return c.order })
			if got := s.run().Decision.Profiles.At(0).Runner; got != c.want {
				t.Errorf("runner-up %d, want %d", got, c.want)
			}
		})
	}
}

func TestNobodyToPickFrom(t *testing.T) {
	s := newScene(t, 2)
	s.req.Subset = messages.Subset{Given: true}
	s.failed(s.run(), messages.NoEndpoints, "no endpoint of the pool is in the subset")
	s.req.Subset.Addresses = messages.ListOf[messages.Address]("10.9.9.9:1")
	s.failed(s.run(), messages.NoEndpoints, "no endpoint of the pool is in the subset")
	s.snap = endpoints.NewSnapshot(6, nil)
	s.failed(s.run(), messages.NoEndpoints, "the pool has no endpoints")
}

func TestSubsetRestrictsThePool(t *testing.T) {
	s := newScene(t, 4)
	s.req.Subset = messages.Subset{Given: true, Addresses: messages.ListOf(address(3), "10.9.9.9:1", address(1))}
	s.ranked(s.run(), 1, 3)
	s.req.Subset.Given = false
	s.ranked(s.run(), 0, 1, 2, 3)
}

func TestTiesBreakAtRandomAndRepeatWithTheSeed(t *testing.T) {
	play := func() (picks [3]int, order []uint32) {
		s := newScene(t, 3)
		s.profiles[0].Picker.Picker = &pickers.MaxScore{}
		for range 900 {
			slot := s.run().Ranked[0].ID.Slot
			picks[slot]++
			order = append(order, slot)
		}
		return picks, order
	}
	picks, order := play()
	for i, n := range picks {
		if n < 240 || n > 360 {
			t.Errorf("endpoint %d was picked %d times of 900, want about 300", i, n)
		}
	}
	if _, again := play(); !reflect.DeepEqual(order, again) {
		t.Error("the same seed gave other picks")
	}
}

func TestMatchesGoBySlotAndAreAskedForOnce(t *testing.T) {
	s := newScene(t, 3)
	asked := 0
	s.tools.Matcher = matchFunc(func(p blockindex.Prompt, out []int) int {
		asked++
		if p.Model != "m" || p.Salt != "salt" || p.Blocks.Len() != 2 || len(out) != 3 {
			t.Errorf("asked for %+v in %d slots", p, len(out))
		}
		out[2] = 2
		return 2
	})
	s.scheduler = schedule.NewScheduler(s.tools)
	s.req.Salt = "salt"
	s.run()
	s.req.Blocks = messages.ListOf[uint64](1, 2)
	s.run()
	if asked != 0 {
		t.Error("matched although no plugin reads it")
	}
	var saw []int
	blocks := s.number(attributes.PrefixBlocks)
	s.scorer("prefix", 1, s.reads(attributes.PrefixBlocks), func(in *schedule.Input, _ []float32) {
		for i := range in.Numbers(blocks).Len() {
			saw = append(saw, int(in.Numbers(blocks).At(i)))
		}
	})
	s.run()
	if asked != 1 || !reflect.DeepEqual(saw, []int{0, 0, 2}) {
		t.Errorf("asked %d times, saw %v", asked, saw)
	}
}

// lossy is a matcher whose endpoints have lost all blocks but one.
type lossy struct{ matchFunc }

func (lossy) Credit(blockindex.Prompt, uint32, int) int { return 1 }

// Plugins prefer the endpoint where a prompt was placed. What is taken to be cached there is what it holds still.
func TestPluginsSeeHomesAndThePickHasTheCredit(t *testing.T) {
	s := newScene(t, 2)
	s.tools.Matcher = lossy{func(_ blockindex.Prompt, out []int) int {
		out[1] = 3
		return 3
	}}
	s.scheduler = schedule.NewScheduler(s.tools)
	s.req.Blocks = messages.ListOf[uint64](1, 2, 3)
	blocks := s.number(attributes.PrefixBlocks)
	s.scorer("prefix", 1, s.reads(attributes.PrefixBlocks), func(in *schedule.Input, scores []float32) {
		for i := range scores {
			scores[i] = float32(in.Numbers(blocks).At(i))
		}
	})
	out := s.run()
	if out.Ranked[0] != s.snap.Endpoints[1] || out.PrefixBlocks != 1 {
		t.Errorf("picked %v with a credit of %d, want the home with 1", out.Ranked[0].ID, out.PrefixBlocks)
	}
}

// apart runs two profiles, the second alone.
type apart struct{ alone bool }

func (h apart) Next(c *schedule.Course) schedule.Run {
	if n := c.Results().Len(); n < 2 {
		return schedule.Run{Profile: n, Alone: h.alone && n == 1}
	}
	return schedule.Run{Profile: -1}
}

func (apart) Primary(*schedule.Course) int { return 1 }

// What earlier runs have picked is nothing to the plugins of a run that is alone.
func TestARunMayBeAlone(t *testing.T) {
	for alone, want := range map[bool]int{false: 1, true: 0} {
		s := newScene(t, 2)
		first := func(_ *schedule.Input, _ []float32, ranked []int) []int { return append(ranked, 0) }
		seen := -1
		s.plan, s.handler = nil, apart{alone}
		s.profiles = append(s.profiles, schedule.Profile{Name: "second",
			Picker: picker("looks", func(in *schedule.Input, totals []float32, ranked []int) []int {
				seen = in.Earlier().Len()
				return first(in, totals, ranked)
			})})
		s.ranked(s.run(), 0)
		if seen != want {
			t.Errorf("alone %v: the second run saw %d earlier ones, want %d", alone, seen, want)
		}
	}
}
