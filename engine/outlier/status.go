package outlier

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Status is what every loop reads of an endpoint that is not Healthy. It is immutable but for one word, by which a
// single request takes the probe.
type Status struct {
	Ejected  bool // true = Ejected, false = Degraded
	Cause    messages.FailureKind
	Incident uint64
	Since    time.Time   // when the incident began
	Until    time.Time   // when HalfOpen begins
	probing  atomic.Bool // a request has taken the probe
}

// unseen is how much longer an endpoint whose answers fail in their body waits for a probe with a visible body, which
// alone can show such a failure. After that any request may be the probe, for there may be none with a visible body.
const unseen = time.Minute

// Status returns a new status of the machine, of which no request has taken the probe; nil while it is Healthy.
func (m *Machine) Status() *Status {
	if m.state == Healthy {
		return nil
	}
	return &Status{
		Ejected: m.state == Ejected, Cause: m.cause,
		Incident: m.incident.number, Since: m.incident.since, Until: m.until,
	}
}

// Asleep returns the status of an endpoint that sleeps. It belongs to no incident and is never probed, because its
// metrics page says when it wakes.
func Asleep() *Status { return &Status{Ejected: true, Cause: messages.Asleep} }

// Due reports whether a request may be the probe now. visible reports whether the request's response will be visible.
func (s *Status) Due(now time.Time, visible bool) bool {
	if s.Cause == messages.Asleep {
		return false
	}
	if s.Cause.InBody() && !visible {
		now = now.Add(-unseen)
	}
	return !now.Before(s.Until) && !s.probing.Load()
}

// Probe takes the probe, and returns false if another request has it. The request that takes it must report its result.
func (s *Status) Probe() bool { return s.probing.CompareAndSwap(false, true) }

// Probing reports whether a request has taken the probe.
func (s *Status) Probing() bool { return s.probing.Load() }
