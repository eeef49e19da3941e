package main

import (
	"bytes"
	"fmt"
	"time"
)

// exchange is one place in the load: one stream after the other, each a request.
type exchange struct {
	conn *conn
	gen  *generator

	id      uint32
	window  int
	unsent  []byte // of messages, with their prefixes
	sizes   []int  // bytes left of each of them
	blocked bool   // in the connection's list of those that wait for a window
	partial []byte // of a message that is not whole

	script  *script
	buffer  []byte    // the request's messages, patched
	lengths []int     // of what is sent, and later of what is left
	step    int       // 0: waits for its pick; 1: for the body; 2: for the response's headers; from 3: for chunks
	echoed  int       // bytes of the body in hand
	asked   time.Time // from when on the pick's latency counts; zero until the body is sent, in a closed loop
	due     time.Time // of an open loop: when the request should have begun
	finish  func(*exchange)
}

// begin opens a stream and sends a request. Under the connection's mu.
func (x *exchange) begin(due time.Time) {
	n := x.gen.number.Add(1)
	x.script = x.gen.scripts[n%prefixGroups]
	x.buffer = append(x.buffer[:0], x.script.request...)
	x.lengths = append(x.lengths[:0], x.script.sizes...)
	x.script.patch(x.buffer, n)
	x.unsent, x.sizes = x.buffer, x.lengths
	x.step, x.echoed, x.asked, x.due, x.partial = 0, 0, time.Time{}, due, x.partial[:0]
	x.conn.open(x)
	x.conn.pump(x)
}

// allSent is called when nothing of what was given to the stream is unsent.
func (x *exchange) allSent() {
	if x.step == 0 {
		x.asked = time.Now()
		if !x.due.IsZero() {
			x.asked = x.due
		}
	}
}

// onMessage follows the request from its pick to its last chunk, one message in flight at a time once the pick is there: chunks of
// a model come apart.
func (x *exchange) onMessage(b []byte) error {
	r, err := readReply(b)
	if err != nil {
		return err
	}
	want := [...]int{1, 3, 2, 4}[min(x.step, 3)]
	if int(r.field) != want {
		return fmt.Errorf("stream %d at step %d: answer %d, want %d: %q", x.id, x.step, r.field, want, b[:min(len(b), 300)])
	}
	switch x.step {
	case 0:
		return x.onPick(r)
	case 1:
		return x.onBody(r)
	case 2:
		x.step++
		x.send(x.script.chunks[0])
		return nil
	}
	return x.onChunk(r)
}

func (x *exchange) onPick(r reply) error {
	at := bytes.Index(r.content, []byte("127.0.0.1:"))
	if at < 0 || at+len(anyServed) > len(r.content) {
		return fmt.Errorf("stream %d: no destination in %q", x.id, r.content)
	}
	x.gen.picked(time.Since(x.asked))
	x.step++
	served := r.content[at : at+len(anyServed)]
	x.buffer = append(x.buffer[:0], x.script.headers...)
	copy(x.buffer[x.script.served:], served)
	return nil
}

func (x *exchange) onBody(r reply) error {
	if x.echoed += r.bodyBytes; !r.end {
		return nil
	}
	if x.echoed != x.script.bodyBytes {
		return fmt.Errorf("stream %d: %d bytes of the request came back, want %d", x.id, x.echoed, x.script.bodyBytes)
	}
	x.step++
	x.send(x.buffer)
	return nil
}

func (x *exchange) onChunk(r reply) error {
	i := x.step - 3
	last := i == len(x.script.chunks)-1
	if r.bodyBytes != x.script.sent[i] || r.end != last {
		return fmt.Errorf("stream %d: chunk %d came back with %d bytes, end %v, want %d, %v", x.id, i, r.bodyBytes, r.end, x.script.sent[i], last)
	}
	if x.step++; !last {
		x.send(x.script.chunks[i+1])
		return nil
	}
	x.conn.reset(x)
	x.finish(x)
	return nil
}

// send gives the stream one message.
func (x *exchange) send(message []byte) {
	x.unsent, x.lengths = message, append(x.lengths[:0], len(message))
	x.sizes = x.lengths
	x.conn.pump(x)
}

// start begins a request from outside the connection's goroutine.
func (x *exchange) start(due time.Time) error {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	x.begin(due)
	return x.conn.flush()
}
