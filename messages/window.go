package messages

import "time"

// WindowMsg is what the window actor receives: the learner of how much work each endpoint takes.
//
//sumtype:decl
type WindowMsg interface{ windowMsg() }

// WindowStarted begins an incarnation of the window actor, which knows of an endpoint what bound is in force.
//
//	From:  runtime root
//	To:    window, first
//	Reply: none
type WindowStarted struct{}

// FirstTokenTimed says how long an endpoint took to the first token of an answer.
//
//	From:  cycle, at most once, if its plan has windows
//	To:    window
//	Reply: none
type FirstTokenTimed struct {
	Endpoint EndpointID
	Picked   time.Time
	Took     time.Duration // from the pick to the token, above 0
	Prompt   int           // tokens that the endpoint had to compute, estimated; 0 = unknown
	Ahead    int           // tokens of other prompts that it had to compute before, estimated
	Before   int           // requests that the endpoint had in flight at the pick
}

// ServiceEnded says that a request has ended at an endpoint without a first token that was seen.
//
//	From:  cycle, at most once, instead of FirstTokenTimed
//	To:    window
//	Reply: none
type ServiceEnded struct {
	Endpoint EndpointID
	Served   bool // the answer was whole, and no error
	Refused  bool // the endpoint answered that it is full
}

// SampleTaken says that a newer sample of an endpoint is in force.
//
//	From:  scraper, if the configuration in force has windows
//	To:    window
//	Reply: none
type SampleTaken struct{ Endpoint EndpointID }

// WindowsDue is sent by the timer of window, each second while requests run at an endpoint that it knows: one that
// tells nothing any more is not bounded by what it told, and that of one that is ejected begins anew.
//
//	From:  window, to itself
//	To:    window
//	Reply: none
type WindowsDue struct{}

func (WindowsDue) windowMsg()      {}
func (WindowStarted) windowMsg()   {}
func (FirstTokenTimed) windowMsg() {}
func (ServiceEnded) windowMsg()    {}
func (SampleTaken) windowMsg()     {}
