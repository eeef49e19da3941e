package policybench

import (
	"container/list"
	"math"
)

// none has nothing to remember.
type none struct{}

func (none) sent(*exchange)  {}
func (none) first(*exchange) {}
func (none) ended(*exchange) {}
func (none) restarted(int)   {}

// random picks any server.
type random struct{ none }

func (random) pick(w *world, _ *exchange) int {
	return least(w, func(int) float64 { return w.rand.Float64() })
}

// roundRobin picks the servers in turn.
type roundRobin struct {
	none
	next int
}

func (p *roundRobin) pick(w *world, _ *exchange) int {
	for {
		p.next++
		if i := p.next % len(w.servers); w.servers[i].in {
			return i
		}
	}
}

// least returns the server in the pool with the least cost; of several, one by chance.
func least(w *world, cost func(server int) float64) int {
	best, lowest, ties := -1, math.Inf(1), 0
	for i, n := range w.servers {
		if !n.in {
			continue
		}
		c := cost(i)
		if best < 0 || c < lowest {
			best, lowest, ties = i, c, 1
		} else if c == lowest {
			if ties++; w.rand.IntN(ties) == 0 {
				best = i
			}
		}
	}
	if best < 0 {
		return 0 // no server is in the pool: the request breaks
	}
	return best
}

// estimator knows what it sent where, as a picker can: requests and uncached tokens in flight, and which blocks a
// server should hold.
type estimator struct {
	cost func(e *estimator, w *world, x *exchange, server int) float64

	requests []int
	tokens   []int // uncached ones of prompts, until the first token
	caches   []*recent
	miss     []int // of the request that is picked for
}

func (e *estimator) pick(w *world, x *exchange) int {
	for len(e.requests) < len(w.servers) {
		e.requests, e.tokens, e.miss = append(e.requests, 0), append(e.tokens, 0), append(e.miss, 0)
		e.caches = append(e.caches, newRecent(w.servers[len(e.caches)].KVBlocks))
	}
	for i := range w.servers {
		e.miss[i] = x.miss(e.caches[i].hits(x.blocks))
	}
	return least(w, func(i int) float64 { return e.cost(e, w, x, i) })
}

func (e *estimator) sent(x *exchange) {
	x.counted = e.miss[x.server]
	e.requests[x.server]++
	e.tokens[x.server] += x.counted
	e.caches[x.server].add(x.blocks)
}

func (e *estimator) first(x *exchange) {
	e.tokens[x.server] -= x.counted
	x.counted = 0
}

func (e *estimator) ended(x *exchange) {
	e.first(x)
	e.requests[x.server]--
}

func (e *estimator) restarted(server int) {
	if server < len(e.caches) {
		e.caches[server] = newRecent(e.caches[server].most)
	}
}

// recent is a set of blocks whose least recently used make way.
type recent struct {
	most  int
	order list.List // uint64, least recently used first
	at    map[uint64]*list.Element
}

func newRecent(most int) *recent { return &recent{most: most, at: map[uint64]*list.Element{}} }

func (r *recent) hits(prompt []uint64) int {
	for i, id := range prompt {
		if r.at[id] == nil {
			return i
		}
	}
	return len(prompt)
}

// add adds a prompt. Its end makes way before its beginning.
func (r *recent) add(prompt []uint64) {
	for i := len(prompt) - 1; i >= 0; i-- {
		if e := r.at[prompt[i]]; e != nil {
			r.order.MoveToBack(e)
		} else {
			r.at[prompt[i]] = r.order.PushBack(prompt[i])
		}
	}
	for len(r.at) > r.most {
		delete(r.at, r.order.Remove(r.order.Front()).(uint64))
	}
}

// leastRequest has the fewest requests in flight.
func leastRequest(e *estimator, _ *world, _ *exchange, i int) float64 { return float64(e.requests[i]) }

// greedy has the prompt computed soonest: what was sent and has no first token yet, and what is not cached.
func greedy(e *estimator, _ *world, _ *exchange, i int) float64 {
	return float64(e.tokens[i] + e.miss[i])
}

// lmetric is the product of the tokens to compute, those of this prompt included, and of the requests there.
func lmetric(e *estimator, _ *world, _ *exchange, i int) float64 {
	return float64(e.tokens[i]+e.miss[i]) * float64(e.requests[i]+1)
}

// oracle knows the true cache and the true queue of each server at the moment of the pick.
type oracle struct {
	none
	cost func(w *world, x *exchange, n *node) float64
}

func (o oracle) pick(w *world, x *exchange) int {
	for _, n := range w.servers {
		w.advance(n)
	}
	return least(w, func(i int) float64 { return o.cost(w, x, w.servers[i]) })
}

// trueGreedy is the time until the prompt is computed.
func trueGreedy(_ *world, x *exchange, n *node) float64 {
	return float64(n.ahead()+n.miss(x)) / n.rate(x.prompt)
}

// trueProduct is LMetric of the truth.
func trueProduct(_ *world, x *exchange, n *node) float64 {
	return float64(n.ahead()+n.miss(x)) / n.rate(x.prompt) * float64(len(n.waiting)+len(n.running)+1)
}

// idealSticky stays at the server that truly holds most of a prompt, or will hold it after what is there already, the
// least loaded one of several, until that is saturated by its true state: prompts of more than patience are to be
// computed there before, and that many more than at the least loaded server, which then takes the request. A prompt of
// which no server holds half goes to the least loaded one.
type idealSticky struct {
	none
	patience float64 // seconds
}

func (p idealSticky) pick(w *world, x *exchange) int {
	ahead := make([]float64, len(w.servers))
	most := 0
	for i, n := range w.servers {
		w.advance(n)
		ahead[i] = float64(n.ahead()) / n.rate(x.prompt)
		if n.in {
			most = max(most, n.holds(x.blocks))
		}
	}
	idle := least(w, func(i int) float64 { return ahead[i] + float64(len(w.servers[i].running))*1e-6 })
	if 2*most < len(x.blocks) || most == 0 {
		return idle
	}
	home := least(w, func(i int) float64 {
		if w.servers[i].holds(x.blocks) < most {
			return math.Inf(1)
		}
		return ahead[i]
	})
	if ahead[home]-ahead[idle] > p.patience {
		return idle
	}
	return home
}
