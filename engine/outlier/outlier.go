// Package outlier is outlier detection as a pure state machine: from the failures and successes of an endpoint's
// requests it decides whether the endpoint gets further ones. It never looks at a request, never connects to anything,
// and never reads a clock.
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
// If Event.Room returns false, the edges into Ejected lead to Degraded instead. A probe that ended without a result
// leaves the state HalfOpen, so that the next request can be the probe. If an answer fails after its beginning was
// reported as the success that ended an incident, that success is taken back, once: Healthy goes to Ejected, or to
// Degraded if the failure is a refusal for overload.
//
// An incident is a stay outside of Healthy, from its first failure to the success that ends it, and has a number. The
// edge from Degraded to Ejected begins a new incident, unless a probe's failure takes it: a request that was sent while
// the endpoint was Degraded tells nothing about the failures that have ejected it since.
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

// newIncident stands in place of an incident's number for a new incident.
const newIncident = 0

const (
	enough        = 3                // points of failures in a row that eject
	memory        = 30 * time.Second // failures further apart than this are not in a row
	span          = 10 * time.Second // over which the share of failures is taken
	fewest        = 5                // failures in a span that eject, if their share is worstShare or more
	worstShare    = 0.2              // of the picks in a span
	shortestPause = 2 * time.Second  // from Degraded to HalfOpen
	forgetAfter   = time.Minute      // from the end of an ejection: later ones begin again with FirstEjection
)

// points says how much each kind of failure weighs. Silence alone is enough, because an endpoint that hangs looks idle
// and would get all requests.
var points = map[messages.FailureKind]int{
	messages.ServerError: 1, messages.ErrorInStream: 1, messages.ServedElsewhere: 1, messages.ConnectionBroken: 2,
	messages.NoFirstToken: enough, messages.ConnectFailed: enough, messages.ClientsLeft: enough,
}

// Config holds the ejection times, as Envoy's outlier detection has them.
type Config struct {
	FirstEjection   time.Duration // of the first ejection; it doubles with each probe that fails
	LongestEjection time.Duration // bounds ejection times, and pauses of Degraded
}

// Event is something that happened to the endpoint.
type Event struct {
	What    What
	Kind    messages.FailureKind // of FailureSeen and ConnectRefused
	Pick    messages.Pick        // of the request that met it; zero = none, or it counts as newer than any pick
	Answers Answers
	Probing bool        // a probe runs
	Room    func() bool // reports whether one more endpoint of the pool may be ejected
}

// What says which event an Event is.
type What uint8

const (
	FailureSeen    What = iota // a request or a scrape met a failure
	SuccessSeen                // a request under Pick.Incident was answered well
	ProbeAbandoned             // the probe of Pick.Incident ended without a result
	ConnectRefused             // a connection that was made to check the endpoint failed
)

// Answers says what the endpoint has answered well, to any request. Times are those of the picks; zero = never.
type Answers struct {
	Began   time.Time // the newest pick that was answered with a good status
	Proved  time.Time // the newest pick whose answer's body began well
	Visible time.Time // the newest pick whose answer's body was visible and began well
	Picks   uint64    // number of requests that were sent to the endpoint
}

// Effect says what an event has led to.
type Effect struct {
	Changed   bool // Status returns another value than before
	Check     bool // the endpoint should be connected to, for the event alone proves nothing
	Ejected   bool // the endpoint left Healthy or Degraded for Ejected
	Recovered bool // it left Ejected for Healthy
}

// Machine is the state machine of one endpoint. The zero Machine with a Config is Healthy.
type Machine struct {
	Config

	state State                // never HalfOpen, which is Degraded or Ejected from until on
	cause messages.FailureKind // of state; NoFailure exactly while Healthy
	until time.Time            // when HalfOpen begins; zero exactly while Healthy

	incident incident
	row      row
	share    share
	pause    time.Duration // of Degraded, after a probe was refused; 0 = none was since the last success
	ejection ejection
	recovery recovery
}

// incident is the present incident. number and since mean something only while not Healthy.
type incident struct {
	number uint64    // 1 <= number <= newest
	since  time.Time // when it began
	newest uint64    // highest number so far
}

// ejection is the newest ejection.
type ejection struct {
	lasts time.Duration // its ejection time; 0 = there was no ejection
	ended time.Time     // when a success last ended an ejection; zero = none has
}

