package schedule_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// visitor serves every point, and notes when it is called.
type visitor struct {
	name    string
	calls   *[]string
	refuses map[string]schedule.Refusal // by point
	sets    map[string]string           // headers by point, as name=value
	drops   []int                       // places that it screens out
	reads   func(*schedule.Input)
	mine    schedule.Private[int]
}

func (v *visitor) at(point string, set *schedule.Headers) schedule.Refusal {
	*v.calls = append(*v.calls, v.name+" "+point)
	if name, value, ok := strings.Cut(v.sets[point], "="); ok {
		set.Set(name, value)
	}
	return v.refuses[point]
}

func (v *visitor) RequestHeaders(in *schedule.Input, set *schedule.Headers) schedule.Refusal {
	before, _ := v.mine.Get(in)
	v.mine.Set(in, before+1)
	return v.at(fmt.Sprint("headers ", in.Candidates().Len()), set)
}

func (v *visitor) Screen(in *schedule.Input, keep []bool) {
	v.at(fmt.Sprint("screen ", in.Candidates().Len()), nil)
	if v.reads != nil {
		v.reads(in)
	}
	for i, c := range in.Candidates().All() {
		for _, place := range v.drops {
			keep[i] = keep[i] && c.Address() != address(place)
		}
	}
}

func (v *visitor) Admit(in *schedule.Input) schedule.Refusal {
	return v.at(fmt.Sprint("admit ", in.Candidates().Len()), nil)
}

func (v *visitor) PreRequest(p *schedule.Picked, set *schedule.Headers) schedule.Refusal {
	kept, _ := v.mine.Get(p)
	first, sent := p.Destination(0)
	return v.at(fmt.Sprintf("pre-request %s %s of %d, kept %d", first.Address(), sent, p.Destinations(), kept), set)
}

func (v *visitor) ResponseHeaders(p *schedule.Picked, destination int, set *schedule.Headers) {
	endpoint, _ := p.Destination(destination)
	v.at("respond "+string(endpoint.Address()), set)
}

func (v *visitor) ResponseEnd(e *schedule.Ended) {
	kept, _ := v.mine.Get(e)
	v.at(fmt.Sprintf("end %d, kept %d", e.Record().Status, kept), nil)
}

// visited returns a scene of n endpoints whose plan has these plugins, which note their calls in the list.
func visited(t *testing.T, n int, plugins ...*visitor) (s *scene, calls *[]string) {
	s, calls = newScene(t, n), new([]string)
	steps := make([]schedule.PointStep, 0, len(plugins))
	for _, v := range plugins {
		v.calls, v.mine = calls, schedule.NewPrivate[int](s.binding.Reader(v.name))
		step := schedule.Step{Name: v.name}
		if v.reads != nil {
			step.Reads = s.reads(attributes.QueuedRequests)
		}
		steps = append(steps, schedule.PointStep{Step: step, Plugin: v})
	}
	s.planned().Serve(steps...)
	return s, calls
}

// served schedules the request, and calls what comes after the pick.
func (s *scene) served() schedule.Outcome {
	out := s.run()
	s.scheduler.Prepare(s.planned(), &s.req, &out)
	return out
}

func TestPluginsAreCalledAtTheirPointsInOrder(t *testing.T) {
	s, calls := visited(t, 2, &visitor{name: "a"}, &visitor{name: "b"})
	out := s.served()
	s.ranked(out, 0, 1)
	s.scheduler.End(s.planned(), &s.req, &messages.Record{Status: 200}, out.Values)
	want := []string{
		"a headers 2", "b headers 2", "a screen 2", "b screen 2", "a admit 2", "b admit 2",
		"a pre-request 10.0.0.0:80 10.0.0.0:80 of 2, kept 1", "b pre-request 10.0.0.0:80 10.0.0.0:80 of 2, kept 1",
		"a respond 10.0.0.0:80", "b respond 10.0.0.0:80", "a respond 10.0.0.1:80", "b respond 10.0.0.1:80",
		"a end 200, kept 1", "b end 200, kept 1",
	}
	if !reflect.DeepEqual(*calls, want) {
		t.Errorf("calls\n%s\nwant\n%s", strings.Join(*calls, "\n"), strings.Join(want, "\n"))
	}
	var points []string
	s.plan.Points(func(name string, of *schedule.Step) { points = append(points, of.Name+" "+name) })
	if want := "[a RequestHeader b RequestHeader a Screener b Screener a Admitter b Admitter a PreRequest " +
		"b PreRequest a ResponseHeader b ResponseHeader a ResponseComplete b ResponseComplete]"; fmt.Sprint(points) !=
		want {
		t.Errorf("points %v, want %s", points, want)
	}
	if s.counts.ran[0] != len(*calls) {
		t.Errorf("%d calls were timed, want %d", s.counts.ran[0], len(*calls))
	}
}

