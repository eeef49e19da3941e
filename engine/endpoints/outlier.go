package endpoints

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// Outlier returns the endpoint's status as an outlier; nil = it is healthy.
func (e *Endpoint) Outlier() *outlier.Status { return e.outlier.Load() }

// SetOutlier puts a status in force, nil = healthy. Only the outlier actor calls it.
func (e *Endpoint) SetOutlier(s *outlier.Status) { e.outlier.Store(s) }

// answers are the newest picks of an endpoint that were answered well, in unix nanoseconds; 0 = none. All loops write them.
type answers struct {
	began  atomic.Int64 // with a good status
	proved atomic.Int64 // with a body
	shown  atomic.Int64 // with a body that was visible to us
}

// Answered notes that the endpoint began to answer a request well for which it was picked then. For any loop.
func (e *Endpoint) Answered(picked time.Time) { latest(&e.answers.began, picked.UnixNano()) }

// Proved notes that the body of such an answer came, and was visible, or only told of. For any loop.
func (e *Endpoint) Proved(picked time.Time, visible bool) {
	latest(&e.answers.proved, picked.UnixNano())
	if visible {
		latest(&e.answers.shown, picked.UnixNano())
	}
}

// Answers returns what the endpoint has done well so far.
func (e *Endpoint) Answers() outlier.Answers {
	at := func(v *atomic.Int64) time.Time {
		if nanos := v.Load(); nanos != 0 {
			return time.Unix(0, nanos)
		}
		return time.Time{}
	}
	return outlier.Answers{
		Began: at(&e.answers.began), Proved: at(&e.answers.proved), Shown: at(&e.answers.shown), Picks: e.Picks.Load(),
	}
}

func latest(v *atomic.Int64, at int64) {
	for {
		old := v.Load()
		if old >= at || v.CompareAndSwap(old, at) {
			return
		}
	}
}

// ByID returns the endpoint of an incarnation, nil if the snapshot does not have it.
func (s *Snapshot) ByID(id messages.EndpointID) *Endpoint {
	for _, e := range s.Endpoints {
		if e.ID == id {
			return e
		}
	}
	return nil
}
