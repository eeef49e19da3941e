package records

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/messages"
)

// crowded returns the record of a request for which the scorers and filters of a profile ran over n endpoints. Every
// score is another one, which is what packs worst.
func crowded(id messages.RequestID, filters, scorers, n int) messages.Record {
	draw := uint32(id)
	random := func() float32 {
		draw = draw*1664525 + 1013904223
		return float32(draw>>8) / (1 << 24)
	}
	r := messages.Record{
		Request: id, Configuration: 3, ClientID: "6f1f2a5e-8d0c-4bb7-9d68-0a4b2f4c7d11",
		Agent: "OpenAI/Python 2.1.0", Path: "/v1/chat/completions", API: messages.ChatAPI,
		ResponseID: "chatcmpl-6f1f2a5e-8d0c-4bb7-9d68-0a4b2f4c7d11", Model: "meta-llama/Llama-3.1-8B-Instruct",
		Flow: messages.FlowKey{Fairness: "tenant-17"}, ArrivedAt: time.Unix(1_800_000_000, 17),
		Ended: 9_123_456_789, Decided: 123_456, Headers: 301_234_567, FirstToken: 312_345_678, PromptTokens: 2048,
		BodyBytes: 8192, Status: 200, SampleAge: 412_345_678, ResponseBytes: 65536,
		Served: messages.EndpointID{Slot: 3, Generation: 1},
		Usage: messages.Usage{
			Source: messages.UsageReported, PromptKnown: true, PromptTokens: 2048, OutputTokens: 812, OwnBytes: 120,
		},
	}
	var events []messages.RecordEvent
	for i := range 16 {
		events = append(events, messages.RecordEvent{Name: fmt.Sprintf("Message%d", i%9), To: []string{"", "flow"}[i%2],
			At: time.Duration(i) * 512_345_678, Waited: 23_456, Took: 12_345})
	}
	run := messages.ProfileRun{
		Profile: "default", Ranked: messages.ListOf[uint32](3, 4, 5), Runner: 4, Ages: [2]time.Duration{4e8, 5e8},
	}
	ids, totals, kept := make([]messages.EndpointID, n), make([]float32, n), make([]bool, n)
	for i := range n {
		ids[i] = messages.EndpointID{Slot: uint32(i), Generation: 1 + uint32(i)%2}
		totals[i], kept[i] = 9*random(), true
	}
	var fs []messages.FilterRun
	for i := range filters {
		fs = append(fs, messages.FilterRun{Plugin: fmt.Sprintf("filter-%d", i), Kept: messages.ListOf(kept...)})
	}
	var scs []messages.ScorerRun
	for i := range scorers {
		scores := make([]float32, n)
		for j := range scores {
			scores[j] = random()
		}
		scs = append(scs, messages.ScorerRun{Plugin: fmt.Sprintf("scorer-%d", i), Weight: 1 + float32(i),
			Scores: messages.TakeList(scores)})
	}
	names, values := make([]string, 8), make([]float32, 16)
	for i := range names {
		names[i] = fmt.Sprintf("attribute-%d", i)
	}
	run.Filters, run.Scorers, run.Totals = messages.TakeList(fs), messages.TakeList(scs), messages.TakeList(totals)
	run.Reads, run.Values = messages.TakeList(names), messages.TakeList(values)
	r.Events = messages.TakeList(events)
	r.Decision = messages.Decision{PoolVersion: 9, Pool: n, Endpoints: messages.TakeList(ids),
		Profiles: messages.ListOf(run)}
	return r
}

