package policybench

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// start is what the clock says at first.
var start = time.Unix(1_800_000_000, 0)

// Play is what is played to a policy.
type Play struct {
	Seed    uint64
	Servers []Engine
	Away    int // so many of the last servers are not in the pool until an event brings them
	Load    Load
	Warm    time.Duration // what comes before is not measured
	Length  time.Duration // what comes after Warm+Length is not measured either
	Page    time.Duration // between two metrics pages of a server
	Events  []Event

	elsewhere func(*exchange) // takes requests in the place of the modelled servers; nil = these do
}

// drain is how long what is measured has to end, after the last of it has come. What has no first token then is lost.
const drain = 90 * time.Second

// Event changes something at a time.
type Event struct {
	At time.Duration
	Do func(*world)
}

// policy picks a server for each request. It is told what becomes of requests.
type policy interface {
	pick(w *world, x *exchange) int // of w.servers, one that is in the pool
	sent(x *exchange)
	first(x *exchange)
	ended(x *exchange) // also if it was lost
	restarted(server int)
}

// exchange is one request on its way.
type exchange struct {
	demand
	number int
	client *client // nil = it came at a time of its own
	tries  int

	moments
	server int // -1 = none yet
	cached int // tokens of the prompt
	lost   bool

	port    messages.Port[messages.CycleMsg] // of the product's picker; nil = it was not asked
	counted int                              // tokens that a policy counts in flight
}

// demand is what is asked for.
type demand struct {
	tenant         string
	prompt, output int      // tokens
	blocks         []uint64 // whole blocks of the prompt, by names that tell all that is before them, too
}

// moments are when what happened to an exchange.
type moments struct {
	came   time.Time // the first try
	at     time.Time // this try
	picked time.Time
	first  time.Time // zero = none yet
	ended  time.Time // zero = not yet
}

// world is everything there is.
type world struct {
	Play
	policy  policy // nil = product
	product *product
	rand    *rand.Rand
	now     time.Time
	due     events
	serial  int
	servers []*node
	last    int
	open    int // exchanges that have come and not ended
	all     []*exchange
	over    bool
}

// node is a model server, and what is around it.
type node struct {
	*server
	at      messages.Address
	open    map[*exchange]bool
	woken   time.Time
	in      bool // in the pool
	down    bool // it takes no connections
	started time.Time
	before  tally // of the processes before this one
}

type event struct {
	at     time.Time
	serial int
	do     func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].serial < e[j].serial
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*e = old[:len(old)-1]
	return last
}

// after has something happen later.
func (w *world) after(d time.Duration, do func()) {
	w.serial++
	heap.Push(&w.due, event{w.now.Add(d), w.serial, do})
}

// happen does what is due by now.
func (w *world) happen() {
	for len(w.due) > 0 && !w.due[0].at.After(w.now) {
		heap.Pop(&w.due).(event).do()
	}
}

// begin puts the servers up and has the first requests come.
func (w *world) begin() {
	for i, e := range w.Servers {
		w.servers = append(w.servers, &node{
			server: newServer(
				e,
				w.watched(),
			),
			at:      messages.Address(fmt.Sprintf("10.0.0.%d:80", i+1)),
			open:    map[*exchange]bool{},
			in:      i < len(w.Servers)-w.Away,
			started: start.Add(-time.Hour),
		})
	}
	for _, e := range w.Play.Events {
		w.after(e.At, func() { e.Do(w) })
	}
	w.Load.begin(w)
	w.after(w.Warm+w.Length+drain, func() { w.over = true })
}

// watched reports whether the policy knows what is in the servers.
func (w *world) watched() bool {
	switch w.policy.(type) {
	case oracle, idealSticky:
		return true
	}
	return false
}

// closing reports whether all that is measured has come.
func (w *world) closing() bool { return !w.now.Before(start.Add(w.Warm + w.Length)) }

// play plays all to a policy that is a rule.
func (w *world) play() {
	w.begin()
	for !w.finished() && len(w.due) > 0 {
		w.now = w.due[0].at
		w.happen()
	}
}

func (w *world) finished() bool { return w.over || w.closing() && w.open == 0 }

