package signalbox

import (
	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// Configuration is what the actors do by a configuration. It is immutable. Requests that began under it run and end
// under it, also when another one has come into force; it is garbage once the last of them has ended.
type Configuration struct {
	picker   *Picker
	number   uint64
	plan     *schedule.Plan
	roles    []runtime.Role[messages.CycleMsg] // of cycles under it, by loop
	scraping messages.Scraping
	queueing *flow.Settings // nil = requests never wait for room
	learns   bool           // first tokens and pages tell of endpoints what plugins read
}

// Prepare makes a configuration of a plan, which has its observer and is not changed any more. queueing says how
// requests wait for room; it is nil if the plan has no gate. Prepare changes nothing, and cannot fail. Numbers rise
// from 1, which is the number of the configuration that New was given.
func (p *Picker) Prepare(
	number uint64, plan *schedule.Plan, queueing *flow.Settings, scraping messages.Scraping,
) *Configuration {
	c := &Configuration{picker: p, number: number, plan: plan, scraping: scraping, queueing: queueing}
	c.learns = plan.Learns()
	for i := range p.loops {
		c.roles = append(c.roles, cycle.Role(p.loops[i].deps, plan, queueing))
	}
	return c
}

// Bring brings a configuration into force: Start begins requests under it, and scrapers hear of it. One goroutine at a
// time calls it, with numbers that rise.
func (p *Picker) Bring(c *Configuration) {
	p.inForce.Store(c) // before the pool hears: a scraper that starts meanwhile must not miss it
	p.refs.capacity.Port().Post(messages.QueueingReplaced{})
	p.refs.pool.Port().Post(messages.ConfigurationReplaced{
		Scraping: messages.ScrapingReplaced{Number: c.number, Scraping: c.scraping},
	})
}

// InForce returns the configuration in force.
func (p *Picker) InForce() *Configuration { return p.inForce.Load() }

// Start spawns the cycle of a request under the configuration. False: its loop has no room, and no answer will come.
func (c *Configuration) Start(first messages.RequestArrived) (messages.Port[messages.CycleMsg], bool) {
	at := c.picker.loopIndex(first.Request.ID)
	ref, ok := runtime.Start(c.picker.loops[at].shard, c.roles[at], messages.CycleMsg(first))
	return ref.Port(), ok
}
