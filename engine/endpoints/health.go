package endpoints

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Health is what is held against an endpoint, until a probe is answered well. Immutable but for the one probe that it allows at a time.
type Health struct {
	Suspended bool // false: it comes last, behind all that nothing is held against
	Why       messages.Evidence
	Since     time.Time
	Until     time.Time // from here on a request may try the endpoint
	probed    atomic.Bool
}

// unseen is how much longer an endpoint is left alone that only requests can judge whose response is shown to us, if none comes.
const unseen = time.Minute

// Due says that a probe is there to be taken, by a request whose response is shown to us or not.
func (h *Health) Due(now time.Time, shown bool) bool {
	if h.Why.InBody() && !shown {
		now = now.Add(-unseen)
	}
	return !now.Before(h.Until) && !h.probed.Load()
}

// Probe takes the probe that is due, unless somebody has it. Whoever gets it says what became of it.
func (h *Health) Probe() bool { return h.probed.CompareAndSwap(false, true) }

// Probing says that a probe was taken and its end is awaited.
func (h *Health) Probing() bool { return h.probed.Load() }

// Health is what is held against the endpoint; nil = nothing.
func (e *Endpoint) Health() *Health { return e.health.Load() }

// SetHealth puts h in force, nil = all is well. Only the health actor calls it.
func (e *Endpoint) SetHealth(h *Health) { e.health.Store(h) }

// Answered notes that the endpoint began to answer a request well for which it was picked then. For any loop.
func (e *Endpoint) Answered(picked time.Time) { latest(&e.answered, picked.UnixNano()) }

// Proved notes that the body of such an answer came, and was shown to us, or only told of. For any loop.
func (e *Endpoint) Proved(picked time.Time, shown bool) {
	latest(&e.proved, picked.UnixNano())
	if shown {
		latest(&e.shown, picked.UnixNano())
	}
}

// LastAnswer is the newest pick whose answer began well, in unix nanoseconds; 0 = none.
func (e *Endpoint) LastAnswer() int64 { return e.answered.Load() }

// LastProof is the newest pick whose answer's body came, in unix nanoseconds; 0 = none.
func (e *Endpoint) LastProof() int64 { return e.proved.Load() }

// LastShown is the newest pick whose answer's body was shown to us and began well, in unix nanoseconds; 0 = none.
func (e *Endpoint) LastShown() int64 { return e.shown.Load() }

func latest(v *atomic.Int64, at int64) {
	for {
		old := v.Load()
		if old >= at || v.CompareAndSwap(old, at) {
			return
		}
	}
}

// ByID is the endpoint of an incarnation, nil if the snapshot does not have it.
func (s *Snapshot) ByID(id messages.EndpointID) *Endpoint {
	for _, e := range s.Endpoints {
		if e.ID == id {
			return e
		}
	}
	return nil
}
