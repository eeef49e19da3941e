package sim_test

import (
	"strconv"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// crowdMsg is what the crowd is told: it sends the clients.
type crowdMsg interface{ crowdMsg() }

// clientsDue is its timer: some clients come now.
type clientsDue struct{}

func (clientsDue) crowdMsg() {}

// silence is too long: the cycle ends first.
var silence = limits.ResponseIdle + 5*time.Second

const burst = 150 // clients at once, now and then: more than an inbox takes

type crowd struct {
	*world
	left int
	last messages.RequestID
}

func (c *crowd) Receive(ctx runtime.Context[crowdMsg], _ crowdMsg) {
	n := 1 + c.dice.IntN(3)
	if c.chance(.005) {
		n = burst
	}
	for range min(n, c.left) {
		c.left--
		c.send()
	}
	if c.left > 0 {
		ctx.After(c.upTo(20*time.Millisecond), clientsDue{})
	}
}

func (c *crowd) Stopped(runtime.Context[crowdMsg]) {}

// send lets one client in.
func (c *crowd) send() {
	c.last++
	one := c.newClient(c.last)
	role := runtime.Role[clientMsg]{Name: "client", New: func() runtime.Actor[clientMsg] { return one }}
	if _, ok := runtime.SpawnOuter(c.sys.Root(c.dice.IntN(loops)), role, clientMsg(clientCame{})); !ok {
		c.Fatalf("client %d was refused by the runtime", c.last)
	}
	c.ledger.present++
}

// newClient draws who comes and with what.
func (c *crowd) newClient(id messages.RequestID) *client {
	one := &client{
		world: c.world, line: c.ledger.open(id), deadline: 24 * time.Hour,
		flow: messages.FlowKey{Fairness: "tenant-" + strconv.Itoa(c.dice.IntN(9)), Priority: c.dice.IntN(2)},
		request: messages.Request{
			ID: id, ClientID: "client-" + strconv.Itoa(int(id)/2), Model: "model-" + strconv.Itoa(c.dice.IntN(3)), Path: "/v1/completions",
			Stream: c.dice.IntN(2) == 0, BodyBytes: 4000, PromptTokens: c.dice.IntN(4000), Blocks: c.prompt(),
		},
	}
	if c.faults.off {
		return one
	}
	switch p := c.dice.Float64(); {
	case p < .02:
		one.leaves = 1
	case p < .06:
		one.leaves = 1 + c.upTo(2*time.Millisecond)
	case p < .08:
		one.leaves = c.upTo(patience)
	}
	if c.chance(.02) {
		one.deadline = c.upTo(4 * time.Second)
	}
	if c.chance(.05) {
		one.request.Subset = messages.Subset{Given: true, Addresses: messages.ListOf(addressOf(c.dice.IntN(servers+2)), addressOf(1))}
	}
	return one
}

// prompt is the blocks of a prompt: a few families with shared beginnings.
func (c *crowd) prompt() messages.List[uint64] {
	family, n := uint64(c.dice.IntN(12)), c.dice.IntN(20)
	blocks := make([]uint64, 0, n)
	h := family * 0x9e3779b97f4a7c15
	own := uint64(c.dice.IntN(50))
	for i := range n {
		if i == 12 {
			h += own
		}
		h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
		blocks = append(blocks, h|1)
	}
	return messages.TakeList(blocks)
}

// response draws what becomes of a request that was sent to a model server.
func (c *client) response(to messages.List[messages.Address]) []scene {
	pick := c.dice.Float64()
	status, served := 200, messages.Address("")
	if c.faults.off {
		pick = 1
	}
	switch {
	case pick < .03: // hangs up before the response begins
		return []scene{c.gone(c.upTo(time.Second), false)}
	case pick < .035: // the server never says anything
		return []scene{c.gone(silence, false)}
	case pick < .10:
		status = 500 + c.dice.IntN(5)
	case pick < .14: // served by another one of the list, or not of it
		served = to.At(to.Len() - 1)
	case pick < .18:
		served = addressOf(c.dice.IntN(servers + 2))
	}
	started := scene{c.upTo(500 * time.Millisecond), func(now time.Time) messages.CycleMsg {
		return messages.ResponseStarted{Status: status, Served: served, At: now}
	}}
	scenes := []scene{started}
	if c.faults.off || status == 200 && c.chance(.97) {
		scenes = append(scenes, c.body()...)
	}
	if !c.faults.off && c.chance(.05) { // hangs up in the middle, wherever that is
		return append(scenes[:1+c.dice.IntN(len(scenes))], c.gone(c.upTo(time.Second), false))
	}
	scenes = append(scenes, scene{c.upTo(time.Second), func(now time.Time) messages.CycleMsg {
		return messages.ResponseEnded{At: now, ResponseBytes: 900, Usage: messages.Usage{PromptTokens: 90, OutputTokens: 9}}
	}})
	return append(scenes, c.gone(c.upTo(time.Millisecond), true))
}

// body is the response after its headers: the first token, and then signs of life, or a silence that is too long.
func (c *client) body() []scene {
	scenes := []scene{{c.upTo(time.Second), func(now time.Time) messages.CycleMsg { return messages.FirstTokenSeen{At: now} }}}
	for range c.dice.IntN(4) {
		scenes = append(scenes, scene{c.upTo(3 * time.Second), func(now time.Time) messages.CycleMsg {
			return messages.ResponseProgressed{At: now}
		}})
	}
	if !c.faults.off && c.chance(.005) {
		scenes = append(scenes, c.gone(silence, false))
	}
	return scenes
}

func (c *client) gone(after time.Duration, completed bool) scene {
	return scene{after, func(time.Time) messages.CycleMsg { return messages.StreamGone{Completed: completed} }}
}