// A request that is refused comes to no later point, and the client is told why.
func TestPluginsRefuseRequests(t *testing.T) {
	full := schedule.Refusal{Reason: messages.NoCapacity, Detail: "full", RetryAfter: time.Second}
	for name, c := range map[string]struct {
		point   string
		refusal schedule.Refusal
		last    string // call
		why     messages.Reason
		detail  string
	}{
		"at its headers":   {"headers 2", full, "a headers 2", messages.NoCapacity, "full"},
		"D87 not admitted": {"admit 2", full, "a admit 2", messages.NoCapacity, "full"},
		"without a detail": {"admit 2", schedule.Refusal{Reason: messages.InvalidRequest}, "a admit 2",
			messages.InvalidRequest, "a refused it"},
		"D85 for a reason of others": {"admit 2", schedule.Refusal{Reason: messages.ClientGone}, "a admit 2",
			messages.Internal, "a refused it as rejected-context-cancelled"},
		"D84 once picked": {"pre-request 10.0.0.0:80 10.0.0.0:80 of 2, kept 1", full,
			"a pre-request 10.0.0.0:80 10.0.0.0:80 of 2, kept 1", messages.NoCapacity, "full"},
	} {
		t.Run(name, func(t *testing.T) {
			s, calls := visited(t, 2, &visitor{name: "a", refuses: map[string]schedule.Refusal{c.point: c.refusal}},
				&visitor{name: "b"})
			out := s.served()
			if out.Reason != c.why || out.Detail != c.detail || out.RetryAfter != c.refusal.RetryAfter {
				t.Errorf("%v %q, retry after %v", out.Reason, out.Detail, out.RetryAfter)
			}
			if last := (*calls)[len(*calls)-1]; last != c.last {
				t.Errorf("the last call was %s, want %s", last, c.last)
			}
			s.plan, s.binding = nil, attributes.Binding{}
			s.ranked(s.served(), 0, 1) // nothing of it is left
		})
	}
}

// Of several plugins that would refuse a request the first one's reason is the answer.
func TestFirstRefusalCounts(t *testing.T) {
	const picked = "pre-request 10.0.0.0:80 10.0.0.0:80 of 1, kept 1"
	refuse := func(why messages.Reason, detail string) map[string]schedule.Refusal {
		return map[string]schedule.Refusal{picked: {Reason: why, Detail: detail}}
	}
	for name, c := range map[string]struct{ first, second messages.Reason }{
		"D86 two plugins refuse after the pick": {messages.InvalidRequest, messages.NoCapacity},
		"D94 two plugins refuse for capacity":   {messages.NoCapacity, messages.NoCapacity},
	} {
		t.Run(name, func(t *testing.T) {
			s, calls := visited(t, 1, &visitor{name: "a", refuses: refuse(c.first, "first")},
				&visitor{name: "b", refuses: refuse(c.second, "second")})
			if out := s.served(); out.Reason != c.first || out.Detail != "first" {
				t.Errorf("%v %q, want %v of the first", out.Reason, out.Detail, c.first)
			}
			if last := (*calls)[len(*calls)-1]; last != "a "+picked {
				t.Errorf("the last call was %s, want that of the first plugin", last)
			}
		})
	}
}

// Every screener sees all endpoints, no profile picks what one of them dropped, and the record says who did.
func TestScreenersHoldForAllProfiles(t *testing.T) {
	s := newPair(t, 4, pair{})
	s.profiles = append(s.profiles, schedule.Profile{Name: "tried", Shadow: true, Picker: picker("best", byTotal)})
	var calls []string
	s.planned().Serve(
		schedule.PointStep{Step: schedule.Step{Name: "a"}, Plugin: &visitor{name: "a", calls: &calls, drops: []int{0}}},
		schedule.PointStep{Step: schedule.Step{Name: "b"}, Plugin: &visitor{name: "b", calls: &calls, drops: []int{2}}},
	)
	out := s.runWithShadows()
	s.ranked(out, 1, 3)
	if got := fmt.Sprint(calls); got != "[a headers 4 b headers 4 a screen 4 b screen 4 a admit 2 b admit 2]" {
		t.Errorf("calls %s", got)
	}
	for i, run := range out.Decision.Profiles.All() {
		var steps []string
		for _, f := range run.Filters.All() {
			steps = append(steps, fmt.Sprint(f.Plugin, f.Kept.Append(nil)))
		}
		if got := fmt.Sprint(steps, run.Ranked.Append(nil)); got !=
			"[a[false true true true] b[false true false true]] [1 3]" {
			t.Errorf("run %d: %s", i, got)
		}
	}
	t.Run("D91 screeners leave none", func(t *testing.T) {
		s, calls := visited(t, 2, &visitor{name: "a", drops: []int{0}}, &visitor{name: "b", drops: []int{1}},
			&visitor{name: "c"})
		s.failed(s.run(), messages.NoEndpoints, "screener b left no endpoint")
		if last := (*calls)[len(*calls)-1]; last != "b screen 2" {
			t.Errorf("the last call was %s", last)
		}
	})
}