// As many records as a book may have fit in it with 30 plugins over 100 endpoints, by its own account and by that of
// the heap.
func TestRecordsOfThirtyPluginsOverAHundredEndpointsFit(t *testing.T) {
	const entries, limit = 4096, 16 << 20
	for name, c := range map[string]struct{ filters, scorers, loops int }{
		"five filters, 24 scorers": {5, 24, 1},
		"no filter, 29 scorers":    {0, 29, 1},
		"sixteen loops":            {0, 29, 16},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			b := NewBook(entries/c.loops, limit/c.loops)
			for id := range messages.RequestID(entries/c.loops + 10) {
				b.End(crowded(id, c.filters, c.scorers, 100))
			}
			took := heap() - before
			if n := b.next - b.first; n != uint64(entries/c.loops) || b.Lost() != 10 {
				t.Errorf("%d records are kept and %d lost, want %d and 10", n, b.Lost(), entries/c.loops)
			}
			if b.bytes() > limit/c.loops || took > limit/c.loops+limit/c.loops/100+64<<10 {
				t.Errorf("%d bytes by its account and %d of the heap, limit %d", b.bytes(), took, limit/c.loops)
			}
			got := b.Newest(1, nil, all)[0].Decision.Profiles.At(0)
			if got.Within > within(leastBits) {
				t.Errorf("scores are within %v, want %v or better", got.Within, within(leastBits))
			}
			t.Logf("%d bytes by its account, %d of the heap, scores within %v", b.bytes(), took, got.Within)
		})
	}
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// The default profile over ten endpoints, and what is larger, keep every score as it was as long as there is room.
func TestScoresAreExactWhereTheyHaveRoom(t *testing.T) {
	for _, scorers := range []int{3, 7, 28} {
		b := NewBook(4096, 16<<20)
		r := crowded(1, 2, scorers, 200/scorers)
		b.End(r)
		if got := b.Newest(1, nil, all)[0]; got.Decision.Profiles.At(0).Within != 0 {
			t.Errorf("%d scorers: scores are within %v, want exact", scorers, got.Decision.Profiles.At(0).Within)
		} else if d := cmp.Diff(r, got, exported, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%d scorers: %s", scorers, d)
		}
	}
}

// The scores that a reader compares are exact where others are rounded: those of the first three and of the runner-up.
func TestScoresThatAreComparedAreExact(t *testing.T) {
	b := NewBook(4096, 16<<20)
	r := crowded(1, 0, 29, 100)
	want := r.Decision.Profiles.At(0)
	want.Ranked, want.Runner = messages.ListOf[uint32](7, 31, 64, 90), 12
	r.Decision.Profiles = messages.ListOf(want)
	b.End(r)
	got := b.Newest(1, nil, all)[0].Decision.Profiles.At(0)
	for i, sc := range want.Scorers.All() {
		scores := got.Scorers.At(i).Scores
		for _, at := range []int{7, 31, 64, 12} {
			if scores.At(at) != sc.Scores.At(at) {
				t.Errorf("%s, endpoint %d: %v, want %v", sc.Plugin, at, scores.At(at), sc.Scores.At(at))
			}
		}
		if scores.At(90) == sc.Scores.At(90) && scores.At(91) == sc.Scores.At(91) {
			t.Errorf("%s: endpoints 90 and 91 are exact too, so this shows nothing", sc.Plugin)
		}
	}
}

var exported = cmp.Exporter(func(reflect.Type) bool { return true })

// What a book gives back is what it was given, but for scores, which are as near as the record says.
func TestUnpackingGivesWhatWasPacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SampledFrom([]int{1, 5, 200}).Draw(t, "entries") // records of 200 have few bits for scores
		b := NewBook(entries, rapid.IntRange(0, 99_999).Draw(t, "limit"))
		var all []messages.Record
		for range rapid.IntRange(1, 12).Draw(t, "records") {
			r := record(t)
			b.End(r)
			all = append(all, r)
		}
		slices.Reverse(all)
		got := b.Newest(len(all), nil, func(*messages.Record) bool { return true })
		if len(got)+int(b.Lost()) != len(all) {
			t.Fatalf("%d kept, %d lost of %d", len(got), b.Lost(), len(all))
		}
		for i := 0; i < len(got); i++ {
			if got[i].Request != all[i].Request { // larger than the book
				all = slices.Delete(all, i, i+1)
				i--
				continue
			}
			same(t, &all[i], &got[i])
		}
	})
}

func same(t *rapid.T, packed, got *messages.Record) {
	for i, run := range got.Decision.Profiles.All() {
		want := packed.Decision.Profiles.At(i)
		exact := []int{want.Runner} // and the first three that were ranked
		for _, at := range want.Ranked.Append(nil)[:min(3, want.Ranked.Len())] {
			exact = append(exact, int(at))
		}
		for j, sc := range run.Scorers.All() {
			near(t, want.Scorers.At(j).Scores, sc.Scores, run.Within, exact)
		}
	}
	ignored := cmp.FilterPath(func(p cmp.Path) bool {
		return p.Last().String() == ".Scores" || p.Last().String() == ".Within"
	}, cmp.Ignore())
	if d := cmp.Diff(*packed, *got, exported, ignored, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); d != "" {
		t.Fatal(d)
	}
}

