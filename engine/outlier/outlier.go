// Package outlier decides, from what requests meet at an endpoint, whether the endpoint gets requests: passive health
// as one state machine. It never looks at a request, never connects to anything, and never reads a clock.
//
//	               a failure, or a refusal for overload
//	  ┌─────────┐ ────────────────────────────────────► ┌──────────┐
//	  │ Healthy │                                       │ Degraded │ ◄─┐
//	  └─────────┘ ◄─┐                                   └──────────┘   │
//	       │        │                                    │       │     │ the probe was refused for overload,
//	       │        │ the probe succeeded    failures    │ pause │     │ or failed among good answers
//	failures        │                        enough      │ over  │     │
//	enough │        │                                    │       ▼     │
//	       │        │                                    │  ┌──────────┐
//	       │        └────────────────────────────────────┼──│ HalfOpen │ ◄─┐
//	       │                                             │  └──────────┘   │ ejection
//	       ▼                                             ▼       │         │ time over
//	  ┌─────────┐ ◄──────────────────────────────────────┘       │         │
//	  │ Ejected │ ◄──────────────────────────────────────────────┘         │
//	  │         │   the probe failed                                       │
//	  └─────────┘ ─────────────────────────────────────────────────────────┘
//
// A way into Ejected that Event.Room closes leads to Degraded. A probe that ended without a result leaves HalfOpen as
// it is, for the next request. A success of a try whose answer failed after all is taken back once: Healthy goes to
// Ejected at once, or to Degraded if the failure is a refusal for overload.
//
// An incident is one stay outside of Healthy, from its first failure to the success that ends it, and has a number. The
// way from Degraded to Ejected begins a new one, unless a probe leads it: what requests tell that tried the endpoint as
// Degraded says nothing about the failures that had it ejected.
package outlier

