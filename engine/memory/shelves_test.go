package memory

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// span is of the default observer, but for few times.
var span = messages.FirstTokenSpan{
	MaxAge: time.Minute, Most: 4, Least: 1, Low: 25, Typical: 50, Bucket: time.Minute, Buckets: 2,
}

// took has an endpoint show a time.
func (f FirstTokens) took(m *Tables, at messages.EndpointID, took time.Duration, over messages.FirstTokenSpan) {
	keep(m, start, func(n *Notes) { f.Keep(n, at, messages.FirstToken{Took: took, Over: over}) })
}

// An incarnation has what it has shown itself, and one that is late shows nothing.
func TestShelvesAreOfIncarnations(t *testing.T) {
	m, f := NewTables(), NewFirstTokens(reader("a"))
	floor := func(of messages.EndpointID) float64 {
		sum, known := f.Of(m.At(start), of)
		if !known {
			return -1
		}
		return sum.Floor
	}
	f.took(m, one, time.Second, span)
	f.took(m, newer, 2*time.Second, span)
	f.took(m, two, 4*time.Second, span)
	f.took(m, one, 3*time.Second, span)
	if got := []float64{floor(one), floor(newer), floor(two)}; !slices.Equal(got, []float64{-1, 2, 4}) {
		t.Errorf("floors %v, want none of the incarnation before, 2 and 4", got)
	}
	if got := m.Stats(messages.FirstTokenTable); got != (Stats{Entries: 2, Evicted: 1}) {
		t.Errorf("%+v, want 2 entries and one that made way", got)
	}
	other := NewFirstTokens(reader("b"))
	if _, known := other.Of(m.At(start), two); known {
		t.Error("another plugin knows it")
	}
	m.Reset()
	if floor(two) != -1 || m.Stats(messages.FirstTokenTable).Entries != 0 || m.firsts.size != 0 {
		t.Errorf("after a reset: %v, size %d", floor(two), m.firsts.size)
	}
	if _, known := f.Of(View{}, one); known {
		t.Error("an empty view knows it")
	}
}

// Other settings begin anew, and all shelves together are bounded: those go that were used the longest ago.
func TestShelvesAreBounded(t *testing.T) {
	m, f := NewTables(), NewFirstTokens(reader("a"))
	m.firsts.most = 12
	at := func(slot uint32) messages.EndpointID { return messages.EndpointID{Slot: slot, Generation: 1} }
	for slot := range uint32(3) {
		f.took(m, at(slot), time.Second, span)
	}
	f.took(m, at(0), time.Second, span)
	f.took(m, at(3), time.Second, span)
	var known []uint32
	for slot := range uint32(4) {
		if _, here := f.Of(m.At(start), at(slot)); here {
			known = append(known, slot)
		}
	}
	if !slices.Equal(known, []uint32{0, 2, 3}) || m.firsts.size != 12 {
		t.Errorf("known are %v in a size of %d, want 0, 2 and 3 in 12", known, m.firsts.size)
	}
	larger := span
	larger.Most, larger.Least = 6, 2
	f.took(m, at(3), time.Second, larger)
	if sum, _ := f.Of(m.At(start), at(3)); sum.Recent != 1 || m.firsts.size > 12 {
		t.Errorf("%d times in a size of %d, want the newest alone in 12 at most", sum.Recent, m.firsts.size)
	}
}

// While requests of the configuration before run beside those of the newest, neither drops what the other keeps, and
// the newest says how much is kept and how it is summed up.
func TestShelvesAreOfTheNewestConfiguration(t *testing.T) {
	m, f, x := NewTables(), NewFirstTokens(reader("a")), NewMedia(reader("a"))
	before, now := span, span
	now.Most, now.Low = 6, 50
	for i, configuration := range []uint64{1, 2, 1, 2, 1, 3, 2} {
		over, most := before, 8
		if configuration > 1 {
			over, most = now, 16
		}
		var n Notes
		f.Keep(&n, one, messages.FirstToken{Took: time.Second, Over: over})
		x.Keep(&n, one, uint64(i+1), most)
		for _, k := range n.list {
			m.Keep(k, configuration, start)
		}
	}
	sum, _ := f.Of(m.At(start), one)
	if sum.Recent != 6 || sum.over != now {
		t.Errorf("%d times over %+v, want all 6 since the second configuration over its span", sum.Recent, sum.over)
	}
	for item := range uint64(6) {
		if !x.Of(m.At(start), one).Has(item + 2) {
			t.Errorf("item %d of 2 to 7 is gone", item+2)
		}
	}
	if a, b := m.firsts.size, m.media.size; a != 6 || b != 16 {
		t.Errorf("sizes %d and %d, want 6 and 16", a, b)
	}
}

