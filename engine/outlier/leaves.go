package outlier

import (
	"slices"
	"time"
)

// Leave is a client that left before the first token of a streamed answer.
type Leave struct {
	Client string    // by which it can be told from others; "" = it cannot
	Picked time.Time // when its request was picked
	Left   time.Time
}

// Leaves holds the newest leaves of an endpoint that count, the oldest first. A leave counts if the endpoint gave
// nothing to any request since it was picked, while another endpoint gave the first token for a prompt as long in half
// of the time that the client waited. A client that is merely impatient meets neither: it leaves before others would
// have had their token.
type Leaves struct{ all []Leave }

const (
	mostLeaves = 16 // that are kept
	manyLeaves = 3  // that are a failure
	// leavesSpan is from the first pick of the leaves that are a failure to the last leave. It is longer than the
	// access log of the shipped Envoy files takes to say that the endpoint gave something meanwhile.
	leavesSpan = 6 * time.Second
)

// Counts reports whether a leave counts. token is when the endpoint last gave a token, and elsewhere the newest pick
// that another endpoint answered well although it had as much of the prompt to compute.
func (l *Leave) Counts(token, elsewhere time.Time) bool {
	return token.Before(l.Picked) && elsewhere.After(l.Picked.Add(l.Left.Sub(l.Picked)/2))
}

// Add adds a leave that counts, and reports whether the leaves are a failure of the endpoint: many, over some time,
// of several clients.
func (ls *Leaves) Add(leave Leave, token time.Time) bool {
	ls.all = slices.DeleteFunc(ls.all, func(l Leave) bool {
		return !token.Before(l.Picked) || leave.Left.Sub(l.Left) > memory
	})
	if len(ls.all) == mostLeaves {
		ls.all = slices.Delete(ls.all, 0, 1)
	}
	ls.all = append(ls.all, leave)
	first, several := leave.Picked, false
	for i := range ls.all {
		if ls.all[i].Picked.Before(first) {
			first = ls.all[i].Picked
		}
		several = several || slices.ContainsFunc(ls.all[:i], ls.all[i].ofAnother)
	}
	return len(ls.all) >= manyLeaves && several && leave.Left.Sub(first) >= leavesSpan
}

// Of reports whether a client is among those that left.
func (ls *Leaves) Of(client string, now time.Time) bool {
	return slices.ContainsFunc(ls.all, func(l Leave) bool { return l.Client == client && now.Sub(l.Left) <= memory })
}

// ofAnother reports whether two leaves are of different clients. Of clients that cannot be told apart those are that
// waited at the same time.
func (l Leave) ofAnother(other Leave) bool {
	if l.Client != other.Client {
		return true
	}
	return l.Client == "" && l.Picked.Before(other.Left) && other.Picked.Before(l.Left)
}
