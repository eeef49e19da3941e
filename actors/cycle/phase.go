package cycle

import "fmt"

// phase is how far a request has come. Each arrow of the picture is in the table arrows, and the cycle takes no other.
// At an arrow stands the message that moves the request, with its condition. Every other message leaves the phase as it
// is. Not drawn: a cycle that panics, or is stopped with its loop, goes to done from any phase.
//
//	created
//	    │ RequestArrived
//	    ▼
//	queued ──────── Rejected, Evicted, Revoked, StreamGone; no pick; a deadline ─────────────────────► done
//	    │ the pick, at once or in a turn, which is Dispatched; PickMade tells it
//	    ▼
//	picked ──────── ResponseEnded; StreamGone if no log will tell the end; a deadline ───────────────► done
//	    │  │ ResponseStarted, of a visible body
//	    │  ▼
//	    │ responding ── ResponseEnded; StreamGone if no log will tell the end; a deadline ───────────► done
//	    │  │    ▲
//	    │  │    │ FirstTokenSeen, or StreamGone if no log will tell the end: the body is visible after all
//	    │  │ StreamGone if the log will tell the end
//	    ▼  ▼    │ and from picked: ResponseStarted, of a body that bypasses us
//	detached ────── ResponseEnded; StreamGone of a check; a deadline ────────────────────────────────► done
//	    │  ▲
//	    │  │ ResponseOngoing
//	    │ StreamGone, of a proxy that has not sent an entry so far
//	    ▼  │
//	lingering ───── ResponseEnded; a deadline; at once if the proxy's log is missing ────────────────► done
type phase uint8

const (
	// created is a cycle before its first message. Nothing is known, held or owed.
	created phase = iota
	// queued is a request for which no endpoint was picked so far. It owes its stream an answer. It holds its entry in
	// the book, and its place in the line of capacity if it has to wait.
	queued
	// picked is a request whose stream has PickMade. It holds load at an endpoint, and its prompt's blocks in the
	// prefix index, until the response says that no endpoint of the pool serves it: then the load goes.
	picked
	// responding is a request whose response has begun and is visible, so that its stream tells its end. It holds what
	// a picked one holds.
	responding
	// detached is a request whose response bypasses us: the access log tells its end, whether or not the stream is
	// still there. It holds what a picked one holds. No deadline of the whole request counts, for there is no way to
	// cut it.
	detached
	// lingering is a request whose stream is gone and whose proxy may have no access log. It has given back its load,
	// and its record waits for an entry for a while. An intermediate entry detaches it again: then it is load.
	lingering
	// done is a request that has ended. Nothing comes after it: Stopped gives back what is still held.
	done
)

var phaseNames = [...]string{"created", "queued", "picked", "responding", "detached", "lingering", "done"}

// String returns the phase's name, as the picture has it.
func (p phase) String() string { return phaseNames[p] }

// arrows has the arrows of the picture by the phase in which they begin: bit p is the arrow to phase p.
var arrows = [...]uint8{
	created:    1<<queued | 1<<done,
	queued:     1<<picked | 1<<done,
	picked:     1<<responding | 1<<detached | 1<<done,
	responding: 1<<detached | 1<<done,
	detached:   1<<responding | 1<<lingering | 1<<done,
	lingering:  1<<detached | 1<<done,
	done:       0,
}

// enter moves the request along an arrow of the picture. It is the only place that changes the phase and counts
// detached requests. It panics at a move that is not in the picture, which ends the cycle.
func (c *Cycle) enter(next phase) {
	if arrows[c.phase]&(1<<next) == 0 {
		panic(fmt.Sprintf("request %d: no way from %v to %v", c.req.ID, c.phase, next))
	}
	if c.phase == detached {
		c.deps.Metrics.outlived.Add(-1)
	}
	if next == detached {
		c.deps.Metrics.outlived.Add(1)
	}
	c.phase = next
}
