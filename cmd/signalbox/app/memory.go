package app

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
)

const (
	// gcRoom is how many bytes of garbage may gather between two collections where the heap is small and fills soon.
	// By Go's default it may be as much as is live, so that a small heap under load would be collected many times a
	// second. The memory that this costs does not grow with the heap.
	gcRoom = 64 << 20

	// leastRoom is how many may gather where garbage comes slowly, as that of a thousand pods of which ten change in a
	// second. There collections are rare anyway, and room would be memory that is held for nothing.
	leastRoom = 16 << 20

	// gcEvery is for how long garbage may gather, between these two bounds. A collection takes some 10 ms of a core, so
	// that it costs a percent of one at most, and no more than before under load.
	gcEvery = time.Second
)

// roomyGC sets, after each collection, how much garbage may gather until the next one: room, or as much as the
// collector has to scan. Bodies may be most of what is live, but have no pointers: to let garbage grow as large as
// they are would cost memory and save no work. It ends with ctx. $GOGC wins over this, and the memory limit still
// holds.
func roomyGC(ctx context.Context) {
	if os.Getenv("GOGC") == "" {
		setGC(ctx, collection{percent: 100})
	}
}

// collection is what is known once garbage was collected. The zero time is for the start of the process.
type collection struct {
	percent   int    // in force until the next one
	allocated uint64 // bytes, since the start of the process
	at        time.Time
}

// setGC sets the percentage, and sets it anew after each collection.
func setGC(ctx context.Context, before collection) {
	heap := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}, {Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(heap)
	now := collection{before.percent, heap[2].Value.Uint64(), time.Now()}
	room := uint64(leastRoom)
	if !before.at.IsZero() {
		room = roomFor(now.allocated-before.allocated, now.at.Sub(before.at))
	}
	want := percentFor(heap[0].Value.Uint64(), heap[1].Value.Uint64(), room)
	if want < now.percent-now.percent/10 || want > now.percent+now.percent/10 { // each stops the world for a moment
		debug.SetGCPercent(want)
		now.percent = want
	}
	collected := new(struct{ _ *byte }) // its finalizer runs after the next collection
	runtime.SetFinalizer(collected, func(any) {
		if ctx.Err() == nil {
			setGC(ctx, now)
		}
	})
}

// percentFor returns the percentage of what is live that is this room, or what has to be scanned if that is more.
func percentFor(live, scanned, room uint64) int {
	const most = 400
	if live == 0 {
		return most
	}
	if live > 2*gcRoom {
		room = min(room, gcRoom/2) // a burst is collected late: what is set counts from the next collection on
	}
	return int(min(max(100*max(room, scanned)/live, 5), most))
}

// roomFor returns how much garbage may gather in a process that allocated so much in a time.
func roomFor(allocated uint64, took time.Duration) uint64 {
	inTime := float64(allocated) * float64(gcEvery) / float64(max(took, 1))
	return uint64(min(max(inTime, leastRoom), gcRoom))
}

// cgroupShare is the share of the cgroup's memory limit, in percent, that the Go runtime keeps within. The rest is for
// memory that the runtime does not count, such as the binary's pages. Near the limit the runtime collects garbage more
// often, so that the process is not killed.
const cgroupShare = 90

// limitMemory tells the garbage collector of the memory limit of the cgroup, and logs which limit is in force.
// $GOMEMLIMIT wins.
func limitMemory(log *zap.Logger, fromCgroup memlimit.Provider, held int64) {
	limit, source := debug.SetMemoryLimit(-1), "$GOMEMLIMIT"
	if os.Getenv("GOMEMLIMIT") == "" {
		bytes, err := fromCgroup()
		switch {
		case errors.Is(err, memlimit.ErrNoLimit), errors.Is(err, memlimit.ErrNoCgroup),
			errors.Is(err, memlimit.ErrCgroupsNotSupported):
			log.Info("no memory limit: neither $GOMEMLIMIT nor the cgroup has one")
			return
		case err != nil:
			log.Warn("the memory limit of the cgroup cannot be read: the garbage collector keeps to none",
				zap.Error(err))
			return
		}
		limit, source = int64(min(bytes, 1<<62)/100*cgroupShare), "90 % of the cgroup's"
		debug.SetMemoryLimit(limit)
	}
	if limit == math.MaxInt64 {
		log.Info("no memory limit: $GOMEMLIMIT switches it off")
		return
	}
	log.Info("memory limit of the garbage collector", zap.Int64("bytes", limit), zap.String("source", source))
	if held > limit-gcRoom {
		log.Warn("--max-held-bytes allows for more than the memory limit: large bodies may end the process",
			zap.Int64("max_held_bytes", held),
			zap.Int64("memory_limit", limit))
	}
}

const (
	// How often memory is looked at. What a burst took is given back at the second look after its end.
	memoryLook = 5 * time.Second

	// Below, nothing is given back: it is about what a busy process needs again at once.
	memoryKept = 2 * gcRoom

	// A collection that freed little is repeated after these, though little was allocated meanwhile:
	// bodies may have ended.
	firstRepeat = 10 * time.Second
	lastRepeat  = 5 * time.Minute
)

// giveBack returns memory to the operating system after a burst, until ctx is done. Go itself would do so only some
// time after the next collection, and an idle process has none for two minutes.
func giveBack(ctx context.Context) {
	look := time.NewTicker(memoryLook)
	defer look.Stop()
	idle := idleMemory{repeat: firstRepeat}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-look.C:
			if before := readHeap(); idle.due(now, before) {
				runtime.GC() // pooled buffers outlive the first collection
				debug.FreeOSMemory()
				idle.gaveBack(now, before, readHeap())
			}
		}
	}
}

// heap holds sizes of the Go heap, in bytes.
type heap struct {
	allocated uint64 // since the start of the process
	resident  uint64 // in use, garbage included, or free and not given back to the system
}

func readHeap() heap {
	s := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(s)
	return heap{s[0].Value.Uint64(), s[1].Value.Uint64() + s[2].Value.Uint64() + s[3].Value.Uint64()}
}

// idleMemory decides when memory is given back: when the process holds much, allocates so little that no collection
// would come by itself soon, and has allocated, or waited, enough since the last time for another one to be worth its
// while.
type idleMemory struct {
	seen   uint64        // allocated at the look before
	freed  uint64        // allocated when memory was given back last
	at     time.Time     // when that was
	repeat time.Duration // after which it is worth while again
}

func (i *idleMemory) due(now time.Time, h heap) bool {
	busy := h.allocated-i.seen >= gcRoom
	i.seen = h.allocated
	return !busy && h.resident > memoryKept && (h.allocated-i.freed >= gcRoom || now.Sub(i.at) >= i.repeat)
}

// gaveBack notes what came of it. Where most is in use, the next time is further off.
func (i *idleMemory) gaveBack(now time.Time, before, after heap) {
	i.freed, i.seen, i.at = after.allocated, after.allocated, now
	freedLittle := after.resident+gcRoom/2 > before.resident
	if freedLittle {
		i.repeat = min(2*i.repeat, lastRepeat)
	} else {
		i.repeat = firstRepeat
	}
}
