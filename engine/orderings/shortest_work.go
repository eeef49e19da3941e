package orderings

import (
	"fmt"
	"math"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// ShortestWork lets the request go first that is predicted to be the least work: its prompt's tokens, and twice those
// of its output, which take longer. While a request waits its work counts as less and less, so that long ones are not
// passed over for ever.
type ShortestWork struct {
	// AgeingTokensPerSecond is how many tokens of work a second of waiting is worth, above 0. A request of w tokens is
	// passed over only by requests that arrive within w / ageingTokensPerSecond seconds after it.
	AgeingTokensPerSecond float64 `json:"ageingTokensPerSecond"`
}

// Validate returns which parameters are out of range.
func (o *ShortestWork) Validate() error {
	if !(o.AgeingTokensPerSecond > 0 && o.AgeingTokensPerSecond <= mostAgeing) {
		return fmt.Errorf("ageingTokensPerSecond: got %v, want more than 0, at most %d", o.AgeingTokensPerSecond,
			int(mostAgeing))
	}
	return nil
}

// mostAgeing is the ageing from which the order is that of arrival for any request that there is.
const mostAgeing = 1e9

// Key returns when a request without work would have had to arrive to go at the same time.
func (o *ShortestWork) Key(e *flow.Entry) int64 {
	work := float64(max(e.Prompt, 0)) + 2*float64(max(e.Output, 0))
	ages := min(work/o.AgeingTokensPerSecond*float64(time.Second), math.MaxInt64/4)
	return e.Arrived.UnixNano()/2 + int64(ages)/2
}

// Needs returns that the queue keeps the order of keys.
func (*ShortestWork) Needs() flow.Ability { return flow.Needed | flow.KeyOrder }