import (
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// State is what an endpoint gets. The zero State is Healthy.
type State uint8

const (
	// Healthy endpoints get requests by their scores.
	Healthy State = iota
	// Degraded endpoints come last, behind all that are Healthy: something failed, but not enough to eject them. An
	// endpoint that refuses for overload gets no further than this, for it serves well what it takes.
	Degraded
	// Ejected endpoints get no requests as long as the pool has others.
	Ejected
	// HalfOpen endpoints are Degraded or Ejected to all requests but one, the probe, whose result decides.
	HalfOpen
)

// String returns the state's name, as labels and pages have it.
func (s State) String() string {
	return [...]string{"healthy", "degraded", "ejected", "half-open"}[s&3]
}

// newIncident is no incident's number.
const newIncident = 0

const (
	enough        = 3 // points eject
	memory        = 30 * time.Second
	span          = 10 * time.Second
	fewest        = 5               // failures in a span, for its share to count
	worstShare    = 0.2             // of the picks in a span
	shortestPause = 2 * time.Second // of Degraded
	forgetAfter   = time.Minute     // without an ejection: the next one is short again
)

// points say how much each kind of failure weighs. Silence is enough alone: an endpoint that hangs looks idle, so that
// all requests would go there.
var points = map[messages.FailureKind]int{
	messages.ServerError: 1, messages.ErrorInStream: 1, messages.ServedElsewhere: 1, messages.ConnectionBroken: 2,
	messages.NoFirstToken: enough, messages.ConnectFailed: enough,
}

// Config holds the times of ejection, which is what an operator of Envoy would set.
type Config struct {
	FirstEjection   time.Duration // it doubles with each probe that fails
	LongestEjection time.Duration // of all, and of a pause
}

// Event is something that happened to the endpoint.
type Event struct {
	What    What
	Kind    messages.FailureKind // of FailureSeen and ConnectRefused
	Pick    messages.Pick        // of the request that met it; the zero Pick is none: it is news
	Answers Answers
	Probing bool        // a probe is under way
	Room    func() bool // reports whether one more endpoint of the pool may be ejected
}

// What says which event an Event is.
type What uint8

const (
	FailureSeen    What = iota // a request met a failure
	SuccessSeen                // a request under Pick.Incident was answered well
	ProbeAbandoned             // the probe of Pick.Incident ended without a result
	ConnectRefused             // a connection that was made to check the endpoint failed
)

// Answers are what the endpoint has done well, whatever request it was for. Times are those of picks; zero = never.
type Answers struct {
	Began  time.Time // the newest pick that was answered with a good status
	Proved time.Time // the newest pick whose answer's body came
	Shown  time.Time // the newest pick whose answer's body was visible to Signalbox and began well
	Picks  uint64    // all requests that were sent there
}

// Effect says what an event has led to.
type Effect struct {
	Changed   bool // Status returns another value than before
	Check     bool // a connection to the endpoint would tell more
	Ejected   bool // the endpoint left Healthy or Degraded for Ejected
	Recovered bool // it left Ejected for Healthy
}

// Machine is what is known of one endpoint. The zero Machine with a Config is Healthy.
type Machine struct {
	Config

	state State                // never HalfOpen: that is Degraded or Ejected from until on
	cause messages.FailureKind // of state; NoFailure exactly while Healthy
	until time.Time            // the end of the pause or the ejection time; zero exactly while Healthy

	incident incident
	row      row
	share    share
	pause    time.Duration // of the newest Degraded that a refused probe prolonged; 0 = none did since the last success
	ejection ejection
	recovery recovery
}

// incident is the one in force; meaningful while not Healthy.
type incident struct {
	number uint64    // 1 <= number <= newest
	since  time.Time // its begin
	newest uint64    // number, of all so far
}

// ejection is the newest one.
type ejection struct {
	lasts time.Duration // 0 = there was none so far
	ended time.Time     // by a success; zero = none has
}

// recovery is the newest success that ended an incident.
type recovery struct {
	at        time.Time // what was picked before says nothing any more
	revocable uint64    // the incident that it ended, if its success may still be taken back; 0 = it may not
}

// row counts failures in a row, by points.
type row struct {
	points int
	newest time.Time // failure
}

// share counts the failures among the picks of a span.
type share struct {
	began    time.Time
	picks    uint64 // of the endpoint when the span began
	failures int
}

// State returns the machine's state.
func (m *Machine) State(now time.Time) State {
	if m.state != Healthy && !now.Before(m.until) {
		return HalfOpen
	}
	return m.state
}

// Step moves the machine. All of its transitions stand here.
func (m *Machine) Step(now time.Time, e Event) Effect {
	if e.Pick.Incident != 0 { // the request knew of the incident, and its result decides
		return m.tried(now, e)
	}
	switch {
	case e.What == ConnectRefused && m.state == Ejected && !e.Probing:
		return m.eject(now, e.Kind, m.incident.number)
	case m.state == Ejected: // nothing new
		return Effect{}
	case !e.Pick.At.IsZero() && e.Pick.At.Before(m.recovery.at): // it was picked before the endpoint recovered
		return Effect{}
	case e.Kind == messages.EndedBare, e.Kind == messages.ScrapeFailed: // by itself it says nothing about answers
		return Effect{Check: true}
	}
	if !e.Kind.Busy() && m.count(now, e, e.Pick.At) && e.Room() {
		return m.eject(now, e.Kind, newIncident)
	}
	if m.state == Healthy {
		return m.degrade(now, e.Kind, newIncident)
	}
	return Effect{} // the probe decides, and is not put off
}

// tried is the part of Step for the result of a request that tried the endpoint.
func (m *Machine) tried(now time.Time, e Event) Effect {
	switch conclusive := e.What != ProbeAbandoned && e.Kind != messages.EndedBare; {
	case m.state == Healthy && e.What == FailureSeen && conclusive && e.Pick.Incident == m.recovery.revocable:
		m.recovery.revocable = 0 // once: many requests may have been picked under that incident
		if e.Kind.Busy() || !e.Room() {
			return m.degrade(now, e.Kind, newIncident)
		}
		return m.eject(now, e.Kind, newIncident)
	case m.state == Healthy, e.Pick.Incident != m.incident.number: // of an incident that is over
		return Effect{}
	case e.What == SuccessSeen:
		return m.recover(now)
	case !conclusive: // the next request may try
		return Effect{Changed: true, Check: e.Kind == messages.EndedBare}
	case m.state == Ejected:
		return m.eject(now, e.Kind, m.incident.number)
	case e.Kind.Busy():
		m.pause = min(2*max(shortestPause, m.pause), m.LongestEjection)
		return m.degrade(now, e.Kind, m.incident.number)
	}
	good := e.Answers.Proved // how an answer begins says nothing of it here: the probe's own may have begun well
	if e.Kind.InBody() {
		good = e.Answers.Shown
	}
	again := !m.cause.Busy() && !good.After(m.row.newest) // else it fails now and then, or was only busy so far
	if enough := m.count(now, e, m.until); (enough || again) && e.Room() {
		return m.eject(now, e.Kind, m.incident.number)
	}
	return m.degrade(now, e.Kind, m.incident.number)
}

// count adds a failure of a request that was picked then; zero = it was no request, or is news. It reports whether
// failures are enough to eject: in a row, or as a share of the endpoint's requests. Requests that were under way
// together are no row.
func (m *Machine) count(now time.Time, e Event, picked time.Time) bool {
	good := e.Answers.Began
	if e.Kind.InBody() {
		good = e.Answers.Shown
	}
	if good.After(m.row.newest) || now.Sub(m.row.newest) > memory {
		m.row.points = 0
	}
	weight := points[e.Kind]
	if e.Kind == messages.NoFirstToken && !picked.IsZero() && e.Answers.Proved.After(picked) {
		weight = 1 // others were answered meanwhile
	}
	if weight >= enough || !picked.Before(m.row.newest) || picked.IsZero() {
		m.row.points += weight
	}
	m.row.newest = now
	if now.Sub(m.share.began) > span {
		m.share = share{began: now, picks: e.Answers.Picks}
	}
	m.share.failures++
	all := e.Answers.Picks - m.share.picks
	return m.row.points >= enough || m.share.failures >= fewest && float64(m.share.failures) >= worstShare*float64(all)
}

// degrade has the endpoint come last, within an incident, or in a new one.
func (m *Machine) degrade(now time.Time, why messages.FailureKind, incident uint64) Effect {
	m.enter(now, Degraded, why, incident)
	m.until = now.Add(max(shortestPause, m.pause))
	return Effect{Changed: true}
}

// eject takes the endpoint out, within an incident, or in a new one.
func (m *Machine) eject(now time.Time, why messages.FailureKind, incident uint64) Effect {
	from := m.state
	if m.ejection.lasts == 0 || from != Ejected && now.Sub(m.ejection.ended) > forgetAfter {
		m.ejection.lasts = m.FirstEjection
	} else {
		m.ejection.lasts = min(2*m.ejection.lasts, m.LongestEjection)
	}
	m.row.points, m.share.failures = 0, 0
	m.enter(now, Ejected, why, incident)
	m.until = now.Add(m.ejection.lasts)
	return Effect{Changed: true, Ejected: from != Ejected}
}

func (m *Machine) enter(now time.Time, s State, why messages.FailureKind, incident uint64) {
	if incident == newIncident {
		m.incident.newest++
		incident, m.incident.since = m.incident.newest, now
	}
	m.state, m.cause, m.incident.number = s, why, incident
}

func (m *Machine) recover(now time.Time) Effect {
	from := m.state
	m.recovery.at, m.recovery.revocable, m.pause = now, m.incident.number, 0
	m.state, m.cause, m.until = Healthy, messages.NoFailure, time.Time{}
	if from != Ejected {
		return Effect{Changed: true}
	}
	m.row.points, m.share, m.ejection.ended = 0, share{}, now
	return Effect{Changed: true, Recovered: true}
}
