package load

import (
	"bytes"
	"fmt"
	"time"
)

// exchange is one place in the load: one stream after the other, each a request.
type exchange struct {
	stream
	gen *Generator

	script  *Script
	buffer  []byte // a turn's messages, patched
	request uint64 // its number
	turn    int    // index in the script
	want    int    // index in the turn: the answer that is waited for
	echoed  int    // bytes of a body that came back, of the answer in hand
	asked   time.Time
	due     time.Time // of an open loop: when the request should have begun
	served  [len(anyServed)]byte
	id      []byte // that the server gave the request
	finish  func(*exchange)
}

// begin opens a stream and sends a request. Under the connection's mu.
func (x *exchange) begin(due time.Time) {
	x.request = x.gen.number.Add(1)
	x.script = x.gen.scripts[x.request%uint64(len(x.gen.scripts))]
	x.due, x.asked, x.id = due, time.Time{}, x.id[:0]
	x.conn.open(&x.stream, callHeaders)
	x.take(0)
}

// take begins a turn.
func (x *exchange) take(turn int) {
	x.turn, x.want, x.echoed = turn, 0, 0
	t := x.script.turns[turn]
	messages := t.messages
	if t.markers != nil || t.served > 0 {
		x.buffer = append(x.buffer[:0], messages...)
		messages = x.buffer
		patch(messages, t.markers, x.request)
	}
	if t.served > 0 {
		copy(messages[t.served:], x.served[:])
	}
	x.send(messages, t.sizes)
}

// allSent is called when nothing of what was given to the stream is unsent: the pick's latency counts from here, or
// from when the request was due.
func (x *exchange) allSent() {
	if !x.script.turns[x.turn].picks {
		return
	}
	x.asked = time.Now()
	if !x.due.IsZero() {
		x.asked = x.due
	}
}

// onMessage follows the request from its pick to its last chunk, one turn after the other:
// chunks of a model come apart.
func (x *exchange) onMessage(b []byte) error {
	r, err := readReply(b)
	if err != nil {
		return err
	}
	t := x.script.turns[x.turn]
	w := t.wants[x.want]
	if r.field != w.field {
		return fmt.Errorf("stream %d, turn %d: answer %d, want %d: %q", x.number, x.turn, r.field, w.field,
			b[:min(len(b), 300)])
	}
	x.echoed += r.bodyBytes
	ended := r.end && (!w.end || x.echoed < w.bytes)
	if x.echoed > w.bytes || ended {
		return fmt.Errorf("stream %d, turn %d: %d bytes came back, end %v, want %d, %v", x.number, x.turn, x.echoed,
			r.end, w.bytes, w.end)
	}
	if x.echoed < w.bytes || w.end && !r.end {
		return nil // the rest is on its way
	}
	if w.picks {
		if err := x.onPick(r); err != nil {
			return err
		}
	}
	x.want, x.echoed = x.want+1, 0
	switch {
	case x.want < len(t.wants):
	case x.turn+1 < len(x.script.turns):
		x.take(x.turn + 1)
	default:
		return x.end()
	}
	return nil
}

func (x *exchange) onPick(r reply) error {
	at := bytes.Index(r.content, []byte("127.0.0.1:"))
	if at < 0 || at+len(anyServed) > len(r.content) {
		return fmt.Errorf("stream %d: no destination in %q", x.number, r.content)
	}
	x.gen.picked(time.Since(x.asked))
	copy(x.served[:], r.content[at:])
	if !x.script.light {
		return nil
	}
	id, err := requestID(r.content)
	x.id = append(x.id, id...)
	return err
}

// end is the proxy's: it resets the stream, and in the light lane it logs the request.
func (x *exchange) end() error {
	x.conn.reset(&x.stream)
	if x.script.light {
		e, err := x.conn.journal.entry(x.id, x.served[:], x.script.responseBytes)
		if err != nil {
			return err
		}
		x.conn.journal.add(e)
	}
	x.finish(x)
	return nil
}

// start begins a request from outside the connection's goroutine.
func (x *exchange) start(due time.Time) error {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	x.begin(due)
	return x.conn.flush()
}
