package pool_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/messages"
)

// world is the pool between proxies that take announcements late or never, and loops that pass on late.
type world struct {
	*announcing
	rt      *rapid.T
	wanted  []messages.Address
	told    []messages.EndpointsAnnounced // all of them; number i+1 stands at i
	taken   uint64                        // by the slowest proxy
	since   map[messages.Address]time.Time
	left    map[messages.Address]time.Time // since when it is not in the snapshot
	stopped map[messages.Address]time.Time // since when no loop is at a snapshot with it, or two minutes after it left
	asked   [2][]messages.SnapshotReplaced // not passed yet, by loop
	picked  map[messages.Address]uint64    // last snapshot with it
	passing [2]uint64                      // snapshot that a loop may still be at
}

// TestProxiesKnowWhatIsPicked plays sets, acknowledgements, barriers and time in any order.
func TestProxiesKnowWhatIsPicked(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{
			announcing: newAnnouncing(t), rt: rt, since: map[messages.Address]time.Time{},
			left:    map[messages.Address]time.Time{},
			stopped: map[messages.Address]time.Time{}, picked: map[messages.Address]uint64{},
		}
		rt.Repeat(map[string]func(*rapid.T){
			"discover": func(rt *rapid.T) {
				w.wanted = rapid.SliceOfNDistinct(rapid.SampledFrom([]messages.Address{a, b, c, "10.0.0.4:1"}), 0, 4,
					rapid.ID).Draw(rt, "set")
				specs := make([]messages.EndpointSpec, 0, len(w.wanted))
				for _, address := range w.wanted {
					specs = append(specs, spec(address))
				}
				w.discover(specs...)
			},
			"restart": func(rt *rapid.T) {
				if es := w.pool.Snapshot().Endpoints; len(es) > 0 {
					w.actor.Tell(messages.EndpointRestarted{Endpoint: rapid.SampledFrom(es).Draw(rt, "endpoint").ID})
				}
			},
			"acknowledge": func(rt *rapid.T) {
				w.take(rapid.Uint64Range(w.taken, uint64(len(w.told))).Draw(rt,
					"number"))
			},
			"pass": func(rt *rapid.T) { w.pass(rapid.IntRange(0, 1).Draw(rt, "loop")) },
			"wait": func(rt *rapid.T) {
				w.actor.Advance(time.Duration(rapid.IntRange(1, 1500).Draw(rt, "ms")) * time.Millisecond)
			},
			"hang": func(rt *rapid.T) {
				w.actor.Advance(time.Duration(rapid.IntRange(30, 60).Draw(rt,
					"s")) * time.Second)
			},
			"": func(*rapid.T) { w.look() },
		})
		w.rest()
	})
}

func (w *world) take(number uint64) {
	w.taken = number
	w.actor.Tell(messages.EndpointsAcknowledged{Number: number})
}

func (w *world) pass(loop int) {
	if len(w.asked[loop]) == 0 {
		return
	}
	m := w.asked[loop][0]
	w.asked[loop] = w.asked[loop][1:]
	w.passing[loop] = max(w.passing[loop], m.Version)
	w.actor.Tell(messages.LoopPassed{Loop: loop, Version: m.Version})
}

// look takes what the proxies were told, and compares it with what is picked.
func (w *world) look() {
	for _, m := range w.proxies.Told() {
		w.told = append(w.told, m.(messages.EndpointsAnnounced))
	}
	for i, l := range w.loops {
		for _, m := range l.Told() {
			w.asked[i] = append(w.asked[i], m.(messages.SnapshotReplaced))
		}
	}
	now, set := w.actor.Clock(), w.pool.Snapshot()
	known := w.known(uint64(len(w.told)))
	for address := range known {
		if _, before := w.since[address]; !before {
			w.since[address] = now
		}
	}
	for address := range w.since {
		if _, still := known[address]; !still {
			delete(w.since, address)
		}
	}
	for _, e := range set.Endpoints {
		w.added(e.Spec.Address, now)
		w.picked[e.Spec.Address] = set.Version
		delete(w.left, e.Spec.Address)
		delete(w.stopped, e.Spec.Address)
	}
	for address, version := range w.picked {
		if version < set.Version && set.ByAddress(address) == nil {
			w.removed(address, version, now)
		}
	}
}

// known returns what an announcement says, with whether it is leaving.
func (w *world) known(number uint64) map[messages.Address]bool {
	all := map[messages.Address]bool{}
	if number > 0 {
		for _, e := range w.told[number-1].Endpoints.All() {
			all[e.Address] = e.Leaving
		}
	}
	return all
}

func (w *world) added(address messages.Address, now time.Time) {
	if leaving, told := w.known(uint64(len(w.told)))[address]; !told || leaving {
		w.rt.Fatalf("%s is picked, and not announced", address)
	}
	if _, has := w.known(w.taken)[address]; !has && now.Sub(w.since[address]) < time.Second {
		w.rt.Fatalf("%s is picked %v after it was announced, and not every proxy has it", address,
			now.Sub(w.since[address]))
	}
}

// removed checks endpoints that have left the snapshot: the proxies know them until two seconds after the last loop has
// passed, and no longer. A loop that takes two minutes hangs, which is noticed within two seconds.
func (w *world) removed(address messages.Address, last uint64, now time.Time) {
	if _, noted := w.left[address]; !noted {
		w.left[address] = now
	}
	hung := w.left[address].Add(2 * time.Minute)
	if _, noted := w.stopped[address]; !noted {
		switch {
		case !now.Before(hung):
			w.stopped[address] = hung
		case slices.Min(w.passing[:]) > last:
			w.stopped[address] = now
		}
	}
	stopped, none := w.stopped[address]
	after, seen := now.Sub(stopped), time.Duration(0)
	if stopped.Equal(hung) {
		seen = 2 * time.Second
	}
	leaving, told := w.known(uint64(len(w.told)))[address]
	switch {
	case leaving && !none:
		w.rt.Fatalf("%s leaves though loops are at snapshots %v, and it stands in %d", address, w.passing, last)
	case !told && !none:
		w.rt.Fatalf("%s is forgotten though loops are at snapshots %v, and it stands in %d", address, w.passing, last)
	case !told && after < 2*time.Second:
		w.rt.Fatalf("%s is forgotten %v after its last pick", address, after)
	case told && none && !leaving && !slices.Contains(w.wanted, address) && after >= seen:
		w.rt.Fatalf("%s is picked no more, and does not leave", address)
	case leaving && after >= 2*time.Second+seen:
		w.rt.Fatalf("%s is known %v after its last pick", address, after)
	}
}

// rest lets everything arrive: then exactly what is wanted is picked, and known.
func (w *world) rest() {
	for range 3 {
		w.look()
		for i := range w.asked {
			for len(w.asked[i]) > 0 {
				w.pass(i)
			}
		}
		w.look()
		w.take(uint64(len(w.told)))
		w.actor.Advance(2 * time.Second)
	}
	w.look()
	var picked, known []messages.Address
	for _, e := range w.pool.Snapshot().Endpoints {
		picked = append(picked, e.Spec.Address)
	}
	for address, leaving := range w.known(uint64(len(w.told))) {
		if !leaving {
			known = append(known, address)
		}
	}
	slices.Sort(known)
	slices.Sort(w.wanted)
	if slices.Sort(picked); !slices.Equal(picked, w.wanted) || !slices.Equal(known, w.wanted) ||
		len(w.known(uint64(len(w.told)))) != len(known) {
		w.rt.Fatalf("wanted %v, picked %v, announced %v", w.wanted, picked, w.told[len(w.told)-1])
	}
}
