package signalbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

const holdback = `plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 10}}
- {type: priority-holdback-policy, parameters: {minCeiling: 0.3}}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  usageLimitPolicyPluginRef: priority-holdback-policy
objectives: [{name: urgent, priority: 1}, {name: batch, priority: -1}]
`

// Low priorities leave room for higher ones on every server, whichever loop picks.
func TestLowPrioritiesLeaveRoom(t *testing.T) {
	for _, loops := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(loops, " loops"), func(t *testing.T) {
			c := newCrowdUnder(t, loops, holdback)
			c.discover(2)
			ports, last := map[messages.RequestID]messages.Port[messages.CycleMsg]{}, messages.RequestID(0)
			picked := map[int][]*client{} // by priority, also those that wait
			comes := func(n, priority int) {
				for range n {
					last++
					stream, port := c.asks(last, messages.FlowKey{Fairness: "a", Priority: priority})
					ports[last] = port
					picked[priority] = append(picked[priority], stream)
				}
			}
			holds := func(load, waiting int) {
				t.Helper()
				c.until(fmt.Sprintf("%d run and %d wait", load, waiting), func() bool {
					n := 0
					for _, e := range c.Pool().Snapshot().Endpoints {
						n += e.Inflight()
					}
					return n == load && c.line.Len() == waiting
				})
			}
			comes(20, -1)
			holds(6, 14)
			comes(20, 0)
			holds(14, 14+12)
			comes(20, 1)
			holds(20, 14+12+14)
			ended := 0
			for _, stream := range picked[1] { // those that were picked for: the others take their room
				select {
				case <-stream.answered:
					ports[stream.id].Post(messages.StreamGone{Completed: true})
					delete(ports, stream.id)
					ended++
				case <-time.After(20 * time.Millisecond):
				}
			}
			if ended < 6 {
				t.Fatalf("%d of the highest priority were picked for, want 6 at least", ended)
			}
			for _, port := range ports {
				port.Post(messages.StreamGone{Completed: true})
			}
			c.empty()
		})
	}
}
