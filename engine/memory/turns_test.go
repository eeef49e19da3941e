package memory

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// The end of a request can be lost. Its session neither stays for ever nor counts the request for ever.
func TestLostEndsOfTurns(t *testing.T) {
	for name, c := range map[string]struct {
		lasts, after time.Duration
		known        bool
		running      int
	}{
		"it may run":                    {time.Minute, lostAfter, true, 1},
		"it ran too long":               {time.Minute, lostAfter + 1, false, 0},
		"the session counts for longer": {2 * lostAfter, lostAfter + 1, true, 0},
		"the session counts for ever":   {0, lostAfter + 1, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m, h := NewTables(), NewHistory(reader("a"))
			keep(m, start, func(n *Notes) { h.Begin(n, "x", c.lasts) })
			turns, known := h.Of(m.At(start.Add(c.after)), "x")
			if known != c.known || turns.Running != c.running {
				t.Errorf("known %t, %+v; want %t, %d running", known, turns, c.known, c.running)
			}
			keep(m, start.Add(c.after), func(n *Notes) { h.Begin(n, "x", c.lasts) })
			keep(m, start.Add(c.after), func(n *Notes) { h.End(n, "x", c.lasts, messages.Turn{}) })
			if turns, _ = h.Of(m.At(start.Add(c.after)), "x"); turns.Running != c.running {
				t.Errorf("%+v after another request; want %d running", turns, c.running)
			}
		})
	}
}
