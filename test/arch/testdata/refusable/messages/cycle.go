// Package messages marks the wrong messages.
package messages

type CycleMsg interface{ cycleMsg() }

// RequestArrived begins work, but is not marked.
type RequestArrived struct{}

// Dispatched answers, and may not be refused.
type Dispatched struct{}

// Ended ends, and is not marked.
type Ended struct{}

// Value is no message.
type Value struct{}

func (RequestArrived) cycleMsg() {}
func (Dispatched) cycleMsg()     {}
func (Ended) cycleMsg()          {}

func (Dispatched) Refusable() {}
func (Value) Refusable()      {}
