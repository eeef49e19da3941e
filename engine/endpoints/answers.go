package endpoints

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/engine/outlier"
)

// answers holds the times of the newest picks of an endpoint that were answered well, in unix nanoseconds; 0 = none.
// All loops write them. outlier.Answers has their meaning.
type answers struct {
	began   atomic.Int64
	proved  atomic.Int64
	visible atomic.Int64
	token   atomic.Int64 // when the newest of them began, by whatever pick
}

// Answers returns what the endpoint has answered well so far.
func (e *Endpoint) Answers() outlier.Answers {
	at := func(v *atomic.Int64) time.Time {
		if nanos := v.Load(); nanos != 0 {
			return time.Unix(0, nanos)
		}
		return time.Time{}
	}
	return outlier.Answers{
		Began: at(&e.answers.began), Proved: at(&e.answers.proved), Visible: at(&e.answers.visible), Picks: e.Picks(),
	}
}

// LastToken returns when the endpoint last gave a first token, whenever its request was picked; long ago = never.
func (e *Endpoint) LastToken() time.Time { return time.Unix(0, e.answers.token.Load()) }

// latest sets v to at, unless v is later already.
func latest(v *atomic.Int64, at int64) {
	for {
		old := v.Load()
		if old >= at || v.CompareAndSwap(old, at) {
			return
		}
	}
}
