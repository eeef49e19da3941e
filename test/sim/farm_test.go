package sim_test

import (
	"fmt"
	"strconv"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

const servers = 8 // model servers that discovery may find

func addressOf(i int) messages.Address { return messages.Address(fmt.Sprintf("10.0.0.%d:8000", i+1)) }

// farmMsg is what the model servers are told, all of them together.
type farmMsg interface{ farmMsg() }

type farmOpened struct{}

// pageAsked is what the fetcher is called with.
type pageAsked struct {
	of     messages.Address
	number uint32
	models bool // the model list; else the metrics page
	port   messages.Port[messages.ScraperMsg]
}

// pageReady is the farm's timer: the answer leaves now.
type pageReady struct {
	asked   pageAsked
	took    time.Duration
	failure string
}

func (farmOpened) farmMsg() {}
func (pageAsked) farmMsg()  {}
func (pageReady) farmMsg()  {}

// farm stands in for the fetcher and the servers behind it.
type farm struct {
	*world
	ref     runtime.Ref[farmMsg]
	started map[messages.Address]float64 // unix seconds, of a server's process
	pending int                          // timers
}

func newFarm(w *world) *farm {
	f := &farm{world: w, started: map[messages.Address]float64{}}
	for i := range servers {
		f.started[addressOf(i)] = 1_700_000_000
	}
	return f
}

// FetchMetrics is false now and then, as of a fetcher that was closed.
func (f *farm) FetchMetrics(
	of messages.EndpointSpec, _ string, number uint32, port messages.Port[messages.ScraperMsg],
) bool {
	f.model.of(f.model.scraping).began[number] = f.model.picks
	return f.asked(pageAsked{of: of.Address, number: number, port: port})
}

func (f *farm) FetchModels(of messages.EndpointSpec, number uint32, port messages.Port[messages.ScraperMsg]) bool {
	return f.asked(pageAsked{of: of.Address, number: number, models: true, port: port})
}

func (f *farm) asked(p pageAsked) bool {
	if !f.faults.off && f.chance(.005) {
		f.faults.drew(fetchClosed)
		return false
	}
	return f.ref.Tell(p)
}

func (f *farm) Receive(ctx runtime.Context[farmMsg], m farmMsg) {
	switch m := m.(type) {
	case farmOpened:
	case pageAsked:
		f.onPageAsked(ctx, m)
	case pageReady:
		f.onPageReady(m)
	}
}

func (f *farm) onPageAsked(ctx runtime.Context[farmMsg], m pageAsked) {
	took, failure := f.upTo(60*time.Millisecond), ""
	p := f.dice.Float64()
	switch {
	case f.faults.off || p > .12:
	case p < .01:
		f.faults.drew(fetchLost)
		return
	case p < .08:
		f.faults.drew(fetchFailed)
		failure = "connection refused"
		if p < .04 {
			took, failure = time.Second, "timeout"
		}
	case p < .10:
		f.faults.drew(fetchTooLate)
		took = 2*time.Second + f.upTo(time.Second)
	case !m.models:
		f.started[m.of] += 10 + float64(f.dice.IntN(100))
		if e := f.world.pool.Snapshot().ByAddress(m.of); e != nil && e.Inflight() > 0 {
			f.faults.drew(rebornUnder)
		}
	}
	f.pending++
	ctx.After(took, pageReady{m, took, failure})
}

func (f *farm) onPageReady(m pageReady) {
	f.pending--
	if m.asked.models {
		m.asked.port.Post(messages.ModelsListed{Number: m.asked.number, Failure: m.failure,
			Models: messages.ListOf("model-0", "model-1")})
		return
	}
	kv := f.dice.Float64()
	m.asked.port.Post(messages.ScrapeFinished{
		Number: m.asked.number, Failure: m.failure, Took: m.took, PageBytes: 40_000,
		Reading: endpointstest.Told{
			attributes.WaitingRequests: f.dice.IntN(5), attributes.RunningRequests: f.dice.IntN(20),
			attributes.KVCacheUsage: kv, attributes.StartTime: f.started[m.asked.of],
			attributes.KVBlockTokens: 16, attributes.KVBlocks: 1000, attributes.MaxLoRAs: 4,
			attributes.ActiveLoRAs:  []string{"model-" + strconv.Itoa(f.dice.IntN(4))},
			attributes.WaitingLoRAs: []string{},
		}.Reading("vllm"),
	})
}

func (f *farm) Stopped(runtime.Context[farmMsg]) {}
