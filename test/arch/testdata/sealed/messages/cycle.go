// Package messages has interfaces that are not sealed and messages that nobody receives.
package messages

//sumtype:decl
type CycleMsg interface{ cycleMsg() }

type RequestArrived struct{ Request Request }

type Request struct{ ID int }

type Forgotten struct{ ID int }

// Documented is what its contract says, but has no marker.
//
//	From: stream
type Documented struct{}

type ByPointer struct{}

type PickEvent struct{}

type PickMessage struct{}

type PickMsg struct{}

type HandlePick struct{}

type Both struct{}

type Stray struct{}

// RecordEvent is a value, which may be named so.
type RecordEvent struct{ ID int }

type Recorded struct{ Event RecordEvent }

func (Recorded) cycleMsg() {}

func (RequestArrived) cycleMsg() {}
func (*ByPointer) cycleMsg()     {}
func (PickEvent) cycleMsg()      {}
func (PickMessage) cycleMsg()    {}
func (PickMsg) cycleMsg()        {}
func (HandlePick) cycleMsg()     {}
func (Both) cycleMsg()           {}
func (Both) flowMsg()            {}
func (Stray) flowMsg()           {}
