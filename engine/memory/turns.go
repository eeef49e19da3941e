package memory

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

// Turns is what the requests of a session have been so far. It never changes.
type Turns struct {
	First, Last  time.Time // picks
	Taken        int       // requests that were picked for
	Running      int       // of those, not ended
	Completed    int       // of those, ended with a whole answer
	InputTokens  int64     // of completed ones
	OutputTokens int64     // likewise
}

// History is a plugin's own table from sessions to their turns. Plugins of other names cannot reach it, and it outlives
// a configuration in which the plugin keeps its name. The zero History is of no plugin.
type History struct{ owner uint64 }

// NewHistory declares a table of turns. A plugin calls it in Declare.
func NewHistory(r *attributes.Reader) History { return History{ownerOf(r)} }

// Of returns the turns of a session; false = the session is new, has expired, or made way.
func (h History) Of(v View, session string) (Turns, bool) {
	if v.tables == nil {
		return Turns{}, false
	}
	return v.tables.turnsOf(h.key(session), v.now)
}

// Begin counts a request of a session. The session expires so long after its newest request, unless one runs; 0 =
// never.
func (h History) Begin(n *Notes, session string, lasts time.Duration) {
	n.list = append(n.list, messages.Kept{Table: messages.TurnTable, Key: h.key(session), For: lasts})
}

// End counts the end of a request that Begin has counted.
func (h History) End(n *Notes, session string, lasts time.Duration, how messages.Turn) {
	how.Ends = true
	n.list = append(n.list, messages.Kept{Table: messages.TurnTable, Key: h.key(session), For: lasts, Turn: how})
}

func (h History) key(session string) uint64 { return max(xxhash.Sum64String(session)^h.owner, 1) }

// lostAfter is how long after the newest request of a session none of its requests runs any more, whatever was told:
// ends are lost with messages for which the writer has no room.
const lostAfter = 24 * time.Hour

func (m *Tables) turnsOf(key uint64, now time.Time) (t Turns, known bool) {
	t, known = m.turns.live(key, now)
	if now.Sub(t.Last) > lostAfter {
		t.Running = 0
	}
	return t, known
}

// keepTurn enters a turn. An end of which no begin is known is none of this table.
func (m *Tables) keepTurn(k *messages.Kept, until, now time.Time) {
	t, known := m.turnsOf(k.Key, now)
	switch {
	case !k.Turn.Ends:
		if !known {
			t.First = now
		}
		t.Last = now
		t.Taken++
		t.Running++
	case !known || t.Running == 0:
		return
	default:
		t.Running--
		if k.Turn.Completed {
			t.Completed++
			t.InputTokens += k.Turn.InputTokens
			t.OutputTokens += k.Turn.OutputTokens
		}
	}
	switch {
	case k.For > 0 && t.Running > 0:
		until = t.Last.Add(max(k.For, lostAfter))
	case k.For > 0:
		until = t.Last.Add(k.For)
	}
	m.turns.put(k.Key, t, until, now)
}
