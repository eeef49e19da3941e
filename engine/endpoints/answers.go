package endpoints

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/engine/outlier"
)

// answers are the newest picks of an endpoint that were answered well, in unix nanoseconds; 0 = none. All loops write
// them.
type answers struct {
	began  atomic.Int64 // with a good status
	proved atomic.Int64 // with a body
	shown  atomic.Int64 // with a body that was visible to us
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
		Began: at(&e.answers.began), Proved: at(&e.answers.proved), Shown: at(&e.answers.shown), Picks: e.Picks(),
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
