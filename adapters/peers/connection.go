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
// While the log of another connection from the same address is open, it counts for this connection too, and no entry
// counts as missing: an Envoy has a log for each of its workers, and if one worker sends entries the others will. A
// proxy without a log is therefore taken for one with a log if it shares the address of such a proxy.
type Connection struct {
	table *Table
	id    messages.ConnectionID
	name  string // id in decimal
	host  string // address of the proxy, without its port

	light, full atomic.Uint64       // requests, by the lane of their response
	log         atomic.Pointer[Log] // that sent the newest entry of one of its requests; nil = none did

	// The table's mutex guards the rest.
	proxy   *proxy      // nil before its first request, and after its end
	awaited *time.Timer // runs while entries are awaited
	waits   int         // how many times entries were awaited
	missing bool
	ended   bool
}

// entryWithin is how long the first entry of a connection's requests may take: longer than the interval of
// intermediate entries in the shipped files.
const entryWithin = 10 * time.Second

// ID returns the connection's number.
func (c *Connection) ID() messages.ConnectionID { return c.id }

// Name returns the connection's number in the form that the access log brings back.
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

// Log returns what has come of the access log, and begins to wait for it if nothing has.
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

// lanes returns the lanes that these numbers of requests came in; "" = there were none.
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
