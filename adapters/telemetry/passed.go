package telemetry

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/messages"
)

const (
	passedLineEvery = time.Minute // at most one line for one server in this time
	passedServers   = 4096        // servers that are remembered
)

// passedOver warns of servers that are picked and that Envoy passes over, because they are down or because its cluster
// does not have them.
type passedOver struct {
	log *zap.Logger

	mu   sync.Mutex
	told map[messages.Address]time.Time // when the last line was written, by the server that was picked
}

// look warns if another server than the picked one served the request. Any loop may call it.
func (p *passedOver) look(r *messages.Record, address func(messages.EndpointID) messages.Address) {
	if r.Status == 0 || r.Reason != messages.NoReason || r.Local != "" {
		return
	}
	run, ok := primary(r)
	if !ok || run.Ranked.Len() == 0 {
		return
	}
	id := r.Decision.Endpoints.At(int(run.Ranked.At(0)))
	if id == r.Served {
		return
	}
	picked, served := address(id), servedBy(r, address)
	if picked == served || picked == "" || served == "" || !p.due(picked, time.Now()) {
		return
	}
	p.log.Warn("Envoy passed a picked server over: is it up, and does Envoy's cluster have it?",
		zap.String("picked", string(picked)),
		zap.String("served", string(served)), zap.Bool("served_is_in_pool", r.Elsewhere == ""))
}

// due reports whether a line about a server may be written now, and notes that it is.
func (p *passedOver) due(picked messages.Address, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, ok := p.told[picked]; ok && now.Sub(last) < passedLineEvery {
		return false
	}
	if p.told == nil || len(p.told) >= passedServers {
		p.told = map[messages.Address]time.Time{}
	}
	p.told[picked] = now
	return true
}
