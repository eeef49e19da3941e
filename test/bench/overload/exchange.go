package overload

import (
	"container/heap"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/messages"
)

// ask begins a request.
func (w *World) ask(s *Source) {
	w.last++
	prompt, output := s.Prompt.draw(s.rand), s.Output.draw(s.rand)
	text := w.text(s, prompt)
	h := blockindex.NewHasher(0)
	h.Write([]byte(text))
	x := &exchange{
		world: w, source: s, id: w.last, prompt: w.tokens.Encode(nil, text),
		Answer: &Answer{
			Source: s.Name, Flow: s.Flow, Came: w.now.Sub(start), Server: -1, Prompt: prompt, Output: output,
		},
	}
	w.result.Answers = append(w.result.Answers, x.Answer)
	x.picker = w.pickerOf(x.id)
	port, ok := x.picker.InForce().Start(messages.RequestArrived{
		Request: messages.Request{
			ID: x.id, Model: "m", PromptTokens: prompt, OutputTokens: output, Stream: true, Visible: !w.play.Light,
			BodyBytes: int64(prompt * bytesPerToken), Priority: s.Flow.Priority, Blocks: h.Blocks(),
			Rest: h.Rest(),
		},
		Configuration: 1, Flow: s.Flow, ArrivedAt: w.now, Deadline: w.now.Add(24 * time.Hour), Patience: s.Patience,
		Stream: x,
	})
	if !ok {
		x.Reason = messages.Overloaded
		return
	}
	x.port = port
}

// text is a prompt of so many tokens, which begins as all of its source do.
func (w *World) text(s *Source, tokens int) string {
	b := make([]byte, tokens*bytesPerToken)
	shared := min(s.Prefix, tokens) * bytesPerToken
	for i := range shared {
		b[i] = byte('a' + (i*7+len(s.Name)*3+int(s.Name[len(s.Name)-1]))%26)
	}
	for i := shared; i < len(b); i++ {
		b[i] = byte('a' + s.rand.IntN(26))
	}
	return string(b)
}

// Tell hears what becomes of the request, on the loop of its cycle.
func (x *exchange) Tell(m messages.StreamMsg) bool {
	w := x.world
	switch m := m.(type) {
	case messages.PickMade:
		to := m.Destinations.At(0)
		w.later(func() { x.sent(to) })
	case messages.PickFailed:
		x.Reason, x.RetryAfter, x.over = m.Reason, m.RetryAfter, true
		w.later(func() { x.ended(messages.StreamGone{Completed: true}) })
	case messages.AnswerDue, messages.ServingRevoked, messages.MemoryYielded:
	}
	return true
}

// later has something happen at once, on the world's own loop.
func (w *World) later(do func()) {
	w.serial++
	heap.Push(&w.due, event{w.picker.System().Now(), w.serial, do})
	w.self.Port().Post(stirred{})
}

// sent submits the request to the server at an address.
func (x *exchange) sent(to messages.Address) {
	w := x.world
	for _, n := range w.nodes {
		if n.at == to {
			x.Server, x.Waited = n.index, w.now.Sub(start)-x.Came
			if w.play.Path == 0 {
				x.submit(n)
			} else {
				w.After(w.play.Path, func() { x.submit(n) })
			}
			return
		}
	}
	panic("no server " + to)
}

func (x *exchange) submit(n *node) {
	w := x.world
	if n.down {
		x.breaks("connection_failure")
		return
	}
	w.advance(n)
	id, _ := n.core.Submit(w.now, batch.Request{
		Prompt: x.prompt, MaxTokens: x.Output, IgnoreEnd: true, Variant: w.rand.Uint64(),
	})
	n.open[id] = x
	w.wake(n)
}

// wake has an engine go on when its step is over.
func (w *World) wake(n *node) {
	at, busy := n.core.NextEvent()
	if !busy || at.Equal(n.woken) {
		return
	}
	n.woken = at
	core := n.core
	w.After(at.Sub(w.now), func() {
		if n.core == core {
			w.advance(n)
			w.wake(n)
		}
	})
}

