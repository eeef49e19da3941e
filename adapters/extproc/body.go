package extproc

import (
	"sync"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/held"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

// bodyState says whose the bytes of a body are.
//
//	          ┌─ reserve, take
//	bodyOpen ─┘ ─── lend ───► bodyLent ─── release ───► bodyGone
//	   │                                                   ▲
//	   └──── giveUp, release ──────────────────────────────┘
type bodyState uint8

const (
	bodyOpen bodyState = iota // chunks may come; a refusal of the request gives it up
	bodyLent                  // it is whole, and the handler alone touches its bytes until it is released
	bodyGone                  // it takes no memory
)

// requestBody owns the body of a request: its bytes, its share of the budget, and the deadline by which it has to be
// whole. It takes chunks until it is lent, which happens at most once, and gives its share back exactly once. Its
// methods may be called by any goroutine, except lend, echo and release, which only the handler calls.
type requestBody struct {
	budget *held.Budget
	spare  int64 // of the budget, which it leaves to others; set before the body comes

	mu      sync.Mutex // guards what follows; it may be taken under a stream's mu, never the other way round
	state   bodyState
	buffer  wire.Body   // empty in bodyGone, and after echo; in bodyLent only the handler touches it
	counted int64       // bytes of the budget that it holds: the capacity of the buffer, also after echo; 0 in bodyGone
	came    int64       // bytes that have come; it keeps its value in bodyGone
	late    *time.Timer // the deadline, which runs in bodyOpen only; nil = there is none
}

// reserve makes room for the beginning of a body whose length the client told. It returns false if the budget has no
// room.
func (b *requestBody) reserve(told int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != bodyOpen {
		return true // no more of it will come
	}
	if !b.count(b.buffer.Takes(wire.Reservable(told))) {
		return false
	}
	b.buffer.Reserve(told)
	return true
}

// take copies a chunk. It returns why the body is refused, if the chunk goes beyond the most bytes of one body or
// beyond the budget. It ignores a chunk of a body that was given up, because that request is refused already.
func (b *requestBody) take(in *wire.Request, most int64) messages.Reason {
	n := in.BodyLen()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.state != bodyOpen:
	case b.came+int64(n) > most:
		return messages.BodyTooLarge
	case !b.count(b.buffer.Takes(n)):
		return messages.Overloaded
	default:
		b.buffer.Append(in)
		b.came += int64(n)
	}
	return messages.NoReason
}

// count raises what the body holds of the budget to bytes. It returns false if the budget has no room.
func (b *requestBody) count(bytes int) bool {
	more := int64(bytes) - b.counted
	if more <= 0 {
		return true // it was reserved
	}
	if !b.budget.Take(more, b.spare) {
		return false
	}
	b.counted += more
	return true
}

// lacks returns how much more of the budget the body needs for n bytes more; 0 = none, or no more of it will come.
func (b *requestBody) lacks(n int) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != bodyOpen {
		return 0
	}
	return max(int64(b.buffer.Takes(n))-b.counted, 0)
}

// add gives the body bytes of the budget that were taken for it.
func (b *requestBody) add(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == bodyGone {
		b.budget.Give(bytes)
		return
	}
	b.counted += bytes
}

// expect starts the deadline of a body that is open. late runs on a goroutine of its own; the body may have been lent
// by then.
func (b *requestBody) expect(within time.Duration, late func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == bodyOpen {
		b.late = time.AfterFunc(within, late)
	}
}

func (b *requestBody) stopTimer() {
	if b.late != nil {
		b.late.Stop()
	}
}

// lend returns the whole body to the handler, until it is echoed or released. It returns false if the body was given up
// before.
func (b *requestBody) lend() ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != bodyOpen {
		return nil, false
	}
	b.stopTimer()
	b.state = bodyLent
	return b.buffer.Bytes(), true
}

// settle has a body that was lent take little more memory than its bytes: its request waits for long.
func (b *requestBody) settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != bodyLent {
		return
	}
	takes := int64(b.buffer.Settle())
	b.budget.Give(b.counted - takes)
	b.counted = takes
}

// splice puts text in the place of the bytes from..to of a body that was lent. It returns false, and changes nothing,
// if the budget has no room.
func (b *requestBody) splice(from, to int, text []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.count(b.buffer.Takes(max(len(text)-(to-from), 0))) {
		return false
	}
	b.buffer.Splice(from, to, text)
	return true
}

// bytes returns a body that was lent, until it is echoed or released.
func (b *requestBody) bytes() []byte { return b.buffer.Bytes() }

// echo moves the bytes of a body that was lent into e, which gives them back to the proxy. The budget counts them
// until the body is released.
func (b *requestBody) echo(e *wire.Echo, endOfStream bool) {
	e.StartBody(wire.RequestDirection, &b.buffer, endOfStream)
}

// giveUp frees the body of a request that was refused, unless it is lent: then the handler releases it.
func (b *requestBody) giveUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == bodyOpen {
		b.free()
	}
}

// release frees the body in any state.
func (b *requestBody) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free()
}

// free is release for a caller that holds mu.
func (b *requestBody) free() {
	b.stopTimer()
	b.buffer.Release()
	b.budget.Give(b.counted)
	b.counted, b.state = 0, bodyGone
}
