package app

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// httpPatience is how long a request to the metrics port may take to come, and its answer to go, and how long a
	// connection may be idle: longer than profiles take and scrapers pause.
	httpPatience = 2 * time.Minute
	// mostHTTP is how many connections an address of the metrics port has at most.
	mostHTTP = 512
)

// bounded is a listener that closes at once what comes while as many connections as it may have are open.
type bounded struct {
	net.Listener
	open atomic.Int64
}

// Accept returns the next connection for which there is room.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.open.Add(1) <= mostHTTP {
			return &boundedConn{c, sync.OnceFunc(func() { b.open.Add(-1) })}, nil
		}
		b.open.Add(-1)
		_ = c.Close() // its client sees it
	}
}

// boundedConn gives its room back when it is closed.
type boundedConn struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
