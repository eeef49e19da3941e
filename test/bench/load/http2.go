package load

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// conn is the client's side of one HTTP/2 connection that carries gRPC streams, no more of it than a proxy needs to
// load a server. It is driven by what it reads: one goroutine reads frames, hands messages to their streams and writes
// what these want sent. So the generator costs less than what it measures.
type conn struct {
	nc net.Conn
	in *bufio.Reader

	mu      sync.Mutex
	out     []byte // frames that wait for the next flush
	last    uint32 // stream id
	streams map[uint32]*stream
	window  int // bytes that the server takes on the connection
	initial int // likewise on a new stream
	owed    int // bytes received that the server was not told of
	blocked []*stream
	journal journal
}

// Frame types and flags of RFC 9113, as far as they occur.
const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameSettings     = 4
	framePing         = 6
	frameGoAway       = 7
	frameWindowUpdate = 8

	flagEndStream  = 1
	flagAck        = 1
	flagEndHeaders = 4
	flagPadded     = 8

	settingInitialWindow = 4
	codeCancel           = 8

	maxFrameBytes = 16 << 10
	defaultWindow = 65535
	ourWindow     = 16 << 20 // per stream, and Envoy's default
	connWindow    = 24 << 20 // likewise
)

func dial(server string) (*conn, error) {
	nc, err := net.Dial("tcp", server)
	if err != nil {
		return nil, err
	}
	c := &conn{
		nc: nc, in: bufio.NewReaderSize(nc, 64<<10), streams: map[uint32]*stream{}, last: ^uint32(0),
		window: defaultWindow, initial: defaultWindow,
	}
	c.journal = journal{stream: stream{conn: c}, forms: map[formOf]*form{}}
	c.journal.owner = &c.journal
	c.out = append(c.out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"...)
	c.frame(frameSettings, 0, 0, 6)
	c.out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(c.out, settingInitialWindow), ourWindow)
	c.windowUpdate(connWindow - defaultWindow)
	return c, c.flush()
}

func (c *conn) frame(kind, flags byte, stream uint32, size int) {
	c.out = append(c.out, byte(size>>16), byte(size>>8), byte(size), kind, flags)
	c.out = binary.BigEndian.AppendUint32(c.out, stream)
}

func (c *conn) windowUpdate(n int) {
	c.frame(frameWindowUpdate, 0, 0, 4)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(n))
}

// flush writes what waits. Under mu.
func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	return err
}

// open begins a stream. Under mu.
func (c *conn) open(x *stream, headers []byte) {
	c.last += 2
	x.number, x.window, x.partial = c.last, c.initial, x.partial[:0]
	c.streams[x.number] = x
	c.frame(frameHeaders, flagEndHeaders, x.number, len(headers))
	c.out = append(c.out, headers...)
}

// reset ends a stream, as Envoy ends all that have served. Under mu.
func (c *conn) reset(x *stream) {
	delete(c.streams, x.number)
	c.frame(frameReset, 0, x.number, 4)
	c.out = binary.BigEndian.AppendUint32(c.out, codeCancel)
}

// pump sends of a stream's messages what the windows allow. Under mu.
func (c *conn) pump(x *stream) {
	for len(x.unsent) > 0 {
		n := min(x.sizes[0], maxFrameBytes, x.window, c.window)
		if n <= 0 {
			if !x.blocked {
				x.blocked = true
				c.blocked = append(c.blocked, x)
			}
			return
		}
		c.frame(frameData, 0, x.number, n)
		c.out = append(c.out, x.unsent[:n]...)
		x.unsent, x.window, c.window = x.unsent[n:], x.window-n, c.window-n
		if x.sizes[0] -= n; x.sizes[0] == 0 {
			x.sizes = x.sizes[1:]
		}
	}
	x.owner.allSent()
}

func (c *conn) pumpBlocked() {
	waiting := c.blocked
	c.blocked = nil
	for _, x := range waiting {
		x.blocked = false
		if c.streams[x.number] == x {
			c.pump(x)
		}
	}
}

// read serves the connection until it ends.
func (c *conn) read() error {
	head, payload := make([]byte, 9), make([]byte, maxFrameBytes)
	for {
		if _, err := io.ReadFull(c.in, head); err != nil {
			return err
		}
		size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		if size > len(payload) {
			return fmt.Errorf("a frame of %d bytes, limit %d", size, len(payload))
		}
		if _, err := io.ReadFull(c.in, payload[:size]); err != nil {
			return err
		}
		c.mu.Lock()
		err := c.onFrame(head[3], head[4], binary.BigEndian.Uint32(head[5:])&^(1<<31), payload[:size])
		if err == nil && c.in.Buffered() < len(head) {
			err = c.flush()
		}
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (c *conn) onFrame(kind, flags byte, id uint32, payload []byte) error {
	switch kind {
	case frameData:
		return c.onData(flags, id, payload)
	case frameHeaders:
		if x := c.streams[id]; x != nil && flags&flagEndStream != 0 {
			return fmt.Errorf("the server ended stream %d", id)
		}
	case frameReset:
		if c.streams[id] != nil {
			return fmt.Errorf("the server reset stream %d", id)
		}
	case frameSettings:
		if flags&flagAck == 0 {
			c.onSettings(payload)
		}
	case framePing:
		if flags&flagAck == 0 {
			c.frame(framePing, flagAck, 0, len(payload))
			c.out = append(c.out, payload...)
		}
	case frameGoAway:
		return fmt.Errorf("the server goes away: %q", payload)
	case frameWindowUpdate:
		c.onWindowUpdate(id, int(binary.BigEndian.Uint32(payload)&^(1<<31)))
	}
	return nil
}

func (c *conn) onData(flags byte, id uint32, payload []byte) error {
	if flags&flagPadded != 0 {
		return errors.New("a padded frame")
	}
	if c.owed += len(payload); c.owed >= connWindow/4 {
		c.windowUpdate(c.owed)
		c.owed = 0
	}
	x := c.streams[id]
	if x == nil {
		return nil // it was reset while this was on its way
	}
	return x.onData(payload)
}

func (c *conn) onSettings(payload []byte) {
	for ; len(payload) >= 6; payload = payload[6:] {
		if binary.BigEndian.Uint16(payload) != settingInitialWindow {
			continue
		}
		more := int(binary.BigEndian.Uint32(payload[2:])) - c.initial
		c.initial += more
		for _, x := range c.streams {
			x.window += more
		}
	}
	c.frame(frameSettings, flagAck, 0, 0)
	c.pumpBlocked()
}

func (c *conn) onWindowUpdate(id uint32, n int) {
	if id == 0 {
		c.window += n
	} else if x := c.streams[id]; x != nil {
		x.window += n
	}
	c.pumpBlocked()
}

// logAll sends the access log's entries that wait.
func (c *conn) logAll() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal.release(len(c.journal.waiting))
	return c.flush()
}
