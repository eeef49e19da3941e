package sim_test

import (
	"strconv"
	"time"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// crowdMsg is what the crowd is told: it sends the clients.
type crowdMsg interface{ crowdMsg() }

// clientsDue is its timer: some clients come now.
type clientsDue struct{}

func (clientsDue) crowdMsg() {}

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
	if n == burst {
		c.other.ask()
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
	if _, ok := runtime.Start(c.sys.Root(c.dice.IntN(loops)), role, clientMsg(clientCame{})); !ok {
		c.Fatalf("client %d was refused by the runtime", c.last)
	}
	c.ledger.present++
}

// newClient draws a client and its request.
func (c *crowd) newClient(id messages.RequestID) *client {
	one := &client{
		world: c.world, line: c.ledger.open(id), under: c.picker.InForce(), deadline: 24 * time.Hour,
		flow: messages.FlowKey{Fairness: "tenant-" + strconv.Itoa(c.dice.IntN(9)), Priority: c.dice.IntN(3) - 1},
		request: messages.Request{
			ID: id, ClientID: "client-" + strconv.Itoa(int(id)/2), Model: "model-" + strconv.Itoa(c.dice.IntN(3)),
			Path:   "/v1/completions",
			Stream: c.dice.IntN(2) == 0, Visible: c.dice.IntN(2) == 0, BodyBytes: 4000, PromptTokens: c.dice.IntN(4000),
			Blocks: c.prompt(), Salt: c.salt(),
			Headers: messages.ListOf(messages.HeaderValue{Text: "session-" + strconv.Itoa(int(id)/4), Given: true}),
		},
	}
	one.line.configuration = c.configurations
	const block = blockindex.BlockTokens // of which a part counts as one where the prefix index is asked
	one.line.tokens = (one.request.PromptTokens + block - 1) / block * block
	if c.faults.off {
		return one
	}
	switch p := c.dice.Float64(); {
	case p < .02:
		one.line.partial, one.line.excused = true, true
	case p < .03:
		one.leaves = 1
	case p < .07:
		one.leaves = 1 + c.upTo(2*time.Millisecond)
	case p < .09:
		one.leaves = c.upTo(patience)
	}
	if c.chance(.02) {
		one.deadline = c.upTo(4 * time.Second)
		c.faults.drew(shortDeadline)
	}
	if c.chance(.05) {
		one.request.Subset = messages.Subset{Given: true, Addresses: messages.ListOf(addressOf(c.dice.IntN(servers+2)),
			addressOf(1))}
	}
	return one
}

// salt keeps a few prompts apart from the others.
func (c *crowd) salt() string {
	if c.dice.IntN(10) == 0 {
		return "salt"
	}
	return ""
}

// prompt is the blocks of a prompt: a few families with shared beginnings.
func (c *crowd) prompt() messages.List[uint64] {
	family, n := uint64(1+c.dice.IntN(12)), c.dice.IntN(c.longest)
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
