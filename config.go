package signalbox

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/outlier"
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// Config holds the values that a picker works by.
type Config struct {
	Runtime      runtime.Config // loops, mode and seed; OnPanic is World's
	Plan         *schedule.Plan
	Limits       cycle.Limits
	Scraper      scraper.Config // Endpoints, Turned and Served are set by New
	Outlier      outlier.Config
	Records      Records
	PrefixBlocks int    // that the prefix index keeps of an endpoint; 0 = the index's default
	PoolName     string // in labels of metrics
	FlowSeed     uint64 // of the hash that gives a flow its shard; equal seeds give equal shards
}

// Records are the sizes of what is remembered of ended requests, in all loops together.
type Records struct {
	Entries int
	Bytes   int
}

// World is what a picker meets outside itself. Its functions are called on the loops, by several at once, and must not
// block.
type World struct {
	Metrics  prometheus.Registerer
	Fetcher  scraper.Fetcher // not called, and may be nil, if Config.Scraper asks for nothing
	Checker  outlier.Checker
	Observer schedule.Observer

	// Announcer tells the proxies of endpoints; nil = they know by themselves, and nothing waits.
	Announcer messages.Sink[messages.XdsMsg]
	// Hangs hears of a loop that held up an announcement; nil = none.
	Hangs func(loop int, waited time.Duration)

	Report func(*messages.Record)              // hears of each request at its end; must not keep the record
	Status func(messages.Reason) int           // the HTTP status of a refusal
	Turned func(messages.EndpointSpec, string) // as scraper.Config has it; nil = none
	// Panicked hears of each panic of an actor, and what its loop did before, by lines; nil = none.
	Panicked func(p runtime.Panic, did []string)
	// Release closes what the picker was given. Close calls it once no actor needs any of it;
	// nil = nothing is to close.
	Release func()
}
