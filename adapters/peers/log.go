package peers

import (
	"context"
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/messages"
)

// Log is one access log stream of a proxy. Its methods are called by the goroutine that reads the stream.
type Log struct {
	table  *Table
	host   string
	closed atomic.Bool

	// The goroutine that reads the stream owns these.
	last  *Connection // that the newest entry named; nil = none
	heard bool        // an entry came

	// The table's mutex guards the rest.
	proxy *proxy // nil before the sender has said its name
	spoke bool   // an entry has come
}

// Opened returns the log of a stream's context; nil if it did not come by a server with the table's Credentials.
func (t *Table) Opened(ctx context.Context) *Log {
	if c := Of(ctx); c != nil {
		return &Log{table: t, host: c.host}
	}
	return nil
}

// Identified notes what the proxy calls itself.
func (l *Log) Identified(node, version string) { l.table.identified(l, node, version) }

// Spoke notes an entry, and the connection that its request came on; 0 = it is unknown.
func (l *Log) Spoke(connection messages.ConnectionID) {
	if connection == 0 && l.heard {
		return
	}
	if c := l.last; c != nil && connection == c.id && c.log.Load() == l {
		return // as most often: a worker of Envoy has one connection, and one log
	}
	l.last, l.heard = l.table.spoke(l, connection), true
}

// Gone notes that the stream ended.
func (l *Log) Gone() {
	l.closed.Store(true)
	l.table.logEnded(l)
}