// ask begins a request.
func (w *world) ask(x *exchange) {
	w.last++
	x.number, x.server, x.at = w.last, -1, w.now
	if x.came.IsZero() {
		x.came = w.now
		w.all = append(w.all, x)
		w.open++
	}
	if w.product != nil {
		w.product.ask(x)
		return
	}
	x.server = w.policy.pick(w, x)
	w.policy.sent(x)
	w.send(x, x.server)
}

// send submits a request to a server.
func (w *world) send(x *exchange, server int) {
	n := w.servers[server]
	x.server, x.picked = server, w.now
	if w.elsewhere != nil {
		w.elsewhere(x)
		return
	}
	if n.down || !n.fits(x) {
		w.breaks(x)
		return
	}
	w.advance(n)
	n.open[x] = true
	n.submit(x, w.now)
	w.wake(n)
}

// wake has a server go on when something happens there.
func (w *world) wake(n *node) {
	at := n.server.wake()
	if at.IsZero() || at.Equal(n.woken) {
		return
	}
	n.woken = at
	s := n.server
	w.after(at.Sub(w.now), func() {
		if n.server == s && n.woken.Equal(at) {
			n.woken = time.Time{}
			w.advance(n)
			w.wake(n)
		}
	})
}

// advance takes what came out of a server.
func (w *world) advance(n *node) {
	n.advance(w.now, func(q *sequence, at time.Time) {
		x := q.exchange
		if q.generated == 1 {
			x.first, x.cached = at, q.cached
			if w.product != nil {
				w.product.first(x)
			} else {
				w.policy.first(x)
			}
		}
		if q.generated == x.output {
			x.ended = at
			delete(n.open, x)
			w.leave(x)
		}
	})
}

// leave ends an exchange.
func (w *world) leave(x *exchange) {
	w.open--
	if w.product != nil {
		w.product.ended(x)
	} else {
		w.policy.ended(x)
	}
	if x.client != nil {
		x.client.next(w)
	}
}

// maxTries is how often a client asks before it gives up.
const maxTries = 4

// breaks ends a try whose server has broken the connection or did not take it. The client tries again.
func (w *world) breaks(x *exchange) {
	if w.product != nil {
		w.product.broke(x)
	} else {
		w.policy.ended(x)
	}
	w.again(x, time.Second)
}

// again has the client of a request that failed try it once more.
func (w *world) again(x *exchange, wait time.Duration) {
	if x.tries++; x.tries == maxTries {
		x.lost = true
		w.open--
		if x.client != nil {
			x.client.next(w)
		}
		return
	}
	retry := *x // the picker may still hold the try before
	retry.port, retry.first, retry.counted = nil, time.Time{}, 0
	i := slices.Index(w.all, x)
	w.after(wait, func() {
		w.all[i] = &retry
		w.ask(&retry)
	})
}

// bring puts a server into the pool, or takes it out.
func (w *world) bring(server int, in bool) {
	w.servers[server].in = in
	if w.product != nil {
		w.product.publish()
	}
}

// noticed is how long it takes until a server that is down leaves the pool.
const noticed = time.Second

// restart has a server go down, and come back after a time without its cache.
func (w *world) restart(server int, away time.Duration) {
	n := w.servers[server]
	w.advance(n)
	n.down = true
	n.before = n.before.plus(n.tally)
	broken := make([]*exchange, 0, len(n.open))
	for x := range n.open {
		broken = append(broken, x)
	}
	slices.SortFunc(broken, func(a, b *exchange) int { return a.number - b.number })
	n.server, n.open, n.woken = newServer(n.Engine, w.watched()), map[*exchange]bool{}, time.Time{}
	for _, x := range broken {
		w.breaks(x)
	}
	w.after(min(noticed, away), func() { w.bring(server, false) })
	w.after(away, func() {
		n.down, n.started = false, w.now
		if w.policy != nil {
			w.policy.restarted(server)
		}
		w.bring(server, true)
	})
}

func (t tally) plus(o tally) tally {
	return tally{
		t.prompt + o.prompt,
		t.cached + o.cached,
		t.computed + o.computed,
		t.busy + o.busy,
		t.preempted + o.preempted,
	}
}