// The floor follows an endpoint that has become slower or faster, once as many buckets were so as count; one slow
// bucket does not move it.
func TestFloorFollowsTheEndpoint(t *testing.T) {
	m, f := NewTables(), NewFirstTokens(reader("a"))
	over := span
	over.Buckets = 3
	for i, c := range []struct{ took, want float64 }{
		{1, 1}, {1, 1}, {5, 1}, {1, 1}, // minutes, of which the last is not over
		{4, 1}, {4, 1}, {4, 1}, {4, 4}, {4, 4},
		{2, 4}, {2, 2},
	} {
		at := start.Add(time.Duration(i) * over.Bucket)
		keep(m, at, func(n *Notes) {
			f.Keep(n, one, messages.FirstToken{Took: time.Duration(c.took * float64(time.Second)), Over: over})
		})
		if sum, _ := f.Of(m.At(at), one); sum.Floor != c.want {
			t.Errorf("after minute %d, of %v s, the floor is %v, want %v", i, c.took, sum.Floor, c.want)
		}
	}
}

func TestMedia(t *testing.T) {
	m, x := NewTables(), NewMedia(reader("a"))
	send := func(to messages.EndpointID, items ...uint64) {
		for _, item := range items {
			keep(m, start, func(n *Notes) { x.Keep(n, to, item, 8) })
		}
	}
	has := func(of messages.EndpointID) (all []uint64) {
		for item := range uint64(20) {
			if x.Of(m.At(start), of).Has(item) {
				all = append(all, item)
			}
		}
		return all
	}
	send(one, 2, 3, 4, 5, 6, 7, 8, 9)
	send(one, 2, 10) // 3 was sent the longest ago
	if got := has(one); !slices.Equal(got, []uint64{2, 4, 5, 6, 7, 8, 9, 10}) {
		t.Errorf("%v are kept, want all but 3", got)
	}
	if got := m.Stats(messages.MediaTable); got != (Stats{Entries: 8, Evicted: 1}) {
		t.Errorf("%+v, want 8 entries, and 1 that made way", got)
	}
	send(two, 0)
	if a, b := has(two), has(newer); !slices.Equal(a, []uint64{0, 1}) || b != nil { // no key is 0
		t.Errorf("%v and %v are kept, want 0, which is the same as 1, and nothing", a, b)
	}
	if x.Of(View{}, one).Has(2) || NewMedia(reader("b")).Of(m.At(start), one).Has(2) {
		t.Error("an empty view, or another plugin, has it")
	}
	send(newer, 2)
	if a, b := has(one), has(newer); a != nil || len(b) != 1 {
		t.Errorf("%v and %v are kept, want nothing of the incarnation before", a, b)
	}
}

// Readers see what was there at one time.
func TestShelvesAreReadWhileTheyAreWritten(t *testing.T) {
	m, f, x := NewTables(), NewFirstTokens(reader("a")), NewMedia(reader("a"))
	ended := make(chan struct{})
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for {
				sum, known := f.Of(m.At(start), one)
				if known && sum.Low != sum.Typical {
					t.Errorf("of equal times %v and %v are percentiles", sum.Low, sum.Typical)
				}
				x.Of(m.At(start), one).Has(7)
				select {
				case <-ended:
					return
				default:
				}
			}
		})
	}
	for i := range 20_000 {
		f.took(m, one, time.Second, span)
		keep(m, start, func(n *Notes) { x.Keep(n, one, uint64(i%100), 16) })
		if i%5_000 == 0 {
			m.Reset()
		}
	}
	close(ended)
	wait.Wait()
}
