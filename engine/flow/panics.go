package flow

import "runtime/debug"

// Panic is one panic of a policy that decides over requests which wait. It was caught: its policy did without.
type Panic struct {
	Policy string // its kind, such as fairness policy
	Type   string // as the configuration names it
	Value  any
	Stack  []byte
	Times  uint64 // how often this policy has panicked so far, with this one
}

// Caught counts what was caught of policies, and tells of it: of the first panic of a policy, the second, the fourth,
// and so on, so that one which panics for every request fills no log. It belongs to one actor.
type Caught struct {
	all   uint64
	times map[[2]string]uint64 // by kind and type; types are those that the program has
	tell  func(Panic)
}

// NewCaught returns one that has counted nothing. tell is called on the actor's loop, and must not block; nil = it only
// counts.
func NewCaught(tell func(Panic)) *Caught { return &Caught{times: map[[2]string]uint64{}, tell: tell} }

// Note notes a panic. It is called by the function that has recovered it, so that the stack is that of the panic.
func (c *Caught) Note(policy, typ string, value any) {
	c.all++
	key := [2]string{policy, typ}
	c.times[key]++
	if n := c.times[key]; c.tell != nil && n&(n-1) == 0 {
		c.tell(Panic{policy, typ, value, debug.Stack(), n})
	}
}

// Total returns how many panics there were.
func (c *Caught) Total() uint64 { return c.all }