// squares produces the square of a queue, and something that nothing reads.
type squares struct {
	queue attributes.NumberSlot
	calls int
}

func (*squares) Emits() []string { return []string{"x/unread", "x/square"} }

func (p *squares) Produce(in *schedule.Input, out *schedule.Produced) {
	p.calls++
	queues := in.Numbers(p.queue)
	for i := range in.Candidates().Len() {
		out.Set(0, i, 1)
		out.Set(1, i, queues.At(i)*queues.At(i))
	}
}

// What a producer computes is an attribute like any other, of this request alone. It is unknown of endpoints that the
// producer was not shown, and everywhere if it was not called.
func TestProducersComputeAttributes(t *testing.T) {
	s := newScene(t, 4)
	square := attributes.Attribute{Name: "x/square", Origin: attributes.Produced}
	s.binding.Emit("p", square, attributes.Attribute{Name: "x/unread", Origin: attributes.Produced})
	s.binding.Emit("other", attributes.Attribute{Name: "x/other", Origin: attributes.Produced})
	p := &squares{queue: s.number(attributes.QueuedRequests)}
	reads, slot := s.reads(attributes.QueuedRequests), s.number(square)
	var saw []float64
	s.filter("role", only(1, 2, 3))
	s.scorer("square", 1, nil, func(in *schedule.Input, _ []float32) {
		for i := range in.Candidates().Len() {
			saw = append(saw, in.Numbers(slot).At(i))
		}
	})
	of := func(plugin any) schedule.PointStep {
		return schedule.PointStep{Step: schedule.Step{Name: "p", Reads: reads}, Plugin: plugin}
	}
	s.planned().Serve(of(p))
	s.run()
	s.age(2, time.Minute)
	s.run()
	for place := range 4 {
		s.age(place, time.Minute)
	}
	s.run()
	if got := fmt.Sprint(saw); got != "[1 4 9 1 NaN 9 NaN NaN NaN]" || p.calls != 2 {
		t.Errorf("the scorer read %s, of %d calls; want [1 4 9 1 NaN 9 NaN NaN NaN] of 2", got, p.calls)
	}
	unread := &squares{}
	step := of(unread)
	step.Name = "other"
	s.plan.Serve(step)
	if s.run(); unread.calls != 0 {
		t.Error("a producer was called whose attributes no plugin reads")
	}
}

// A screener that reads samples sees fresh ones alone. What it cannot judge it does not drop.
func TestScreenerThatReadsSamplesSeesFreshOnes(t *testing.T) {
	var saw []float64
	v := &visitor{name: "a", drops: []int{0, 1}}
	v.reads = func(in *schedule.Input) { saw = append(saw, float64(in.Candidates().Len())) }
	s, _ := visited(t, 3, v)
	s.age(0, time.Minute)
	s.ranked(s.run(), 0, 2)
	s.age(1, time.Minute)
	s.age(2, time.Minute)
	s.ranked(s.run(), 0, 1, 2)
	if !reflect.DeepEqual(saw, []float64{2}) {
		t.Errorf("it saw %v candidates, want 2 once", saw)
	}
	if s.counts.stale != 0 {
		t.Errorf("%d profile runs were counted as stale", s.counts.stale)
	}
}

func TestPluginsSetHeaders(t *testing.T) {
	v := &visitor{name: "a", sets: map[string]string{
		"headers 2": "X-Tier=gold", "pre-request 10.0.0.0:80 10.0.0.0:80 of 2, kept 1": "x-first=yes",
		"respond 10.0.0.0:80": "x-served=zero", "respond 10.0.0.1:80": "x-served=one",
	}}
	s, _ := visited(t, 2, v)
	for range 2 { // nothing is left of the first request
		out := s.served()
		set := out.Decision.Headers.Append(nil)
		if want := []messages.Header{{Name: "x-tier", Value: "gold"}, {Name: "x-first", Value: "yes"}}; !reflect.
			DeepEqual(set, want) {
			t.Errorf("set %v, want %v", set, want)
		}
		if n := out.Responses.Len(); n != 2 || out.Responses.At(0).At(0).Value != "zero" ||
			out.Responses.At(1).At(0).Value != "one" {
			t.Errorf("%d responses: %v", n, out.Responses)
		}
	}
}