// near checks that scores are those that were packed, within so much, and that those at some places are exact.
func near(t *rapid.T, packed, got messages.List[float32], within float32, exact []int) {
	if got.Len() != packed.Len() {
		t.Fatalf("%d scores, want %d", got.Len(), packed.Len())
	}
	for at, score := range got.All() {
		want := packed.At(at)
		if score != score && want != want {
			continue
		}
		if off := math.Abs(float64(score - want)); !(off <= float64(within)) || off > 0 && slices.Contains(exact, at) {
			t.Fatalf("score %d is %v, want %v within %v", at, score, want, within)
		}
	}
}

// record draws a record. It sets every field, so that one which is not packed is missed.
func record(t *rapid.T) messages.Record {
	var r messages.Record
	fill(t, reflect.ValueOf(&r).Elem())
	n := rapid.IntRange(0, 60).Draw(t, "endpoints")
	var runs []messages.ProfileRun
	for _, run := range r.Decision.Profiles.All() {
		run.Within = 0 // set when a record is unpacked
		if rapid.Bool().Draw(t, "fits") {
			run.Totals = scores(t, n, nil)
			var scorers []messages.ScorerRun
			for _, sc := range run.Scorers.All() {
				sc.Scores = scores(t, n, &run.Totals)
				scorers = append(scorers, sc)
			}
			run.Scorers = messages.TakeList(scorers)
			run.Runner = rapid.IntRange(-1, n).Draw(t, "runner")
			ranked := rapid.SliceOfNDistinct(rapid.Uint32Range(0, uint32(n)), 0, min(n, 5), rapid.ID).Draw(t, "ranked")
			run.Ranked = messages.TakeList(ranked)
		}
		runs = append(runs, run)
	}
	r.Decision.Profiles = messages.TakeList(runs)
	return r
}

// scores draws scores of n endpoints, which mostly leave out those that totals leave out.
func scores(t *rapid.T, n int, totals *messages.List[float32]) messages.List[float32] {
	of := rapid.SampledFrom([]*rapid.Generator[float32]{
		rapid.Float32Range(0, 1), rapid.SampledFrom([]float32{0, 0.25, 1}), rapid.Just[float32](0.5),
		rapid.Float32Range(0, 9),
	}).Draw(t, "kind")
	list := make([]float32, n)
	torn := rapid.IntRange(0, 9).Draw(t, "torn") == 0
	for i := range list {
		switch list[i] = of.Draw(t, "score"); {
		case totals == nil || torn:
			if rapid.IntRange(0, 3).Draw(t, "dropped") == 0 {
				list[i] = -1
			}
		case totals.At(i) < 0:
			list[i] = -1
		}
	}
	return messages.TakeList(list)
}

// lists holds how each type of list is drawn.
var lists = map[reflect.Type]func(*rapid.T) any{}

func init() {
	drawn[messages.RecordEvent]()
	drawn[messages.EndpointID]()
	drawn[messages.ProfileRun]()
	drawn[messages.Outlier]()
	drawn[messages.Stage]()
	drawn[messages.Header]()
	drawn[messages.FilterRun]()
	drawn[messages.ScorerRun]()
	drawn[float32]()
	drawn[uint32]()
	drawn[bool]()
	drawn[string]()
}

func drawn[T any]() {
	lists[reflect.TypeFor[messages.List[T]]()] = func(t *rapid.T) any {
		items := make([]T, rapid.IntRange(0, 5).Draw(t, "items"))
		for i := range items {
			fill(t, reflect.ValueOf(&items[i]).Elem())
		}
		return messages.TakeList(items)
	}
}

// fill draws a value for every field of a struct, in depth.
func fill(t *rapid.T, v reflect.Value) {
	if list := lists[v.Type()]; list != nil {
		v.Set(reflect.ValueOf(list(t)))
		return
	}
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "time"), 0)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.String:
		v.SetString(rapid.SampledFrom([]string{"", "a", "flow", "PickMade", "\xff of some length"}).Draw(t, "text"))
	case reflect.Float32:
		v.SetFloat(float64(rapid.OneOf(rapid.Float32Range(0, 2), rapid.Just[float32](-1),
			rapid.Just(float32(math.NaN()))).Draw(t, "float")))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(math.MinInt32, math.MaxInt64).Draw(t, "int"))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(rapid.Uint64Range(0, 1<<v.Type().Bits()-1).Draw(t, "uint"))
	default:
		t.Fatalf("%v is not drawn", v.Type())
	}
}

