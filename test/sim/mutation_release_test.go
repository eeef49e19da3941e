//go:build mutation_release

package sim_test

import "github.com/signalbox-epp/signalbox/messages"

// A release is left out: of each twenty cycles that end, one does not give its place back.
func init() {
	n := 0
	tagged = mutation{tag: "mutation_release",
		flow: func(to messages.Sink[messages.FlowMsg]) messages.Sink[messages.FlowMsg] {
			return forgetful{to, &n}
		}}
}

type forgetful struct {
	messages.Sink[messages.FlowMsg]
	ended *int
}

func (f forgetful) Tell(m messages.FlowMsg) bool {
	if _, ok := m.(messages.RequestEnded); ok {
		if *f.ended++; *f.ended%20 == 0 {
			return true
		}
	}
	return f.Sink.Tell(m)
}
