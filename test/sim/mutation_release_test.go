//go:build mutation_release

package sim_test

import "github.com/signalbox-epp/signalbox/messages"

// A release is left out: of each twenty cycles that end, one does not give its prompt back.
func init() {
	n := 0
	tagged = mutation{tag: "mutation_release",
		release: func(to messages.Sink[messages.PrefixMsg]) messages.Sink[messages.PrefixMsg] {
			return forgetful{to, &n}
		}}
}

type forgetful struct {
	messages.Sink[messages.PrefixMsg]
	ended *int
}

func (f forgetful) Tell(m messages.PrefixMsg) bool {
	if _, ok := m.(messages.PromptEnded); ok {
		if *f.ended++; *f.ended%20 == 0 {
			return true
		}
	}
	return f.Sink.Tell(m)
}
