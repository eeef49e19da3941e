package signalbox

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/outlier"
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// Config holds the settings of a picker.
type Config struct {
	Runtime      runtime.Config // loops, mode and seed; New sets OnPanic, from World.Panicked
	Plan         *schedule.Plan // of the first configuration
	Queueing     *flow.Settings // of the first configuration; nil = its plan has no gate
	Limits       cycle.Limits
	Scraper      scraper.Config // of the first configuration; Number, Endpoints, Turned and Served are set by New
	Outlier      outlier.Config
	Records      Records
	PrefixBlocks int    // blocks that the prefix index keeps for each endpoint; 0 = the index's default
	PoolName     string // value of the pool's label in metrics
	EmitScores   bool   // picks carry the scores of endpoints
	FlowLabels   int    // most flows that metrics tell apart; 0 = DefaultFlowLabels
}

// DefaultFlowLabels is how many flows metrics tell apart.
const DefaultFlowLabels = cycle.DefaultFlowLabels

// Records limits what is remembered of ended requests, by all loops together. The oldest records make way.
type Records struct {
	Entries int // records
	Bytes   int // memory of the records
}

// World holds what a picker reaches outside itself. Its functions are called on the loops, several at once, and must
// not block.
type World struct {
	Metrics prometheus.Registerer
	Fetcher scraper.Fetcher // never called, and may be nil, if Config.Scraper turns on neither pages nor lists
	Checker outlier.Checker

	// Announcer tells the proxies which endpoints there are; nil = they know by themselves, and picks never wait.
	Announcer messages.Sink[messages.XdsMsg]
	// Hangs is called with each loop that held up an announcement until it was passed over; nil = not called.
	Hangs func(loop int, waited time.Duration)

	Report func(*messages.Record)              // called with each request at its end; must not keep the record
	Status func(messages.Reason) int           // the HTTP status of a refusal
	Turned func(messages.EndpointSpec, string) // as in scraper.Config; nil = not called
	// Panicked is called with each panic of an actor and with the loop's last events, a line each; nil = not called.
	Panicked       func(p runtime.Panic, did []string)
	PolicyPanicked func(flow.Panic) // called with panics of policies, as flow.Caught says; nil = not called
	// ID returns a request's id as clients get it, for exemplars of metrics; nil = there are none.
	ID func(messages.RequestID) string
	// Release closes what the picker was given. Close calls it once no actor needs any of it; nil = not called.
	Release func()
}
