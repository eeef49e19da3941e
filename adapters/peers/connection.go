package peers

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Connection is one gRPC connection of a proxy. Whether its access log comes is one of four states:
//
//	unasked ──a response outlives its stream──► awaited ──an entry of one of its requests──► seen
//	                                              │ ▲                                        │ ▲
//	              10 s pass, and no log of its    │ └──────────that entry's log ends─────────┘ │
//	              address that is open has spoken │                                            │
//	                                              ▼                                            │
//	                                           missing ──an entry of one of its requests───────┘
//
// The log of another connection from the same address counts for it while that is open, and no entry is missing: an
// Envoy has one for each of its workers, and what one of them sends, the others will. A proxy without a log that
// shares the address is taken for one with it.
type Connection struct {
	table *Table
	id    messages.ConnectionID
	name  string // id in decimal
	host  string // address of the proxy, without its port

	light, full atomic.Uint64       // requests, by the lane of their response
	log         atomic.Pointer[Log] // that had the newest entry of one of its requests; nil = none

	// The table's mutex guards the rest.
	proxy   *proxy      // nil before its first request, and after its end
	awaited *time.Timer // runs while entries are awaited
	waits   int         // how many times they were
	missing bool
	ended   bool
}

// entryWithin is how long the first entry of a connection's requests may take: longer than the interval of
// intermediate entries in the shipped files.
const entryWithin = 10 * time.Second

// ID returns the connection's number.
func (c *Connection) ID() messages.ConnectionID { return c.id }

// Name returns the connection's number as the access log brings it back.
func (c *Connection) Name() string { return c.name }

// Asked counts a request. shown says that the body of its response will be shown to its stream.
func (c *Connection) Asked(shown bool) {
	count := &c.light
	if shown {
		count = &c.full
	}
	if count.Add(1) == 1 {
		c.table.asked(c)
	}
}

// Log returns what has come of the access log, and awaits it.
func (c *Connection) Log() messages.LogState {
	if c.seen() {
		return messages.LogSeen
	}
	return c.table.await(c)
}

// seen reports whether the log that told of this connection's requests goes on.
func (c *Connection) seen() bool {
	l := c.log.Load()
	return l != nil && !l.closed.Load()
}

func (c *Connection) end() { c.table.disconnected(c) }

// lanes returns the lanes of so many requests; "" = there were none.
func lanes(light, full uint64) string {
	switch {
	case light > 0 && full > 0:
		return "light+full"
	case light > 0:
		return "light"
	case full > 0:
		return "full"
	}
	return ""
}

func connectionName(id messages.ConnectionID) string { return strconv.FormatUint(uint64(id), 10) }
