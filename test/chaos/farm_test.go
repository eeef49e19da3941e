package chaos

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/messages"
)

const servers = 6 // model servers that discovery may find

// roles are those of the model servers. Some read prompts for others, and some do both.
var roles = [servers]string{"prefill", "decode", "decode", "prefill-decode", "decode", "prefill"}

func addressOf(i int) messages.Address { return messages.Address(fmt.Sprintf("10.0.0.%d:8000", i+1)) }

// farm stands in for the model servers and what fetches from them.
type farm struct {
	*faults
	rest sync.WaitGroup // answers on their way
}

// later does something on a goroutine of its own, after a while.
func (f *farm) later(d time.Duration, do func()) {
	f.rest.Add(1)
	time.AfterFunc(d, func() {
		defer f.rest.Done()
		do()
	})
}

// fetch draws what comes of a fetch, and how late. False: it is refused.
func (f *farm) fetch(answer func(failure string)) bool {
	dice := f.next("fetch")
	took, failure := upTo(dice, 5*time.Millisecond), ""
	switch p := dice.Float64(); {
	case f.off.Load() || p > .12:
	case p < .02:
		f.met("fetch refused")
		return false
	case p < .04:
		f.met("fetch never answered")
		return true
	case p < .06:
		f.met("fetch answered too late")
		took = 300 * time.Millisecond
	default:
		f.met("fetch failed")
		failure = "connection refused"
	}
	f.later(took, func() { answer(failure) })
	return true
}

// FetchMetrics answers from a goroutine of its own, as the real fetcher does.
func (f *farm) FetchMetrics(
	_ messages.EndpointSpec, _ string, number uint32, port messages.Port[messages.ScraperMsg],
) bool {
	dice := f.next("page")
	told := endpointstest.Told{
		attributes.WaitingRequests: dice.IntN(5), attributes.RunningRequests: dice.IntN(20),
		attributes.KVCacheUsage: dice.Float64(), attributes.StartTime: 1_700_000_000,
		attributes.KVBlockTokens: 16, attributes.KVBlocks: 1000, attributes.MaxLoRAs: 4,
		attributes.ActiveLoRAs:  []string{"model-" + strconv.Itoa(dice.IntN(4))},
		attributes.WaitingLoRAs: []string{},
	}
	if dice.IntN(25) == 0 && !f.off.Load() {
		f.met("model server restarted")
		told[attributes.StartTime] = 1_700_000_001 + dice.IntN(1000)
	}
	m := messages.ScrapeFinished{Number: number, Took: time.Millisecond, PageBytes: 40_000,
		Reading: told.Reading("vllm")}
	return f.fetch(func(failure string) {
		m.Failure = failure
		port.Post(m)
	})
}

func (f *farm) FetchModels(_ messages.EndpointSpec, number uint32, port messages.Port[messages.ScraperMsg]) bool {
	return f.fetch(func(failure string) {
		port.Post(messages.ModelsListed{Number: number, Failure: failure,
			Models: messages.ListOf("model-0", "model-1")})
	})
}

// Check tells the outlier actor whether an endpoint takes connections.
func (f *farm) Check(id messages.EndpointID, _ messages.Address, port messages.Port[messages.OutlierMsg]) bool {
	dice := f.next("check")
	f.later(upTo(dice, 5*time.Millisecond), func() {
		port.Post(messages.EndpointChecked{Endpoint: id, Connected: f.off.Load() || dice.IntN(4) > 0})
	})
	return true
}
