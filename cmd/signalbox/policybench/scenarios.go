package policybench

import (
	"fmt"
	"slices"
	"time"
)

// Scenario is what all policies are held against each other in.
type Scenario struct {
	Name  string
	Group string
	Load  float64 // a factor of the calibrated load of Setting
	*setting
}

// setting is a way to play that has a calibrated load: as many clients, or such a rate, as ideal sticky just serves.
type setting struct {
	name string
	play Play // without a seed; its Load has Clients or Rate of 1
	unit float64
}

// Groups of scenarios.
const (
	groupLight    = "below 1.0"
	groupLoads    = "1.0-1.8"
	groupOverload = "overload"
	groupOthers   = "others"
)

// Lengths and times to think are divided by scale: contexts of 100 000 tokens want servers that are larger than what is
// modelled.
const scale = 8

// Loads returns the loads that Scenarios uses by itself.
func Loads() []float64 { return []float64{.7, 1, 1.4, 1.8, 2.5} }

// Scenarios returns all scenarios.
func Scenarios(t Traces, timing Timing, loads []float64) (all []Scenario) {
	t = t.filled()
	engine := Engine{KVBlocks: 20_000, StepTokens: 2048, MaxSequences: 256, Timing: timing}
	large, small := engine, engine
	large.StepTokens, small.KVBlocks = 8192, 5000
	closed := Load{
		Trace:    t.Sessions,
		Scale:    scale,
		ThinkMax: 2 * time.Second,
		Clients:  1,
		Tenants:  4,
		Ramp:     30 * time.Second,
	}
	open := Load{Trace: t.Requests, Scale: scale, Rate: 1, Tenants: 4}
	add := func(name string, p Play, loads ...float64) {
		s := &setting{name: name, play: p}
		for _, l := range loads {
			all = append(all, Scenario{Name: fmt.Sprintf("%s %.1f", name, l), Group: groupOf(l), Load: l, setting: s})
		}
	}
	add("agentic", usual(closed, engine, 8), loads...)
	add("open", usual(open, engine, 8), loads...)
	add("agentic-8192", usual(closed, large, 8), 1.4)
	others := len(all)
	add("two-speeds", twoSpeeds(usual(closed, engine, 8)), 1, 1.4)
	add("restarts", restarts(usual(closed, engine, 8)), 1)
	add("small-caches", usual(closed, small, 8), 1, 1.4)
	universal := closed
	universal.Trace = Sessions{
		Count:    300,
		Pairs:    1,
		Front:    48_000,
		First:    16_000,
		Turns:    20,
		Grows:    4000,
		Output:   216,
		Think:    10,
		Rewrites: .02,
	}.Generate("universal prefix", 1)
	add("universal-prefix", usual(universal, engine, 8), 1, 1.4)
	add("one-to-four", grows(usual(closed, engine, 4)), .5)
	add(pressureName, pressure(timing), 1, 1.2)
	for i := range all[others:] {
		all[others+i].Group = groupOthers
	}
	return all
}

// twoSpeeds has four servers be half as fast as the others.
func twoSpeeds(p Play) Play {
	for i := range 4 {
		p.Servers[i].Timing.Speed = p.Servers[4].Timing.speed() / 2
	}
	return p
}

// restarts has three servers restart, one after the other.
func restarts(p Play) Play {
	for i := range 3 {
		p.Events = append(p.Events, Event{
			At: p.Warm + time.Duration(i)*10*time.Second, Do: func(w *world) { w.restart(2*i, 5*time.Second) },
		})
	}
	return p
}

// grows begins with one server, of four.
func grows(p Play) Play {
	p.Away, p.Load.Ramp, p.Warm = 3, 10*time.Second, 20*time.Second
	p.Events = []Event{
		{At: 25 * time.Second, Do: func(w *world) { w.bring(1, true) }},
		{At: 40 * time.Second, Do: func(w *world) { w.bring(2, true); w.bring(3, true) }},
	}
	return p
}

// pressureName is the name of the scenario that policies have a capacity in.
const pressureName = "pressure"

// pressure is a play whose prefixes do not all fit into the caches: some are hot, more are warm, and the rest is not
// used twice.
func pressure(timing Timing) Play {
	e := Engine{KVBlocks: 6000, StepTokens: 2048, MaxSequences: 256, Timing: timing}
	t := Groups{
		Count:  8000,
		Rate:   10,
		Own:    400,
		Output: 60,
		Kinds: []Kind{
			{Share: .3, Number: 10, Prefix: 6144},
			{Share: .4, Number: 500, Prefix: 6144},
			{Share: .3, Prefix: 6144},
		},
	}.Generate("cache pressure", 1)
	return usual(Load{Trace: t, Scale: 1, Rate: 1, Tenants: 4}, e, 10)
}

func groupOf(load float64) string {
	switch {
	case load < 1:
		return groupLight
	case load <= 1.8:
		return groupLoads
	}
	return groupOverload
}

// usual is a play of so many equal servers.
func usual(l Load, e Engine, servers int) Play {
	p := Play{
		Load: l, Warm: 45 * time.Second, Length: 45 * time.Second, Page: 100 * time.Millisecond,
		Servers: slices.Repeat([]Engine{e}, servers),
	}
	if l.Clients == 0 {
		p.Warm = 30 * time.Second
	}
	return p
}
