package memory

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

var (
	start = time.Unix(1_800_000_000, 0)
	one   = messages.EndpointID{Slot: 1, Generation: 1}
	newer = messages.EndpointID{Slot: 1, Generation: 2}
	two   = messages.EndpointID{Slot: 2, Generation: 1}
)

func reader(name string) *attributes.Reader { return new(attributes.Binding).Reader(name) }

// keep has tables keep what notes have.
func keep(m *Tables, now time.Time, note func(*Notes)) {
	var n Notes
	note(&n)
	for _, k := range n.Take().All() {
		m.Keep(k, 1, now)
	}
}

func TestSessions(t *testing.T) {
	m, s := NewTables(), NewSessions(reader("a"))
	at := func(session string, after time.Duration) messages.EndpointID {
		e, known := s.Endpoint(m.At(start.Add(after)), session)
		if known != (e != messages.EndpointID{}) {
			t.Errorf("session %s: %v, known %t", session, e, known)
		}
		return e
	}
	bind := func(session string, to messages.EndpointID, after, lasts time.Duration) {
		keep(m, start.Add(after), func(n *Notes) { s.Keep(n, session, to, lasts) })
	}
	none := messages.EndpointID{}
	bind("x", one, 0, time.Second)
	bind("", two, 0, time.Second)
	for _, c := range []struct {
		session string
		after   time.Duration
		want    messages.EndpointID
	}{{"x", time.Second, one}, {"x", time.Second + 1, none}, {"y", 0, none}, {"", 0, two}} {
		if got := at(c.session, c.after); got != c.want {
			t.Errorf("session %q after %v: %v, want %v", c.session, c.after, got, c.want)
		}
	}
	bind("x", two, time.Second, 0)
	if got := at("x", 1000*time.Hour); got != two {
		t.Errorf("a session without an end: %v, want %v", got, two)
	}
	if got := m.Stats(messages.SessionTable); got != (Stats{Entries: 2}) && got != (Stats{Entries: 1}) {
		t.Errorf("%+v, want one entry, or that which expired beside it", got)
	}
	if _, known := s.Endpoint(View{}, "x"); known {
		t.Error("an empty view knows a session")
	}
	m.Reset()
	if got := at("x", 0); got != none || m.Stats(messages.SessionTable).Entries != 0 {
		t.Errorf("after a reset: %v, %+v", got, m.Stats(messages.SessionTable))
	}
}

func TestUses(t *testing.T) {
	m, u := NewTables(), NewUses(reader("a"))
	last := func(e messages.EndpointID) uint64 { return u.Last(m.At(start), e) }
	use := func(e messages.EndpointID) { keep(m, start, func(n *Notes) { u.Keep(n, e) }) }
	use(one)
	use(two)
	if a, b := last(one), last(two); a == 0 || a >= b || last(newer) != 0 {
		t.Errorf("uses %d and %d, and %d of the incarnation after; want them rising, and 0", a, b, last(newer))
	}
	use(one)
	if a, b := last(one), last(two); a <= b {
		t.Errorf("uses %d and %d, want the first one last", a, b)
	}
}

// Plugins have tables of their own, also those of one type, and of any table.
func TestPluginsReachTheirOwnAlone(t *testing.T) {
	m := NewTables()
	a, b := NewSessions(reader("a")), NewSessions(reader("b"))
	keep(m, start, func(n *Notes) { a.Keep(n, "x", one, 0) })
	keep(m, start, func(n *Notes) { b.Keep(n, "x", two, 0) })
	atA, _ := a.Endpoint(m.At(start), "x")
	atB, _ := b.Endpoint(m.At(start), "x")
	if atA != one || atB != two {
		t.Errorf("sessions at %v and %v, want %v and %v", atA, atB, one, two)
	}
	ua, ub := NewUses(reader("a")), NewUses(reader("b"))
	keep(m, start, func(n *Notes) { ua.Keep(n, one) })
	if ua.Last(m.At(start), one) == 0 || ub.Last(m.At(start), one) != 0 {
		t.Error("a plugin sees the uses of another, or not its own")
	}
	again := NewSessions(reader("a"))
	if at, _ := again.Endpoint(m.At(start), "x"); at != one {
		t.Errorf("the plugin of the next configuration finds %v, want %v", at, one)
	}
}

