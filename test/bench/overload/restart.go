package overload

import (
	"cmp"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/actors/outlier"
	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
	machine "github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// ejection returns how servers are ejected that fail. None is by default: in most plays none fails.
func (w *World) ejection() outlier.Config {
	if !w.play.Ejects {
		return outlier.Config{}
	}
	return outlier.Config{
		MaxEjectionPercent: 50,
		Config:             machine.Config{FirstEjection: 2 * time.Second, LongestEjection: 8 * time.Second},
	}
}

// Restart has a server go down, and come back after a time as another engine. What it works on breaks, what it had
// computed is lost, and connections to it are refused meanwhile.
func (w *World) Restart(server int, away time.Duration, change func(*batch.Config)) {
	n := w.nodes[server]
	w.advance(n)
	n.before += n.work()
	n.down = true
	change(&n.Engine)
	broken := make([]*exchange, 0, len(n.open))
	for _, x := range n.open {
		broken = append(broken, x)
	}
	slices.SortFunc(broken, func(a, b *exchange) int { return cmp.Compare(a.id, b.id) })
	w.renew(n)
	for _, x := range broken {
		x.breaks("connection_termination")
	}
	w.After(away, func() { n.down, n.started = false, w.now })
}

// breaks ends a request whose server has closed the connection, or did not take it. Before the response's headers the
// proxy answers by itself, after them it resets the stream.
func (x *exchange) breaks(why string) {
	w := x.world
	x.Broke, x.over = true, true
	switch {
	case !x.first:
		x.port.Post(messages.ResponseStarted{
			Status: 503, Local: "upstream_reset_before_response_started{" + why + "}", At: w.now,
		})
		x.port.Post(messages.ResponseEnded{At: w.now})
		x.ended(messages.StreamGone{Completed: true})
	case w.play.Light:
		x.picker.Ended(messages.ExchangeLogged{Request: x.id, End: messages.ResponseEnded{
			At: w.now, Logged: messages.Logged{
				Status: 200, Served: w.nodes[x.Server].at, Headers: x.TTFT, FirstToken: x.TTFT, Broken: true,
			},
		}})
		x.follow()
	default:
		x.ended(messages.StreamGone{})
	}
}
