package telemetry

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/messages"
)

const (
	passedLineEvery = time.Minute // for one server
	passedServers   = 4096        // that are remembered
)

// passedOver warns of servers that are picked and that Envoy passes over: they are down, or Envoy does not know them.
type passedOver struct {
	log *zap.Logger

	mu   sync.Mutex
	told map[messages.Address]time.Time // by the server that was picked
}

// look is called by all loops.
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
