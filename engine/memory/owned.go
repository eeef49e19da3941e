package memory

import (
	"math/bits"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

// Sessions is a plugin's own table from sessions to endpoints. Plugins of other names cannot reach it, and it outlives
// a configuration in which the plugin keeps its name. The zero Sessions is of no plugin.
type Sessions struct{ owner uint64 }

// NewSessions declares a table of sessions. A plugin calls it in Declare.
func NewSessions(r *attributes.Reader) Sessions { return Sessions{ownerOf(r)} }

// Endpoint returns the endpoint of a session; false = the session is new, has expired, or made way.
func (s Sessions) Endpoint(v View, session string) (messages.EndpointID, bool) {
	e := v.find(messages.SessionTable, s.key(session))
	if e == nil {
		return messages.EndpointID{}, false
	}
	return e.value, true
}

// Keep binds a session to an endpoint, for a time that begins anew.
func (s Sessions) Keep(n *Notes, session string, at messages.EndpointID, lasts time.Duration) {
	n.list = append(n.list, messages.Kept{
		Table: messages.SessionTable, Key: s.key(session), Endpoint: at, For: lasts,
	})
}

func (s Sessions) key(session string) uint64 { return max(xxhash.Sum64String(session)^s.owner, 1) }

// Uses is a plugin's own order of endpoints, by what the plugin counts as a use of one. Plugins of other names cannot
// reach it, and it outlives a configuration in which the plugin keeps its name. The zero Uses is of no plugin.
type Uses struct{ owner uint64 }

// NewUses declares an order of endpoints. A plugin calls it in Declare.
func NewUses(r *attributes.Reader) Uses { return Uses{ownerOf(r)} }

// Last returns a number that is the larger the later the endpoint was used; 0 = it never was, or that was forgotten.
func (u Uses) Last(v View, of messages.EndpointID) uint64 {
	if e := v.find(messages.UseTable, u.key(of)); e != nil && e.value == of {
		return e.use
	}
	return 0
}

// Keep makes an endpoint the most recently used one.
func (u Uses) Keep(n *Notes, of messages.EndpointID) {
	n.list = append(n.list, messages.Kept{Table: messages.UseTable, Key: u.key(of), Endpoint: of})
}

func (u Uses) key(of messages.EndpointID) uint64 {
	const odd = 0x9E3779B97F4A7C15
	mixed := (uint64(of.Generation)<<32 | uint64(of.Slot)) * odd
	return max((mixed^mixed>>29)*odd^u.owner, 1)
}

// ownerOf returns the hash of a plugin's name, turned so that it differs from that of a session with the same name.
func ownerOf(r *attributes.Reader) uint64 { return bits.RotateLeft64(xxhash.Sum64String(r.Name()), 29) }

// Notes collects what plugins keep of one request.
type Notes struct{ list []messages.Kept }

// Take returns what was collected. The notes must not be used any more.
func (n *Notes) Take() messages.List[messages.Kept] { return messages.TakeList(n.list) }
