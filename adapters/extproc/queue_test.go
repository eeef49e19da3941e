package extproc

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// An answer says how long its request waited for room, in whole milliseconds, if its configuration has a gate. It does
// so whoever answers, and where the response's body bypasses us.
func TestAnswersSayHowLongTheirRequestsWaited(t *testing.T) {
	elsewhere := withMeta(rH(last), lbNamespace, map[string]any{servedKey: "192.0.2.1:9"})
	gated := func(took time.Duration) messages.QueueTime { return messages.QueueTime{Gated: true, Took: took} }
	for name, c := range map[string]struct {
		asked, answer *ask
		queue         messages.QueueTime
		want          string
	}{
		"no gate":         {qH(last), rH(last), messages.QueueTime{}, ""},
		"did not wait":    {qH(last), rH(last), gated(0), "0"},
		"hardly waited":   {qH(last), rH(last), gated(999 * time.Microsecond), "0"},
		"waited":          {qH(last), rH(last), gated(1234567 * time.Microsecond), "1234"},
		"body bypasses":   {withModes(qH(last), fds, none), rH(more), gated(time.Minute), "60000"},
		"served by other": {qH(last), elsewhere, gated(time.Second), "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{script: func(s *cycle) {
				s.arrived.Stream.Tell(messages.PickMade{
					Destinations: messages.ListOf[messages.Address]("10.0.0.1:8000"), Queue: c.queue,
				})
			}})
			answers := converse(t, r.serve(t), c.asked, c.answer)
			set := mutations(t, answers[1].GetResponseHeaders().GetResponse(), requestIDHeader, queueHeader)
			got, given := set["x-llm-d-flow-queue-duration-ms"]
			if got != c.want || given != c.queue.Gated {
				t.Errorf("the response has %v, want a wait of %q", set, c.want)
			}
		})
	}
}
