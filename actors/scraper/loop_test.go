package scraper_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// handing is a fetcher that hands the test what it was asked to fetch. The test answers, which is no actor,
// like a fetcher.
type handing struct{ asked chan asked }

type asked struct {
	number uint32
	port   messages.Port[messages.ScraperMsg]
}

func (h handing) FetchMetrics(_ messages.EndpointSpec, _ string, n uint32,
	port messages.Port[messages.ScraperMsg]) bool {
	h.asked <- asked{n, port}
	return true
}

func (h handing) FetchModels(messages.EndpointSpec, uint32, messages.Port[messages.ScraperMsg]) bool {
	return false
}

// telling is a target that tells the test of each sample.
type telling struct {
	endpoints.SampleWriter
	published chan *endpoints.Sample
}

func (t telling) Publish(s *endpoints.Sample) { t.published <- s }

func within[T any](t *testing.T, c chan T) T {
	t.Helper()
	select {
	case x := <-c:
		return x
	case <-time.After(20 * time.Second):
		t.Fatal("nothing within 20 s")
		panic("unreachable")
	}
}

// A fetcher is no actor: what it posts must run the loop, without a message from anything else.
func TestAnswerOfAnAdapterReachesTheLoop(t *testing.T) {
	system := runtime.New(runtime.Config{})
	t.Cleanup(func() { shutdown(t, system) })
	metrics, err := scraper.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	to := telling{endpoints.SampleWriter{Endpoint: endpoints.New(id, spec)}, make(chan *endpoints.Sample, 100)}
	fetches := handing{make(chan asked, 100)}
	role := runtime.Role[messages.ScraperMsg]{Name: "scraper", Policy: runtime.RestartOnPanic,
		New: func() runtime.Actor[messages.ScraperMsg] {
			return scraper.New(scraper.Config{Scraping: messages.Scraping{Metrics: true}}, to, fetches, metrics)
		}}
	var first messages.ScraperMsg = messages.EndpointAssigned{Endpoint: id, Spec: spec,
		Pool: runtimetest.NewProbe[messages.PoolMsg](t)}
	address, ok := runtime.Start(system.Root(0), role, first)
	if !ok {
		t.Fatal("refused")
	}
	f := within(t, fetches.asked)
	f.port.Post(answer(f.number, 9))
	if got := within(t, to.published); waiting(got) != 9 {
		t.Errorf("sample %+v", got)
	}
	address.Tell(messages.EndpointWithdrawn{})
}

func shutdown(t *testing.T, system *runtime.System) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := system.Close(ctx); err != nil {
		t.Error(err)
	}
}
