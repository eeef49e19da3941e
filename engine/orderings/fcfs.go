package orderings

import "github.com/signalbox-epp/signalbox/engine/flow"

// FCFS lets requests go in the order of their arrival.
type FCFS struct{}

// Validate returns nil: there are no parameters.
func (*FCFS) Validate() error { return nil }

// Key returns the same for all, so that their arrival decides.
func (*FCFS) Key(*flow.Entry) int64 { return 0 }

// Needs returns nothing: a queue in the order of keys and one in the order of arrival do the same.
func (*FCFS) Needs() flow.Ability { return flow.Needed }
