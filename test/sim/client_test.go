package sim_test

import (
	"cmp"
	"fmt"
	"time"

	"github.com/signalbox-epp/signalbox"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// patience is how long a stream waits for its answer: a second more than the limits allow.
var patience = limits.Queue + limits.Pick + time.Second

// clientMsg is what a client is told: the stream of one request, and the client behind it.
type clientMsg interface{ clientMsg() }

type clientCame struct{}

// clientTold is a message of the cycle.
type clientTold struct{ what messages.StreamMsg }

// clientLeaves says that the client hangs up now, whatever it waits for.
type clientLeaves struct{ generation int }

// answerMissing says that the stream's own deadline passed.
type answerMissing struct{}

// responseMoves plays the next scene of the response.
type responseMoves struct{}

// entryComes is the proxy's access log: the response has ended, or goes on for some entries more.
type entryComes struct{ before int }

func (clientCame) clientMsg()    {}
func (clientTold) clientMsg()    {}
func (clientLeaves) clientMsg()  {}
func (answerMissing) clientMsg() {}
func (responseMoves) clientMsg() {}
func (entryComes) clientMsg()    {}

// client is one request from outside.
type client struct {
	*world
	line     *line
	under    *signalbox.Configuration // in force when its headers came
	request  messages.Request
	flow     messages.FlowKey
	deadline time.Duration
	leaves   time.Duration // after it came; 0 = it does not leave before an answer

	cycle      messages.Port[messages.CycleMsg]
	scenes     []scene
	step       string // how far it has come, of steps
	generation int
}

// scene is one step of a response: what the stream says, how long after the one before, and how far the client has
// come then.
type scene struct {
	after time.Duration
	says  func(now time.Time) messages.CycleMsg
	step  string // "" = no further
	wish  bool   // it leaves by its own wish
}

// mouth is the address that the cycle tells. It notes every message before anything can lose it.
type mouth struct {
	line *line
	self messages.Sink[clientMsg]
}

func (o mouth) Tell(m messages.StreamMsg) bool {
	o.line.heard(m)
	return o.self.Tell(clientTold{m})
}

func (c *client) Receive(ctx runtime.Context[clientMsg], m clientMsg) {
	switch m := m.(type) {
	case clientCame:
		c.onClientCame(ctx)
	case clientTold:
		c.onClientTold(ctx, m)
	case clientLeaves:
		if m.generation == c.generation {
			c.leave(ctx)
		}
	case answerMissing:
		c.onAnswerMissing(ctx)
	case responseMoves:
		c.onResponseMoves(ctx)
	case entryComes:
		c.onEntryComes(ctx, m)
	}
}

func (c *client) onClientCame(ctx runtime.Context[clientMsg]) {
	if c.line.partial {
		c.step = steps[0]
		c.picker.Refused(messages.RequestRefused{Record: messages.Record{
			Request: c.request.ID, ClientID: c.request.ClientID, ArrivedAt: ctx.Now(), Reason: messages.ClientGone,
		}})
		c.cycle = nowhere{}
		c.leave(ctx)
		return
	}
	cycle, ok := c.under.Start(messages.RequestArrived{
		Request: c.request, Configuration: c.line.configuration, Flow: c.flow,
		ArrivedAt: ctx.Now(), Deadline: ctx.Now().Add(c.deadline),
		Stream:     mouth{c.line, ctx.Self()},
		Connection: messages.ConnectionID(1 + c.request.ID%connections),
	})
	if !ok {
		c.line.refused = true
		c.faults.drew(inboxDoor)
		ctx.Stop()
		return
	}
	c.cycle = cycle
	switch {
	case c.leaves == 1:
		c.step = steps[1]
		c.leave(ctx)
		return
	case c.leaves > 0:
		ctx.After(c.leaves, clientLeaves{})
	}
	c.step = steps[2]
	ctx.After(patience, answerMissing{})
}

// nowhere is the address of a cycle that was never to be.
type nowhere struct{}

func (nowhere) Post(messages.CycleMsg) bool { return false }

// leave is the client's own wish.
func (c *client) leave(ctx runtime.Context[clientMsg]) {
	c.faults.drew(goneAt(c.step))
	c.hangUp(ctx, messages.StreamGone{})
}

func (c *client) hangUp(ctx runtime.Context[clientMsg], why messages.StreamGone) {
	c.line.gone = true
	c.cycle.Post(why)
	ctx.Stop()
}

func (c *client) onAnswerMissing(ctx runtime.Context[clientMsg]) {
	if c.line.answers() > 0 {
		return
	}
	c.line.late = true
	c.hangUp(ctx, messages.StreamGone{Answered: messages.PickTimeout})
}

func (c *client) onClientTold(ctx runtime.Context[clientMsg], m clientTold) {
	switch m := m.what.(type) {
	case messages.PickMade:
		c.step = steps[3]
		c.generation++ // a client that was to leave before the answer has left by now
		c.onPickMade(ctx, m)
	case messages.PickFailed, messages.ServingRevoked:
		c.hangUp(ctx, messages.StreamGone{})
	case messages.AnswerDue:
	}
}

func (c *client) onPickMade(ctx runtime.Context[clientMsg], m messages.PickMade) {
	if fault := distinct(m.Destinations); fault != "" {
		c.line.faulty = fault
	}
	c.scenes = c.response(m.Destinations)
	c.next(ctx)
}

func distinct(to messages.List[messages.Address]) string {
	seen := map[messages.Address]bool{}
	for _, a := range to.All() {
		seen[a] = true
	}
	if to.Len() == 0 || len(seen) != to.Len() || to.Len() > 3 {
		return fmt.Sprintf("destinations %v", to.Append(nil))
	}
	return ""
}

func (c *client) next(ctx runtime.Context[clientMsg]) {
	if len(c.scenes) > 0 {
		ctx.After(c.scenes[0].after, responseMoves{})
	}
}

func (c *client) onResponseMoves(ctx runtime.Context[clientMsg]) {
	now := c.scenes[0]
	c.scenes = c.scenes[1:]
	says := now.says(ctx.Now())
	if gone, ok := says.(messages.StreamGone); ok {
		if now.after > limits.ResponseIdle && c.line.ends < c.line.begun {
			c.line.faulty = "nobody ended a response that was silent for too long"
		}
		if now.wish {
			c.leave(ctx)
			return
		}
		if gone.Logged && !c.faults.off && c.chance(.3) {
			gone.Log = messages.LogAwaited + messages.LogState(c.dice.IntN(2))
			c.faults.drew(logUnproven)
		}
		if gone.Logged && (c.faults.off || c.chance(.9)) {
			c.line.gone = true
			c.cycle.Post(gone)
			ctx.After(c.upTo(3*time.Second), entryComes{before: c.dice.IntN(3)})
			return
		}
		if gone.Logged {
			c.faults.drew(entryLost)
		}
		c.hangUp(ctx, gone)
		return
	}
	c.cycle.Post(says)
	c.step = cmp.Or(now.step, c.step)
	c.next(ctx)
}

// connections is how many requests come on.
const connections = 3

// onEntryComes tells the shard what the log has. Its cycle may have ended before.
func (c *client) onEntryComes(ctx runtime.Context[clientMsg], m entryComes) {
	if !c.faults.off && c.chance(.01) {
		c.faults.drew(logEnded)
		c.picker.LogStreamEnded()
		c.picker.ConnectionDoubted(messages.ConnectionID(1 + c.dice.IntN(connections)))
	}
	if m.before > 0 {
		c.picker.Ongoing(messages.ExchangeOngoing{Request: c.request.ID,
			Response: messages.ResponseOngoing{ResponseBytes: c.dice.Int64N(2)}})
		ctx.After(c.upTo(3*time.Second), entryComes{before: m.before - 1})
		return
	}
	end := messages.ResponseEnded{At: ctx.Now(), ResponseBytes: 900,
		Logged: messages.Logged{Status: 200, Headers: time.Millisecond, FirstToken: time.Millisecond}}
	if !c.faults.off {
		end.Logged.ClientLeft, end.Logged.Broken = c.chance(.05), c.chance(.05)
	}
	c.ledger.entries.told++
	c.picker.Ended(messages.ExchangeLogged{Request: c.request.ID, End: end})
	ctx.Stop()
}

func (c *client) Stopped(runtime.Context[clientMsg]) { c.ledger.present-- }
