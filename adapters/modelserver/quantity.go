package modelserver

import (
	"slices"

	"github.com/signalbox-epp/signalbox/engine/attributes"
)

// quantity is what a series reports.
type quantity uint8

const (
	waiting quantity = iota
	running
	kvUsed
	kvUsedOlder // kvUsed under a name that newer versions of the engine do not have; it counts if kvUsed is absent
	blockTokens
	blocks
	awake // 0 of an engine that sleeps, 1 of one that does not
	startedAt
	lora       // lists of adapters, in the labels of its newest sample
	loraLoaded // one sample for each adapter that lies in a slot, or in the memory of the host
	loraCount  // adapters in slots
	loraSlots
	quantities
)

// numbers are the attributes that are one number of a page, but for the number of adapters, which stands in a label.
var numbers = [...]struct {
	tells     quantity
	attribute attributes.Attribute
	of        func(tally) (value float64, ok bool)
}{
	{waiting, attributes.WaitingRequests, tally.total},
	{running, attributes.RunningRequests, tally.total},
	{kvUsed, attributes.KVCacheUsage, tally.share},
	{blockTokens, attributes.KVBlockTokens, tally.top},
	{blocks, attributes.KVBlocks, tally.total},
	{awake, attributes.Asleep, tally.anyZero},
	{startedAt, attributes.StartTime, tally.top},
}

// adapterAttributes are those of adapters. Most stand in labels.
var adapterAttributes = []attributes.Attribute{
	attributes.ActiveLoRAs, attributes.WaitingLoRAs, attributes.MaxLoRAs, attributes.ResidentLoRAs,
	attributes.HostLoRAs, attributes.PinnedLoRAs, attributes.BaseModels,
}

// wanted says what is looked for on a page, as bits of quantities.
type wanted struct {
	numbers    uint16
	quantities uint16 // those of numbers, and what they are worked out from
	adapters   bool   // those of adapterAttributes
	engine     bool   // look which engine it is, by any of its series; otherwise those that are read tell it
}

func wantedOf(all []attributes.Attribute) (w wanted) {
	for _, of := range &numbers {
		if slices.Contains(all, of.attribute) {
			w.numbers |= 1 << of.tells
		}
	}
	w.quantities = w.numbers
	if w.numbers&(1<<kvUsed) != 0 {
		w.quantities |= 1 << kvUsedOlder
	}
	if slices.ContainsFunc(all, func(a attributes.Attribute) bool { return slices.Contains(adapterAttributes, a) }) {
		// Without waiting requests no adapter is waited for, and running ones name the base model.
		w.quantities |= 1<<lora | 1<<loraLoaded | 1<<loraCount | 1<<loraSlots | 1<<waiting | 1<<running
		w.adapters = true
	}
	return w
}

// load are the quantities by which a server's load shows.
const load = 1<<waiting | 1<<running | 1<<kvUsed

// tally sums up the samples of one quantity. What it says of no samples is false.
type tally struct {
	sum     float64
	highest float64
	samples int
	zeros   int // samples of 0
}

func (t *tally) add(value float64) {
	t.sum += value
	t.highest = max(t.highest, value)
	t.samples++
	if value == 0 {
		t.zeros++
	}
}

func (t *tally) join(other tally) {
	t.sum += other.sum
	t.highest = max(t.highest, other.highest)
	t.samples += other.samples
	t.zeros += other.zeros
}

func (t tally) total() (float64, bool) { return t.sum, t.samples > 0 }

// share returns the mean, and no more than 1.
func (t tally) share() (float64, bool) {
	return min(t.sum/float64(max(t.samples, 1)), 1), t.samples > 0
}

func (t tally) top() (float64, bool) { return t.highest, t.samples > 0 }

// anyZero returns 1 if a sample is 0: of the engines behind one page, each may get the next request.
func (t tally) anyZero() (float64, bool) { return float64(min(t.zeros, 1)), t.samples > 0 }
