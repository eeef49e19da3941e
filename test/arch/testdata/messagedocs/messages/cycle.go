// Package messages has doc comments that are no contracts.
package messages

import "time"

type CycleMsg interface{ cycleMsg() }

// Good is a message whose contract is whole, over
// two lines of prose.
//
//	From:  stream
//	To:    cycle, once
//	Reply: exactly one of PickMade, Good to ReplyTo,
//	       by Deadline
type Good struct {
	Count    int // requests; 0 = none
	Priority ID
	Deadline time.Time
	ReplyTo  string
	// Wait is how long; 0 = not at all.
	Wait        time.Duration
	BodyBytes   int64
	KVUsedRatio float64
	A, B        int // tokens
}

// PickMade has a contract with holes.
//
//	From:  stream
//	Reply: PickForgotten to Stream
type PickMade struct{}

// PickFailed names another receiver.
//
//	From:  stream
//	To:    flow
//	Reply: none
type PickFailed struct{}

type Bare struct{}

// A message whose comment begins otherwise.
//
//	From:  stream
//	To:    cycle
//	Reply: none
type Other struct {
	Count    int
	Wait     time.Duration
	A, B     float64
	Served   bool
	Priority ID
}

// ID is a number that says at its type what it is.
type ID uint64

type value struct{ hidden int }

func (Good) cycleMsg()       {}
func (PickMade) cycleMsg()   {}
func (PickFailed) cycleMsg() {}
func (Bare) cycleMsg()       {}
func (Other) cycleMsg()      {}
