package memory

import (
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

// mostItems is how many media are kept at most, of all endpoints and plugins together: 26 MiB.
const mostItems = 1 << 21

// Media is what a plugin knows of the images, sounds and files that endpoints were sent. Plugins of other names cannot
// reach it, and it outlives a configuration in which the plugin keeps its name. The zero Media is of no plugin.
type Media struct{ owner uint64 }

// NewMedia declares what is known of media. A plugin calls it in Declare.
func NewMedia(r *attributes.Reader) Media { return Media{ownerOf(r)} }

// Of returns what an endpoint was sent, to be asked soon.
func (m Media) Of(v View, endpoint messages.EndpointID) Items {
	if v.tables == nil {
		return Items{}
	}
	return Items{v.tables.media.of(m.owner, endpoint)}
}

// Keep notes that an endpoint was sent an item, by its hash. Of the endpoint as many are kept as most says, rounded up
// to a multiple of 8; of those in one bucket the least recently sent one makes way.
func (m Media) Keep(n *Notes, to messages.EndpointID, item uint64, most int) {
	n.list = append(n.list, messages.Kept{
		Table: messages.MediaTable, Key: max(item, 1), Endpoint: to, Owner: m.owner, Most: most,
	})
}

// Items are those of one endpoint. The zero Items has none.
type Items struct{ of *items }

// Has reports whether the endpoint was sent an item, and it has not made way. It does not allocate.
func (i Items) Has(item uint64) bool { return i.of != nil && i.of.has(max(item, 1)) }

// items is a set of keys of a fixed size.
type items struct{ buckets []itemBucket }

// itemBucket has the items of some keys.
type itemBucket struct {
	keys [ways]atomic.Uint64 // 0 = free
	last [ways]uint32        // the writer's: the order of their uses
	uses uint32              // the writer's
}

func newItems(most int) *items { return &items{make([]itemBucket, buckets(most))} }

func buckets(most int) int { return (most + ways - 1) / ways }

func (i *items) bucket(key uint64) *itemBucket { return &i.buckets[key%uint64(len(i.buckets))] }

func (i *items) has(key uint64) bool {
	b := i.bucket(key)
	for at := range b.keys {
		if b.keys[at].Load() == key {
			return true
		}
	}
	return false
}

// put makes a key the last used one of its bucket. It returns the key that stood at its place: itself, or 0 if that was
// free.
func (i *items) put(key uint64) (before uint64) {
	b := i.bucket(key)
	at := 0
	for j := range b.keys {
		if b.keys[j].Load() == key {
			at = j
			break
		}
		if b.last[j] < b.last[at] {
			at = j
		}
	}
	b.uses++
	before, b.last[at] = b.keys[at].Load(), b.uses
	b.keys[at].Store(key)
	return before
}

// keepMedia enters an item.
func (m *Tables) keepMedia(k *messages.Kept, configuration uint64) {
	size := buckets(k.Most) * ways
	at := m.media.take(place{k.Owner, k.Endpoint}, size, configuration, func() *items { return newItems(k.Most) })
	if at == nil {
		return
	}
	switch at.has.put(k.Key) {
	case k.Key:
	case 0:
		at.entries++
		m.media.stats.Entries++
	default:
		m.media.stats.Evicted++
	}
}
