package endpoints

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// answers holds the times of the newest picks of an endpoint that were answered well, in unix nanoseconds; 0 = none.
// All loops write them. outlier.Answers has their meaning.
type answers struct {
	began   atomic.Int64
	proved  atomic.Int64
	visible atomic.Int64
	token   atomic.Int64          // when the newest of them began, by whatever pick
	prompts [lengths]atomic.Int64 // proved, by the length of the prompt; see length
	reads   [lengths]atomic.Int64 // proved, by how much of the prompt was to be computed
}

// lengths is how many classes of lengths there are.
const lengths = 8

// length returns the class of so many tokens: below 512, below 1024, and so on, or more.
func length(tokens int) int { return min(bits.Len(uint(max(tokens, 0)>>9)), lengths-1) }

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

// ProvedBy returns the newest pick that was answered well of those with prompts as long, or nearly, and of those with
// as much to be computed of them, whichever is older; zero = there was none.
func (e *Endpoint) ProvedBy(prompt messages.Prompt) time.Time {
	newest := func(of *[lengths]atomic.Int64, tokens int) (at int64) {
		for class := length(tokens); class < lengths; class++ {
			at = max(at, of[class].Load())
		}
		return at
	}
	at := min(newest(&e.answers.prompts, prompt.Tokens), newest(&e.answers.reads, prompt.Computed))
	if at == 0 {
		return time.Time{}
	}
	return time.Unix(0, at)
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