// recovery is the newest success that ended an incident.
type recovery struct {
	at        time.Time // failures of requests that were picked before do not count
	revocable uint64    // the incident that it ended, if it may still be taken back; 0 = it may not
}

// row counts failures in a row, by points.
type row struct {
	points int
	newest time.Time // when the newest failure came
}

// share counts the failures among the picks of a span.
type share struct {
	began    time.Time // when the span began
	picks    uint64    // Answers.Picks when the span began
	failures int
}

// State returns the machine's state.
func (m *Machine) State(now time.Time) State {
	if m.state != Healthy && !now.Before(m.until) {
		return HalfOpen
	}
	return m.state
}

// Step moves the machine. All transitions stand here and in tried.
func (m *Machine) Step(now time.Time, e Event) Effect {
	if e.Pick.Incident != 0 { // the request tried the endpoint in an incident, and its result decides
		return m.tried(now, e)
	}
	switch {
	case e.What == ConnectRefused && m.state == Ejected && !e.Probing:
		return m.eject(now, e.Kind, m.incident.number)
	case m.state == Ejected: // only a probe can change it
		return Effect{}
	case !e.Pick.At.IsZero() && e.Pick.At.Before(m.recovery.at): // it was picked before the endpoint recovered
		return Effect{}
	case e.Kind == messages.EndedBare, e.Kind == messages.ScrapeFailed: // neither proves anything by itself
		return Effect{Check: true}
	}
	if !e.Kind.Busy() && m.count(now, e, e.Pick.At) && e.Room() {
		return m.eject(now, e.Kind, newIncident)
	}
	if m.state == Healthy {
		return m.degrade(now, e.Kind, newIncident)
	}
	return Effect{} // Degraded: the pause is not prolonged, so that the probe decides soon
}

// tried is the part of Step for the result of a request that tried the endpoint in an incident.
func (m *Machine) tried(now time.Time, e Event) Effect {
	switch conclusive := e.What != ProbeAbandoned && e.Kind != messages.EndedBare; {
	case m.state == Healthy && e.What == FailureSeen && conclusive && e.Pick.Incident == m.recovery.revocable:
		m.recovery.revocable = 0 // only once, for several requests may have tried the endpoint in that incident
		if e.Kind.Busy() || !e.Room() {
			return m.degrade(now, e.Kind, newIncident)
		}
		return m.eject(now, e.Kind, newIncident)
	case m.state == Healthy, e.Pick.Incident != m.incident.number: // that incident is over
		return Effect{}
	case e.What == SuccessSeen:
		return m.recover(now)
	case !conclusive: // the new status lets the next request take the probe
		return Effect{Changed: true, Check: e.Kind == messages.EndedBare}
	case m.state == Ejected:
		return m.eject(now, e.Kind, m.incident.number)
	case e.Kind.Busy():
		m.pause = min(2*max(shortestPause, m.pause), m.LongestEjection)
		return m.degrade(now, e.Kind, m.incident.number)
	}
	good := e.Answers.Proved // not Began: the failed probe's own answer may have begun well
	if e.Kind.InBody() {
		good = e.Answers.Visible
	}
	// again means that the endpoint failed before, and has answered nothing well since. Otherwise it fails only now and
	// then, or only refused for overload so far.
	again := !m.cause.Busy() && !good.After(m.row.newest)
	if enough := m.count(now, e, m.until); (enough || again) && e.Room() {
		return m.eject(now, e.Kind, m.incident.number)
	}
	return m.degrade(now, e.Kind, m.incident.number)
}

// count adds a failure, and reports whether failures are enough to eject: in a row, or as a share of the endpoint's
// requests. picked is when the request was picked; zero = no request, or the failure counts as newer than any pick. A
// failure of a request that was picked before the newest failure came is not in a row with it.
func (m *Machine) count(now time.Time, e Event, picked time.Time) bool {
	good := e.Answers.Began
	if e.Kind.InBody() {
		good = e.Answers.Visible
	}
	if good.After(m.row.newest) || now.Sub(m.row.newest) > memory {
		m.row.points = 0
	}
	weight := points[e.Kind]
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

// degrade enters Degraded, in the given incident or in a new one.
func (m *Machine) degrade(now time.Time, why messages.FailureKind, incident uint64) Effect {
	m.enter(now, Degraded, why, incident)
	m.until = now.Add(max(shortestPause, m.pause))
	return Effect{Changed: true}
}

// eject enters Ejected, in the given incident or in a new one.
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