// advance takes what came out of an engine.
func (w *World) advance(n *node) {
	for _, p := range n.core.Advance(w.now) {
		x := n.open[p.ID]
		if x == nil {
			continue
		}
		if !x.first && p.Generated > 0 {
			x.firstToken(p.Cached)
		}
		if p.Ended != batch.Running {
			delete(n.open, p.ID)
			x.whole()
		}
	}
}

func (x *exchange) firstToken(cached int) {
	w := x.world
	x.first, x.TTFT, x.Cached = true, w.now.Sub(start)-x.Came, cached
	at := w.nodes[x.Server].at
	if w.play.Light {
		x.port.Post(messages.ResponseStarted{Status: 200, Served: at, At: w.now, Bypasses: true})
		x.port.Post(messages.StreamGone{Logged: true, Log: messages.LogSeen})
		return
	}
	x.port.Post(messages.ResponseStarted{Status: 200, Served: at, At: w.now})
	x.port.Post(messages.FirstTokenSeen{At: w.now})
}

// whole ends the response.
func (x *exchange) whole() {
	w := x.world
	x.Ended = w.now.Sub(start)
	bytes := int64(x.Output * 100)
	if w.play.Light {
		x.picker.Ended(messages.ExchangeLogged{Request: x.id, End: messages.ResponseEnded{
			At: w.now, ResponseBytes: bytes,
			Logged: messages.Logged{Status: 200, Served: w.nodes[x.Server].at, Headers: x.TTFT, FirstToken: x.TTFT},
		}})
		x.follow()
		return
	}
	usage := messages.Usage{Source: messages.UsageReported, PromptKnown: true, PromptTokens: x.Prompt,
		OutputTokens: x.Output,
		CachedTokens: x.Cached}
	x.port.Post(messages.ResponseEnded{At: w.now, ResponseBytes: bytes, Usage: usage})
	x.ended(messages.StreamGone{Completed: true})
}

func (x *exchange) ended(m messages.StreamGone) {
	if x.port != nil {
		x.port.Post(m)
	}
	x.follow()
}

// follow has the client send its next request, if the source has clients.
func (x *exchange) follow() {
	w, s := x.world, x.source
	if s.Clients > 0 && !s.over(w.now.Sub(start)) {
		wait := time.Duration(0)
		if x.Server < 0 {
			wait = time.Second // it was refused
		}
		w.After(wait, func() { w.ask(s) })
	}
}

// FetchMetrics answers a scrape.
func (w *World) FetchMetrics(
	of messages.EndpointSpec, _ string, number uint32, port messages.Port[messages.ScraperMsg],
) bool {
	at := w.picker.System().Now()
	w.later(func() { w.scraped(of.Address, number, port, at) })
	return true
}

const pageTakes = 5 * time.Millisecond

func (w *World) scraped(at messages.Address, number uint32, port messages.Port[messages.ScraperMsg], _ time.Time) {
	var n *node
	for _, one := range w.nodes {
		if one.at == at {
			n = one
		}
	}
	if n.Page == Hanging {
		w.After(time.Second, func() {
			port.Post(messages.ScrapeFinished{Number: number, Failure: "timeout", Took: time.Second})
		})
		return
	}
	if n.down {
		w.After(pageTakes, func() {
			port.Post(messages.ScrapeFinished{Number: number, Failure: "connection refused", Took: pageTakes})
		})
		return
	}
	w.advance(n)
	stats := n.core.Stats()
	told := endpointstest.Told{
		attributes.WaitingRequests: stats.Waiting, attributes.RunningRequests: stats.Running,
		attributes.KVCacheUsage: stats.KVUsedRatio, attributes.StartTime: int(n.started.Unix()),
	}
	switch {
	case n.Page == Lying:
		told[attributes.WaitingRequests] = 0
	case n.Page == Frozen && w.now.Sub(start) > 10*time.Second:
		if n.frozen == nil {
			n.frozen = &told
		}
		told = *n.frozen
	}
	w.After(pageTakes, func() {
		port.Post(messages.ScrapeFinished{
			Number: number, Took: pageTakes, PageBytes: 40_000, Reading: told.Reading("vllm"),
		})
	})
}

// FetchModels has no list.
func (w *World) FetchModels(messages.EndpointSpec, uint32, messages.Port[messages.ScraperMsg]) bool {
	return false
}
