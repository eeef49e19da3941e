package sim_test

import (
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// silence is too long: the cycle ends first.
var silence = limits.ResponseIdle + 5*time.Second

// response draws what becomes of a request that was sent to a model server.
func (c *client) response(to messages.List[messages.Address]) []scene {
	pick := c.dice.Float64()
	status, served := 200, messages.Address("")
	if c.chance(.5) {
		served = to.At(0) // as a proxy says that tells who served
	}
	if c.faults.off {
		pick = 1
	}
	switch {
	case pick < .03:
		return []scene{c.leaving()}
	case pick < .035:
		c.faults.drew(serverSilent)
		return []scene{c.over(silence, false)}
	case pick < .10:
		c.faults.drew(serverFailed)
		status = 500 + c.dice.IntN(5)
	case pick < .14:
		c.faults.drew(servedElse)
		served = to.At(to.Len() - 1)
	case pick < .18:
		if served = addressOf(c.dice.IntN(servers + 2)); c.pool.Snapshot().ByAddress(served) == nil {
			c.faults.drew(servedUnknown)
		}
	}
	passes := status == 200 && c.chance(.3)
	started := scene{after: c.upTo(500 * time.Millisecond), step: steps[4],
		says: func(now time.Time) messages.CycleMsg {
			return messages.ResponseStarted{Status: status, Served: served, At: now, Bypasses: passes}
		}}
	scenes := []scene{started}
	if passes && c.line.id%20 != 0 { // else its body is shown nevertheless, for it was asked for
		return append(scenes, scene{after: c.upTo(time.Millisecond), says: func(time.Time) messages.CycleMsg {
			return messages.StreamGone{Completed: true, Logged: true, Log: messages.LogSeen}
		}})
	}
	if c.faults.off || status == 200 && c.chance(.97) {
		scenes = append(scenes, c.body()...)
	}
	if !c.faults.off && c.chance(.05) { // in the middle, wherever that is
		return append(scenes[:1+c.dice.IntN(len(scenes))], c.leaving())
	}
	scenes = append(scenes, scene{after: c.upTo(time.Second), step: steps[7],
		says: func(now time.Time) messages.CycleMsg {
			return messages.ResponseEnded{At: now, ResponseBytes: 900,
				Usage: messages.Usage{Source: messages.UsageReported, PromptKnown: true, PromptTokens: 90,
					OutputTokens: 9}}
		}})
	if !c.faults.off && c.chance(.03) {
		return append(scenes, c.leaving())
	}
	return append(scenes, c.over(c.upTo(time.Millisecond), true))
}

// body is the response after its headers: the first token, and then signs of life, or a silence that is too long.
func (c *client) body() []scene {
	scenes := []scene{{after: c.upTo(time.Second), step: steps[5], says: func(now time.Time) messages.CycleMsg {
		return messages.FirstTokenSeen{At: now}
	}}}
	if !c.faults.off && c.chance(.05) { // as the first event, or behind a token
		c.faults.drew(answerFailed)
		status := []int{404, 500, 503}[c.dice.IntN(3)]
		scenes = slices.Insert(scenes, c.dice.IntN(2),
			scene{after: c.upTo(time.Second), says: func(time.Time) messages.CycleMsg {
				return messages.ErrorSeen{Status: status}
			}})
	}
	for range c.dice.IntN(4) {
		scenes = append(scenes, scene{after: c.upTo(3 * time.Second), step: steps[6],
			says: func(now time.Time) messages.CycleMsg {
				return messages.ResponseProgressed{At: now}
			}})
	}
	if !c.faults.off && c.chance(.005) {
		c.faults.drew(serverSilent)
		scenes = append(scenes, c.over(silence, false))
	}
	return scenes
}

// over ends the stream.
func (c *client) over(after time.Duration, completed bool) scene {
	return scene{after: after,
		says: func(time.Time) messages.CycleMsg { return messages.StreamGone{Completed: completed} }}
}

// leaving ends the stream because the client wants it.
func (c *client) leaving() scene {
	s := c.over(c.upTo(time.Second), false)
	s.wish = true
	return s
}
