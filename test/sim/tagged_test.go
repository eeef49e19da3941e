package sim_test

import (
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// mutation is a fault of the product, put in its place by a file with a build tag. Without a tag nothing is planted.
type mutation struct {
	tag     string
	release func(messages.Sink[messages.PrefixMsg]) messages.Sink[messages.PrefixMsg] // what cycles tell prefix
	prefix  func(runtime.Actor[messages.PrefixMsg]) runtime.Actor[messages.PrefixMsg]
	cycle   func(runtime.Actor[messages.CycleMsg]) runtime.Actor[messages.CycleMsg]
	// between the runtime and all probes
	outside func(runtime.Actor[messages.CycleMsg]) runtime.Actor[messages.CycleMsg]
}

var tagged mutation

// skin puts a mutation around what it is about.
func skin[T any](around func(T) T, x T) T {
	if around == nil {
		return x
	}
	return around(x)
}
