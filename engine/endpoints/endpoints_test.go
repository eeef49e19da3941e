package endpoints

import (
	"testing"
	"time"
	"unsafe"

	"github.com/signalbox-epp/signalbox/messages"
)

func TestFreshness(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		sample    *Sample
		age       time.Duration
		threshold time.Duration
		want      bool
	}{
		"none":                 {nil, 0, time.Hour, false},
		"within the threshold": {&Sample{At: at}, 5 * time.Second, 5 * time.Second, true},
		"beyond the threshold": {&Sample{At: at}, 5*time.Second + 1, 5 * time.Second, false},
		"within three intervals": {&Sample{At: at, Interval: 4 * time.Second}, 12 * time.Second, 5 * time.Second,
			true},
		"beyond three intervals": {&Sample{At: at, Interval: 4 * time.Second}, 12*time.Second + 1, 5 * time.Second,
			false},
		"of a scrape still to begin": {&Sample{At: at}, -time.Second, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.sample.Fresh(at.Add(c.age), c.threshold); got != c.want {
				t.Errorf("Fresh %v after its scrape, threshold %v = %t, want %t", c.age, c.threshold, got, c.want)
			}
		})
	}
}

func TestFreshUntilOfPages(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		page Page
		want time.Time
	}{
		"without an answer": {Page{Interval: time.Hour}, time.Time{}},
		"threshold":         {Page{At: at, Interval: time.Second}, at.Add(5 * time.Second)},
		"intervals":         {Page{At: at, Interval: 4 * time.Second}, at.Add(12 * time.Second)},
		"sooner, as told": {Page{At: at, Interval: 4 * time.Second, Expires: at.Add(time.Second)},
			at.Add(time.Second)},
		"later, as told": {Page{At: at, Expires: at.Add(time.Hour)}, at.Add(time.Hour)},
	} {
		if got := c.page.FreshUntil(5 * time.Second); !got.Equal(c.want) {
			t.Errorf("%s: fresh until %v, want %v", name, got, c.want)
		}
	}
}

func TestSnapshotFindsAndCounts(t *testing.T) {
	none := NewSnapshot(0, nil)
	if none.Slots() != 0 || none.ByAddress("a") != nil {
		t.Error("an empty snapshot has something")
	}
	a := New(messages.EndpointID{Slot: 6, Generation: 2}, messages.EndpointSpec{
		Address: "a", Labels: messages.MapOf(map[string]string{"k": "v"}),
	})
	s := NewSnapshot(3, []*Endpoint{a, New(messages.EndpointID{Slot: 1, Generation: 3},
		messages.EndpointSpec{Address: "b"})})
	if s.Slots() != 7 || s.ByAddress("a") != a || s.ByAddress("c") != nil || a.Labels["k"] != "v" || a.Sample() != nil {
		t.Errorf("slots %d, a %v", s.Slots(), s.ByAddress("a"))
	}
}

func TestPoolKeepsNamesOfWhatIsGone(t *testing.T) {
	p := NewPublished()
	id := messages.EndpointID{Slot: 0, Generation: 1}
	if p.Snapshot() == nil || p.Address(id) != "" {
		t.Error("a new pool has no snapshot, or knows an address")
	}
	Publisher{p}.Publish(NewSnapshot(1, nil), map[messages.EndpointID]messages.Address{id: "a"})
	if p.Address(id) != "a" || p.Snapshot().Version != 1 {
		t.Errorf("version %d, address %q", p.Snapshot().Version, p.Address(id))
	}
	if got := p.Incarnations("a"); len(got) != 1 || got[0] != id || len(p.Incarnations("b")) != 0 {
		t.Errorf("incarnations of a are %v, want %v; of b %v, want none", got, id, p.Incarnations("b"))
	}
}

func TestLoadHasACacheLineOfItsOwn(t *testing.T) {
	var l load
	first, last := unsafe.Offsetof(l.word), unsafe.Offsetof(l.tokens)+unsafe.Sizeof(l.tokens)
	if first < 64 || unsafe.Sizeof(l)-last < 40 || last-first > 64 {
		t.Errorf("hot words from %d to %d of %d bytes", first, last, unsafe.Sizeof(l))
	}
}
