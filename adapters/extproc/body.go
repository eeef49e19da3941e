package extproc

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

// budget bounds the memory that the request bodies of all streams take: 0 <= held <= limit.
type budget struct {
	limit int64
	held  atomic.Int64
}

// take counts bytes in. False means that they do not fit.
func (b *budget) take(bytes int64) bool {
	for {
		held := b.held.Load()
		if held+bytes > b.limit {
			return false
		}
		if b.held.CompareAndSwap(held, held+bytes) {
			return true
		}
	}
}

func (b *budget) give(bytes int64) { b.held.Add(-bytes) }

// bodyState says whose the bytes of a body are.
//
//	          ┌─ reserve, take
//	bodyOpen ─┘ ─── lend ───► bodyLent ─── release ───► bodyGone
//	   │                                                   ▲
//	   └──── giveUp, release ──────────────────────────────┘
type bodyState uint8

const (
	bodyOpen bodyState = iota // chunks may come; whoever refuses the request gives it up
	bodyLent                  // it is whole, and the handler's: nothing else touches its bytes before it is released
	bodyGone                  // it takes no memory
)

// requestBody owns the body of a request: its bytes, its part of the budget, and the deadline by which it has to be
// whole. It takes chunks until it is lent, once, and gives back its budget exactly once, whoever ends it. Its methods
// may be called by any goroutine, but for lend, echo and release, which are the handler's.
type requestBody struct {
	budget *budget

	mu      sync.Mutex // guards what follows; a stream's mu may be held when it is taken, never the other way round
	state   bodyState
	buffer  wire.Body   // empty in bodyGone, and once it was echoed; only the handler touches it in bodyLent
	counted int64       // of the budget: what the buffer takes, or took until it was echoed; 0 in bodyGone
	came    int64       // bytes so far; it keeps its value in bodyGone
	late    *time.Timer // the deadline; it runs in bodyOpen at most. nil = there is none
}

// reserve makes room for the beginning of a body of whose length the client told. False means that it does not fit.
func (b *requestBody) reserve(told int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != bodyOpen {
		return true // nothing follows
	}
	if !b.count(b.buffer.Takes(wire.Reservable(told))) {
		return false
	}
	b.buffer.Reserve(told)
	return true
}

// take copies a chunk. A reason says that it is too much, for one body of most bytes or for the budget. A body that was
// given up takes nothing and has no reason, for its request was refused.
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

// count counts the memory that the body takes from now on. False means that it does not fit.
func (b *requestBody) count(bytes int) bool {
	more := int64(bytes) - b.counted
	if more <= 0 {
		return true // it was reserved
	}
	if !b.budget.take(more) {
		return false
	}
	b.counted += more
	return true
}

// expect starts the deadline of a body that is open. late runs on a goroutine of its own,
// and may find the body lent meanwhile.
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

// lend gives the whole body to the handler, until it is echoed or released. False means that the body was given up
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

// echo hands the bytes of a body that was lent over to e, which gives them back to the proxy. They count until the body
// is released.
func (b *requestBody) echo(e *wire.Echo, endOfStream bool) {
	e.StartBody(wire.RequestDirection, &b.buffer, endOfStream)
}

// giveUp frees a body whose request was refused, unless it is lent: then the handler releases it.
func (b *requestBody) giveUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == bodyOpen {
		b.free()
	}
}

// release frees the body, in whatever state it is.
func (b *requestBody) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free()
}

// free is release for whoever holds mu.
func (b *requestBody) free() {
	b.stopTimer()
	b.buffer.Release()
	b.budget.give(b.counted)
	b.counted, b.state = 0, bodyGone
}
