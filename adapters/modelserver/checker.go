package modelserver

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

const (
	checkTimeout = time.Second
	maxChecks    = 64 // checks that run at once
)

// Checker connects to model servers, to see whether anything listens there.
type Checker struct {
	ctx    context.Context
	cancel context.CancelFunc
	places chan struct{} // holds one item for each check that runs
	mu     sync.Mutex    // guards closed
	closed bool
	done   sync.WaitGroup
}

// NewChecker returns a checker that works until Close.
func NewChecker() *Checker {
	ctx, cancel := context.WithCancel(context.Background())
	return &Checker{ctx: ctx, cancel: cancel, places: make(chan struct{}, maxChecks)}
}

// Check connects within a second, and tells the port whether that worked. It returns false, and tells nothing, if too
// many checks run or the checker is closed.
func (c *Checker) Check(id messages.EndpointID, at messages.Address, to messages.Port[messages.OutlierMsg]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	select {
	case c.places <- struct{}{}:
	default:
		return false
	}
	c.done.Go(func() {
		connected := c.connect(string(at))
		<-c.places
		to.Post(messages.EndpointChecked{Endpoint: id, Connected: connected})
	})
	return true
}

func (c *Checker) connect(address string) bool {
	ctx, cancel := context.WithTimeout(c.ctx, checkTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// Close cancels the checks that run, and waits for them.
func (c *Checker) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.done.Wait()
}
