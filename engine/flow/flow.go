// Package flow holds the requests that wait for room: bands of equal priority, the flows of a band, and the requests
// of a flow. It decides which request is next, which is refused and which is displaced. It owns no clock, no goroutine
// and no answer: an actor feeds it and tells requests what became of them. It never picks an endpoint.
//
// The contracts of the policies stand here. They are called on the loop of the actor, one at a time, and must neither
// wait nor keep an entry beyond the call, except that a queue keeps those that it holds.
package flow

import (
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// Entry is a request that waits. Queues.Push enters it, and until it has left it belongs to Queues: a queue writes its
// Handle, policies write nothing.
type Entry struct {
	Request messages.RequestID
	Flow    messages.FlowKey
	Class   Class
	Wanted  messages.EndpointID // that it waits for; zero = it waits for any of its class
	Cycle   messages.Sink[messages.CycleMsg]
	Wait
	Work
	Prefix blockindex.Prompt // its prompt, for what endpoints hold of it; without blocks = that does not matter
	Asked
	Order
	Handle
	seat
}

// Asked is what a request asks for, beside its sizes.
type Asked struct {
	Model     string // that is to serve, such as a LoRA adapter; "" = none is named
	Objective string // the name that the client gives; "" = none
	Headers   messages.List[messages.Header]
}

// Header returns the value of a header that a policy has declared, cut to 128 bytes; false = the request does not have
// it, or it came before the policy was in force.
func (a *Asked) Header(of attributes.HeaderSlot) (string, bool) {
	for _, h := range a.Headers.All() {
		if h.Name == of.Name() {
			return h.Value, true
		}
	}
	return "", false
}

// Wait says how long a request waits.
type Wait struct {
	Arrived  time.Time     // when its wait began
	Deadline time.Time     // until when it waits at most
	TTFT     time.Duration // within which the client wants the first token, from Arrived on; 0 = it did not say
}

// Work is the size of a request.
type Work struct {
	Bytes  int64 // of its body, that are held for it; 0 = none
	Prompt int   // tokens, estimated; 0 = unknown
	Output int   // tokens that it will generate, predicted; 0 = unknown
}

// Order is the place of a request among those of its flow. Queues sets it.
type Order struct {
	Key    int64  // what the ordering returned: the request with the least goes first
	Number uint64 // of arrival, from 1, which decides between equal keys; a request that is put back keeps it

	orderedBy *band // whose ordering returned Key; nil = none has
	builtIn   bool  // it was the built-in one, in place of one that panicked
}

// Handle is for the queue that holds the entry, to find it again. It is zero when the entry is pushed.
type Handle struct {
	Place int
	Links [2]*Entry
}

// seat is where an entry stands in Queues.
type seat struct {
	band  *band // in which it waits, or waited last
	line  *line // in which it waits; nil = it does not wait
	payer *flow // that was charged when it was dispatched; nil before
	over  int64 // tokens of prompts of requests that went before it although its turn had come
	crowd bool  // when it was dispatched, further requests of its flow waited

	dispatch, before uint64 // number of its dispatch, and of the one to its payer before that
}

// Crowds reports whether further requests of the entry's flow wait, or waited when it was dispatched.
func (e *Entry) Crowds() bool {
	if e.line != nil {
		return e.line.flow.crowds()
	}
	return e.crowd
}

// Class names a set of requests that may use the same endpoints, as far as was known when they were classified.
type Class uint64

// Reach says for which endpoints a request may wait.
type Reach struct {
	Pool          uint64 // version of the set of endpoints under which that was found
	Configuration uint64 // number of that of the request, which says how much room there is
	Would         uint64 // name of the endpoints that would do, as schedule has it
}

// ClassOf returns the class of requests for a model that are restricted to a subset, and that reach the same endpoints
// under one configuration. Requests of one class may differ in what they would do with endpoints that join, or that
// change: so those that were classified under another set of endpoints are of another class, and do not hold up each
// other.
func ClassOf(model string, subset messages.Subset, reach Reach) Class {
	d := xxhash.NewWithSeed(reach.Would)
	var words [16]byte
	binary.LittleEndian.PutUint64(words[:8], reach.Pool)
	binary.LittleEndian.PutUint64(words[8:], reach.Configuration)
	_, _ = d.Write(words[:]) // never fails
	_, _ = d.WriteString(model)
	if subset.Given {
		_, _ = d.WriteString("\x00")
	}
	for _, a := range subset.Addresses.All() {
		_, _ = d.WriteString(string(a) + "\x00")
	}
	return Class(d.Sum64())
}

// ClassAt returns the class of requests that wait for room at one endpoint.
func ClassAt(e messages.EndpointID) Class {
	return Class(1<<63 | uint64(e.Slot)<<32 | uint64(e.Generation))
}

// Each class without room costs a try when room changes, so a band tells so many apart. Requests of further ones share
// a few, in which one without room may hold up others.
const (
	mostClasses   = 2048
	sharedClasses = 16
)

// Before reports whether e goes before other by their keys, or by arrival if these are equal. Queues that keep an
// order keep this one.
func (e *Entry) Before(other *Entry) bool {
	if e.Key != other.Key {
		return e.Key < other.Key
	}
	return e.Number < other.Number
}

// Ordering decides which request of a flow is next.
type Ordering interface {
	// Key returns the place of an entry: of two requests of a flow the one with the lesser key goes first, and the
	// earlier one if the keys are equal. It is called once, when the request begins to wait.
	Key(e *Entry) int64

	// Needs returns what the queue must be able to do.
	Needs() Ability
}

// Ability is a set of what a queue can do beyond giving its first entry, and of what a policy needs of it.
type Ability uint8

const (
	// ArrivalOrder means that the first entry is the one that was pushed first.
	ArrivalOrder Ability = 1 << iota
	// KeyOrder means that the first entry is the one that goes before all others by Entry.Before.
	KeyOrder
	// Removal means that an entry can be taken out wherever it stands, in O(log n) or better.
	Removal
	// TailPeek means that the last entry by the queue's order is known, in O(log n) or better.
	TailPeek
	// Listing means that the queue is a Lister.
	Listing
)

// Needed is what a queue must be able to do whatever the policies are: entries leave when their client does, and the
// last one may be displaced.
const Needed = Removal | TailPeek

// Has reports whether a has all that b has.
func (a Ability) Has(b Ability) bool { return a&b == b }

// Names returns the names of the abilities in the set.
func (a Ability) Names() []string {
	var names []string
	for i, name := range []string{"arrival order", "key order", "removal", "peek at the tail", "listing"} {
		if a.Has(1 << i) {
			names = append(names, name)
		}
	}
	return names
}

// QueueType makes queues. There is one queue for each flow and class that has requests waiting.
type QueueType interface {
	// Can returns what each of its queues can do.
	Can() Ability

	// New returns an empty queue.
	New() Queue
}

// Queue holds the entries of one flow and class. It never holds an entry twice. Head, Tail and Remove are called only
// while it holds one.
type Queue interface {
	Push(e *Entry)
	Head() *Entry
	Tail() *Entry
	Remove(e *Entry)
	Len() int
}

// Lister is a queue that can list what it holds.
type Lister interface {
	// List calls yield with each entry, the first one first and the others in any order, until it returns false.
	List(yield func(*Entry) bool)
}

// Fairness decides which flow of a band is next.
type Fairness interface {
	// Rank returns the turn of a flow of which a request waits: the flow with the least is next, and that whose first
	// request came earlier if ranks are equal. It is called when a flow begins to wait, when it has another first
	// request, and when its account changes; until then the rank holds. A Meter is also asked without a head, which is
	// nil then, for a flow that is served without having waited.
	Rank(a *Account, head *Entry) int64

	// Join readies the account of a flow that begins to wait in a band that stands at a rank: that of the flow which
	// was served last, 0 before the first.
	Join(a *Account, rank int64)
}

// Meter is a Fairness that goes by what flows were charged. Its bands are told of what requests use while they run, and
// of requests that were dispatched without having waited. Other bands are not: their flows are charged for prompts
// alone, at dispatch.
type Meter interface {
	Fairness

	// Charge charges an account for so many tokens, at a time. What was charged too much comes with numbers below 0.
	Charge(a *Account, now time.Time, t Tokens)
}

// Weigher is a Fairness whose flows have weights.
type Weigher interface {
	Fairness

	// FlowWeights returns them by fairness id, each above 0; others have 1.
	FlowWeights() map[string]float64
}

// Chooser is a Fairness that weighs two things against each other, by what all flows have of them of which a request
// may be next, so that no rank says which one is. Its ranks hold in its place if it panics.
type Chooser interface {
	Fairness

	// Point returns what a flow has of both at a time, and until when that holds if neither its account nor its first
	// request changes. It is asked when one of them does, and when that time has passed. Only proportions matter: of
	// all points of a band at a time, one scale for each.
	Point(now time.Time, a *Account, head *Entry) (p Point, until time.Time)

	// Weights returns how much each of them weighs, 0 or more. The flow is next for which the sum of the weights, each
	// times where the flow stands between the least of all, which is 0, and the greatest, which is 1, is the least; of
	// equal ones that whose request came first.
	Weights() Point
}

// Point is two numbers that a Chooser gives.
type Point struct{ X, Y float64 }

// Local is a Fairness under which requests go before others because an endpoint that has room holds their prompts. Its
// ranks are tokens, and its queues are Listers.
type Local interface {
	Fairness

	// Quantum returns how far that goes: the rank of a flow whose request goes first exceeds that of the flow whose
	// turn it is by no more than this, and no request is passed over for more tokens of prompts; 0 = not at all.
	Quantum() int64
}

// Displacement decides which request of a band makes way when a limit is reached.
type Displacement interface {
	// Excess returns how much a flow has: of the flows of a band, the one with the most loses its last request, which
	// is last. A request that comes takes a place in its own band only from a flow that has more than its own: that is
	// asked with the one that comes counted in, and as last. NaN is less than any number. What it said of a flow holds
	// until its account or its last request changes.
	Excess(a *Account, last *Entry) float64
}

// Tokens are those of a request, or of a part of it.
type Tokens struct{ Prompt, Output int64 }

// Minus returns how many tokens t has more than other.
func (t Tokens) Minus(other Tokens) Tokens {
	return Tokens{t.Prompt - other.Prompt, t.Output - other.Output}
}

// Account is what one flow was given. Queues keeps it while the flow waits, and after that as long as there is room.
type Account struct {
	Weight   float64   // its share beside the other flows of the band; above 0
	Service  int64     // what it was charged, and what Join added to that; 0 or more
	At       time.Time // when it was charged last; zero = never
	Served   uint64    // number of the last dispatch to it in its band, from 1; 0 = none, or as Join says
	Requests int       // that wait
}