// A table never has more than it was made for. Of the keys of a bucket the least recently used goes.
func TestTablesAreBounded(t *testing.T) {
	m, s := NewTables(), NewSessions(reader("a"))
	entered := 3 * mostSessions
	for i := range entered {
		keep(m, start, func(n *Notes) { s.Keep(n, strconv.Itoa(i), one, time.Minute) })
		if _, known := s.Endpoint(m.At(start), strconv.Itoa(i)); !known {
			t.Fatalf("session %d made way for itself", i)
		}
	}
	got := m.Stats(messages.SessionTable)
	if got.Entries > mostSessions || got.Entries < mostSessions*9/10 ||
		got.Entries+int(got.Evicted) != entered {
		t.Errorf("of %d sessions: %+v, want at most %d, and all others evicted", entered, got, mostSessions)
	}
	var b Table[messages.EndpointID]
	b.size = 1
	for key := uint64(1); key <= ways; key++ {
		b.put(key, one, time.Time{}, start)
	}
	b.put(1, one, time.Time{}, start)
	b.put(100, two, time.Time{}, start)
	if b.find(1) == nil || b.find(2) != nil || b.find(100) == nil {
		t.Error("of a full bucket the least recently used key has not made way")
	}
}

// What has expired makes way first, and gives its memory back while others come.
func TestExpiredMakeWay(t *testing.T) {
	b := Table[messages.EndpointID]{size: 4}
	later := start.Add(time.Minute)
	for key := uint64(1); key <= 4*ways; key++ {
		until := time.Time{}
		if key%8 == 5 { // in bucket 1
			until = start
		}
		b.put(key, one, until, start)
	}
	before := b.stats
	b.put(101, two, time.Time{}, later) // in bucket 1
	if b.find(101) == nil || b.stats.Evicted != before.Evicted {
		t.Errorf("%+v, want an expired entry to have made way", b.stats)
	}
	c := Table[messages.EndpointID]{size: 4}
	for key := uint64(1); key <= 8; key++ {
		c.put(key, one, start, start)
	}
	for range 4 {
		c.put(100, two, time.Time{}, later)
	}
	if c.stats.Entries != 1 {
		t.Errorf("%d entries are left, want 1", c.stats.Entries)
	}
}

// Readers see the endpoint of their own key or none, whatever the writer does meanwhile.
// A reader may come between the two writes by which a place is given to another key.
func TestFindBetweenTwoWrites(t *testing.T) {
	table := Table[messages.EndpointID]{size: 2}
	table.put(4, one, start, time.Time{})
	b := &(*table.buckets.Load())[0]
	at := b.place(4)
	b.keys[at].Store(6)
	if e := table.find(6); e != nil {
		t.Errorf("key 6 has the entry of key %d", e.key)
	}
}

func TestReadersSeeTheirOwnKeys(t *testing.T) {
	table := Table[messages.EndpointID]{size: 2}
	ended := make(chan struct{})
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() { readOwn(t, &table, ended) })
	}
	for round := range 20_000 {
		for key := uint64(1); key < 64; key++ {
			at := messages.EndpointID{Slot: uint32(key), Generation: 1}
			table.put(key, at, start.Add(time.Duration(round+int(key)%3)), start.Add(time.Duration(round)))
		}
		if round%100 == 99 {
			table.reset()
		}
	}
	close(ended)
	wait.Wait()
}

// readOwn looks keys up until ended is closed. The endpoint of each has its slot.
func readOwn(t *testing.T, table *Table[messages.EndpointID], ended <-chan struct{}) {
	for {
		for key := uint64(1); key < 64; key++ {
			if e := table.find(key); e != nil && uint64(e.value.Slot) != key {
				t.Errorf("key %d has the endpoint of %d", key, e.value.Slot)
			}
		}
		select {
		case <-ended:
			return
		default:
		}
	}
}

func TestLookUpDoesNotAllocate(t *testing.T) {
	m, s, u := NewTables(), NewSessions(reader("a")), NewUses(reader("a"))
	keep(m, start, func(n *Notes) { s.Keep(n, "x", one, 0); u.Keep(n, one) })
	n := testing.AllocsPerRun(100, func() {
		s.Endpoint(m.At(start), "x")
		u.Last(m.At(start), one)
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// Endpoints and sessions of one plugin spread over the buckets.
func TestKeysSpread(t *testing.T) {
	u, counts := NewUses(reader("a")), make([]int, 256)
	for slot := range 4096 {
		counts[u.key(messages.EndpointID{Slot: uint32(slot), Generation: uint32(slot/7 + 1)})%256]++
	}
	if most := slices.Max(counts); most > 48 {
		t.Errorf("a bucket of 256 has %d of 4096 keys, want about 16: %s", most, fmt.Sprint(counts))
	}
}

func BenchmarkSessionEndpoint(b *testing.B) {
	m, s := NewTables(), NewSessions(reader("a"))
	for i := range 100_000 {
		keep(m, start, func(n *Notes) { s.Keep(n, strconv.Itoa(i), one, time.Minute) })
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Endpoint(m.At(start), "4711")
	}
}