// Records whose decisions differ in one name or weight keep their own, however many such shapes there are. What no
// record has any more is not counted.
func TestDecisionsKeepTheirNamesAndWeights(t *testing.T) {
	b := NewBook(40, 1<<20)
	var want []messages.Record
	add := func(change func(*messages.ProfileRun)) {
		r := crowded(messages.RequestID(len(want)), 2, 3, 4)
		run := r.Decision.Profiles.At(0)
		change(&run)
		r.Decision.Profiles = messages.ListOf(run)
		b.End(r)
		want = append(want, r)
	}
	for i := range 8 {
		name, weight := fmt.Sprint("another ", i), float32(i)
		add(func(*messages.ProfileRun) {})
		add(func(p *messages.ProfileRun) { p.Profile = name })
		add(func(p *messages.ProfileRun) { p.Reads = messages.ListOf(name) })
		add(func(p *messages.ProfileRun) { p.Filters = messages.ListOf(messages.FilterRun{Plugin: name}) })
		add(func(p *messages.ProfileRun) {
			scorer := p.Scorers.At(1)
			scorer.Weight = weight
			p.Scorers = messages.ListOf(p.Scorers.At(0), scorer, p.Scorers.At(2))
		})
	}
	got := b.Newest(len(want), nil, all)
	slices.Reverse(got)
	if d := cmp.Diff(want, got, exported, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	for range 40 {
		b.End(messages.Record{})
	}
	left := newShape(&messages.Decision{}).bytes
	if b.shapes.bytes != left {
		t.Errorf("shapes take %d bytes, want %d for the only one that is left", b.shapes.bytes, left)
	}
	last := want[len(want)-1]
	if b.End(last); b.shapes.bytes != left+newShape(&last.Decision).bytes {
		t.Errorf("shapes take %d bytes, want %d for two", b.shapes.bytes, left+newShape(&last.Decision).bytes)
	}
}

// Every level of every width is as near as a record says, and 0 and 1 are exact.
func TestLevelsAreWithinWhatIsSaid(t *testing.T) {
	for width := leastBits; width <= mostBits; width++ {
		list := make([]float32, 4096)
		for i := range list {
			list[i] = float32(i) / float32(len(list)-1)
		}
		p := packer{}
		p.column(&column{coding: byLevel}, messages.TakeList(list), width)
		u := unpacker{from: p.to}
		if got := coding(u.octet()); got != byLevel {
			t.Fatalf("width %d: coding %d", width, got)
		}
		got := u.column(byLevel, messages.TakeList(list), width)
		for i, v := range got {
			if off := math.Abs(float64(v - list[i])); off > float64(within(width)) {
				t.Fatalf("width %d: %v is unpacked as %v, want it within %v", width, list[i], v, within(width))
			}
		}
		if got[0] != 0 || got[len(got)-1] != 1 {
			t.Errorf("width %d: 0 is unpacked as %v, 1 as %v", width, got[0], got[len(got)-1])
		}
	}
}

// A request's end packs its record without an allocation.
func TestEndAllocatesNothing(t *testing.T) {
	b := NewBook(64, 1<<20)
	r := crowded(1, 5, 24, 100)
	for range 200 {
		b.End(r)
	}
	if n := testing.AllocsPerRun(100, func() { b.End(r) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkEnd(b *testing.B) {
	for _, c := range []struct{ filters, scorers, endpoints int }{{2, 4, 10}, {2, 4, 100}, {5, 24, 10}, {5, 24, 100}} {
		b.Run(fmt.Sprintf("%d plugins, %d endpoints", c.filters+c.scorers+1, c.endpoints), func(b *testing.B) {
			book, r := NewBook(4096, 16<<20), crowded(1, c.filters, c.scorers, c.endpoints)
			b.ReportAllocs()
			for b.Loop() {
				book.End(r)
			}
		})
	}
}

// BenchmarkNewest looks for a request that no record is of.
func BenchmarkNewest(b *testing.B) {
	book := NewBook(4096, 16<<20)
	for id := range messages.RequestID(4096) {
		book.End(crowded(id, 2, 4, 10))
	}
	b.ReportAllocs()
	for b.Loop() {
		book.Newest(1, nil, func(r *messages.Record) bool { return r.Request == 9999 })
	}
}
