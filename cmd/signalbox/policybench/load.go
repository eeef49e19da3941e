package policybench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Load is where requests come from: Trace, as it is scaled.
type Load struct {
	Trace    *Trace
	Scale    int           // lengths, and times to think, are divided by it
	ThinkMax time.Duration // the longest time to think, after that
	Clients  int           // of a closed loop
	Rate     float64       // by which an open loop is faster than the trace; its times are divided by it
	Skip     int           // so many requests of an open loop are left out, at the beginning
	Tenants  int           // the clients belong to so many; 0 = 1
	Ramp     time.Duration // within which the clients of a closed loop begin
}

func (l Load) begin(w *world) {
	if l.Trace.Requests != nil {
		l.opens(w)
		return
	}
	for i := range l.Clients {
		c := &client{load: l, number: i, rand: rand.New(rand.NewPCG(w.Seed, uint64(i)+100))}
		c.tenant = fmt.Sprintf("tenant-%d", i%max(l.Tenants, 1))
		w.after(time.Duration(c.rand.Float64()*float64(l.Ramp)), func() { c.begin(w, true) })
	}
}

// opens has the requests of an open loop come, each at its time, from Skip on and then from the beginning.
func (l Load) opens(w *world) {
	all := l.Trace.Requests
	span := all[len(all)-1].At + time.Second
	begin, lap, round := all[l.Skip%len(all)].At, time.Duration(0), uint64(0)
	i := l.Skip % len(all)
	var next func()
	next = func() {
		if w.closing() {
			return
		}
		r := all[i]
		w.ask(&exchange{demand: demand{
			prompt: max(r.Prompt/l.Scale, 1), output: max(r.Output/l.Scale, 1), blocks: r.scaled(l.Scale, round),
			tenant: fmt.Sprintf("tenant-%d", i%max(l.Tenants, 1)),
		}})
		if i++; i == len(all) {
			i, lap, round = 0, lap+span, round+1
		}
		at := start.Add(time.Duration(float64(all[i].At+lap-begin) / l.Rate))
		w.after(max(at.Sub(w.now), 0), next)
	}
	w.after(0, next)
}

// scaled returns the whole blocks of a prompt that is so many times shorter. Each round of a trace has its own.
func (r Request) scaled(scale int, round uint64) []uint64 {
	n := r.Prompt / scale / blockTokens
	blocks := make([]uint64, n)
	for i := range blocks {
		if ends := (i + 1) * blockTokens * scale; r.BlockTokens > 0 &&
			(ends+r.BlockTokens-1)/r.BlockTokens <= len(r.Blocks) {
			blocks[i] = mix(r.Blocks[(ends+r.BlockTokens-1)/r.BlockTokens-1]+round<<40, uint64(i))
		} else {
			blocks[i] = mix(math.Float64bits(float64(r.At))+round<<40, uint64(i)+1<<32)
		}
	}
	return blocks
}

// mix returns a name that two numbers make.
func mix(a, b uint64) uint64 {
	h := a*0x9e3779b97f4a7c15 ^ (b + 0x7f4a7c15<<7)
	h ^= h >> 31
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 29
	h *= 0x94d049bb133111eb
	return h ^ h>>32
}

// client plays sessions, one after the other.
type client struct {
	load    Load
	number  int
	tenant  string
	rand    *rand.Rand
	session *Session
	serial  uint64     // of sessions
	turn    int        // the next one
	past    [][]uint64 // blocks of each turn so far; nil = it was left out
}

// begin begins a session. The first one begins in its middle, as if the client had been there before.
func (c *client) begin(w *world, first bool) {
	all := c.load.Trace.Sessions
	c.session, c.serial, c.turn = &all[c.rand.IntN(len(all))], c.serial+1, 0
	if n := len(c.session.Turns); first {
		c.turn = c.rand.IntN(n)
	}
	c.past = make([][]uint64, len(c.session.Turns))
	c.ask(w)
}

// next goes on when a request has ended.
func (c *client) next(w *world) {
	if w.closing() {
		return
	}
	if c.turn == len(c.session.Turns) {
		w.after(c.think(c.session.Turns[0].Think), func() { c.begin(w, false) })
		return
	}
	w.after(c.think(c.session.Turns[c.turn].Think), func() { c.ask(w) })
}

func (c *client) think(d time.Duration) time.Duration {
	return min(d/time.Duration(c.load.Scale), c.load.ThinkMax) + time.Duration(c.rand.IntN(100))*time.Millisecond
}

// ask sends the next request.
func (c *client) ask(w *world) {
	if w.closing() {
		return
	}
	turn := c.session.Turns[c.turn]
	x := &exchange{client: c, demand: demand{
		tenant: c.tenant, prompt: max(turn.Prompt/c.load.Scale, 1), output: max(turn.Output/c.load.Scale, 1),
	}}
	x.blocks = c.blocks(turn, x.prompt/blockTokens)
	c.past[c.turn] = x.blocks
	if c.turn++; c.turn > keptTurns {
		c.past[c.turn-keptTurns-1] = nil
	}
	w.ask(x)
}

// keptTurns is how far back a turn can share blocks with another.
const keptTurns = 64

// blocks returns the blocks of a turn: first those that it shares with one before, or with other sessions.
func (c *client) blocks(turn Turn, n int) []uint64 {
	blocks := make([]uint64, 0, n)
	if back := c.turn - turn.Back; turn.Back > 0 && c.past[back] != nil {
		blocks = append(blocks, c.past[back][:min(turn.Shared/c.load.Scale, n, len(c.past[back]))]...)
	}
	front := (c.session.Tools + c.session.System) / c.load.Scale / blockTokens
	pair := mix(uint64(c.session.Tools), uint64(c.session.System))
	own := mix(uint64(c.number)<<32|c.serial, uint64(c.turn)+1<<20)
	for i := len(blocks); i < n; i++ {
		if i < front {
			blocks = append(blocks, mix(pair, uint64(i)))
		} else {
			blocks = append(blocks, mix(own, uint64(i)))
		}
	}
	return blocks
}