// A header that HTTP does not have, or that is not a plugin's to set, is a fault of the plugin.
func TestPluginsCannotSetEveryHeader(t *testing.T) {
	for _, header := range []string{
		"=x", ":path=/", "content-length=1", "X-Gateway-Destination-Endpoint=10.0.0.9:80", "a b=c", "x=a\r\ny: b",
	} {
		for _, point := range []string{
			"headers 1", "pre-request 10.0.0.0:80 10.0.0.0:80 of 1, kept 1", "respond 10.0.0.0:80",
		} {
			s, _ := visited(t, 1, &visitor{name: "a", sets: map[string]string{point: header}})
			name, _, _ := strings.Cut(strings.ToLower(header), "=")
			if out := s.served(); out.Reason != messages.Internal ||
				out.Detail != fmt.Sprintf("a set the header %q", name) {
				t.Errorf("%s at %s: %v %q", header, point, out.Reason, out.Detail)
			}
		}
	}
}

// A value is the plugin's own: another one of the same type, the next request and shadow profiles have none.
func TestPrivateValuesAreOfOneRequest(t *testing.T) {
	a := &visitor{name: "a"}
	s, calls := visited(t, 1, a, &visitor{name: "b"})
	seen := 0
	s.profiles = append(s.profiles, schedule.Profile{Name: "tried", Shadow: true, Picker: picker("best", byTotal),
		Scorers: []schedule.ScorerStep{{Scorer: scoreFunc(func(in *schedule.Input, _ []float32) {
			seen++
			a.mine.Set(in, 9)
			if value, ok := a.mine.Get(in); ok {
				t.Errorf("a shadow profile has %d", value)
			}
		})}}})
	steps := []schedule.PointStep{{Step: schedule.Step{Name: "a"}, Plugin: a}}
	s.plan = nil
	s.planned().Serve(steps...)
	for range 2 {
		out := s.runWithShadows()
		s.scheduler.Prepare(s.planned(), &s.req, &out)
		s.scheduler.End(s.planned(), &s.req, new(messages.Record), out.Values)
	}
	kept := 0
	for _, call := range *calls {
		if _, n, ok := strings.Cut(call, "kept "); ok && n == "1" {
			kept++
		}
	}
	if kept != 4 || seen != 2 {
		t.Errorf("%d of 4 calls found what was kept, %d of 2 shadows ran: %v", kept, seen, *calls)
	}
}

// Plugins share what they are shown with other plugins, and with the next request: none of it may have a field that
// they can set.
func TestPluginsCannotChangeWhatTheyAreShown(t *testing.T) {
	for _, shown := range []any{
		schedule.Input{}, schedule.Course{}, schedule.Picked{}, schedule.Ended{}, schedule.Request{},
		schedule.Candidates{}, schedule.Candidate{}, schedule.Numbers{}, schedule.Names{}, schedule.Headers{},
	} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(shown)) {
			if f.IsExported() {
				t.Errorf("a plugin can set %T.%s", shown, f.Name)
			}
		}
	}
}

// A request that asks for a cached prompt is refused unless the picked endpoint holds some of it, and comes to no later
// point.
func TestRequestsThatAskForACachedPrompt(t *testing.T) {
	for name, c := range map[string]struct {
		asks, reads bool // the request; a plugin, the blocks that endpoints hold
		held        int
		want        messages.Reason
	}{
		"D53 held":      {true, true, 1, messages.NoReason},
		"D54 not held":  {true, true, 0, messages.NotCached},
		"D55 unknown":   {true, false, 1, messages.NotCached},
		"D56 not asked": {false, true, 0, messages.NoReason},
		"none reads":    {false, false, 0, messages.NoReason},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 1)
			s.tools.Matcher = matchFunc(func(_ blockindex.Prompt, out []int) int {
				out[0] = c.held
				return c.held
			})
			s.scheduler = schedule.NewScheduler(s.tools)
			s.req.Blocks, s.req.IfCached = messages.ListOf[uint64](1, 2), c.asks
			if c.reads {
				s.scorer("prefix", 1, s.reads(attributes.PrefixBlocks), func(*schedule.Input, []float32) {})
			}
			var calls []string
			v := &visitor{name: "a", calls: &calls, mine: schedule.NewPrivate[int](s.binding.Reader("a"))}
			s.planned().Serve(schedule.PointStep{Step: schedule.Step{Name: "a"}, Plugin: v})
			out := s.served()
			prepared := strings.Contains(strings.Join(calls, " "), "pre-request")
			if out.Reason != c.want || prepared != (c.want == messages.NoReason) {
				t.Errorf("refused as %q, calls %q; want %q", out.Reason, calls, c.want)
			}
		})
	}
}
