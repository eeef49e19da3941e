package outlier

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Status is what every loop may read of an endpoint that is not Healthy. It is immutable but for one word, by which a
// single request takes the probe.
type Status struct {
	Ejected  bool // else Degraded
	Cause    messages.FailureKind
	Incident uint64
	Since    time.Time // the begin of the incident
	Until    time.Time // from here on it is HalfOpen
	probing  atomic.Bool
}

// unseen is how much longer an endpoint waits for a probe whose answer is visible, before a request of the light lane
// may be the probe: what fails within answers only a visible one can tell, and there may be none.
const unseen = time.Minute

// Status returns the machine's status, nil while it is Healthy. No probe of it is under way.
func (m *Machine) Status() *Status {
	if m.state == Healthy {
		return nil
	}
	return &Status{
		Ejected: m.state == Ejected, Cause: m.cause,
		Incident: m.incident.number, Since: m.incident.since, Until: m.until,
	}
}

// Due reports whether a request may be the probe now; visible says that Signalbox is shown its response's body.
func (s *Status) Due(now time.Time, visible bool) bool {
	if s.Cause.InBody() && !visible {
		now = now.Add(-unseen)
	}
	return !now.Before(s.Until) && !s.probing.Load()
}

// Probe takes the probe, and reports false if another request has it. The request that takes it has to tell its result.
func (s *Status) Probe() bool { return s.probing.CompareAndSwap(false, true) }

// Probing reports whether a probe is under way.
func (s *Status) Probing() bool { return s.probing.Load() }
