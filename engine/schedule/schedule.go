package schedule

import (
	"math/rand/v2"

	"github.com/signalbox-epp/signalbox/messages"
)

// Input is what a plugin may look at. A plugin may keep and change none of it. Candidates are never empty.
type Input struct {
	Request    *messages.Request
	Profile    string   // the profile that runs
	Earlier    []Result // what profiles before it picked for this request
	Candidates Candidates
	Rand       *rand.Rand // of the loop; seeded, so that a run can be repeated
}

// Result is what one profile run picked: best first.
type Result struct {
	Profile string
	Ranked  []messages.EndpointID
}

// Filter says which candidates stay: keep[i] belongs to in.Candidates[i] and comes in as true. Keeping none is a
// result, not an error: the framework turns it into a refusal. Called once in each run of a profile, in the order of
// the configuration, with what the filters before it left; not called once nothing is left.
type Filter interface {
	Filter(in *Input, keep []bool)
}

// Scorer writes one score for each candidate: scores[i] belongs to in.Candidates[i] and comes in as 0. It normalises
// what it reads to [0,1], 1 the best; the profile multiplies by the weight and sums. A score outside is clamped, NaN
// counts as 0, and both are counted. It must not allocate per candidate, keep memory, or look at a clock. Called once
// in each run of a profile, after all filters, if any candidate is left.
type Scorer interface {
	Score(in *Input, scores []float32)
}

// Picker appends indexes of candidates to ranked, best first: at least one, none twice. totals are the weighted sums,
// in the order of in.Candidates. Called once in each run of a profile, last, if any candidate is left. A picker that
// returns nothing, an index twice or one out of range costs its request a 500.
type Picker interface {
	Pick(in *Input, totals []float32, ranked []int) []int
}

// Reads says what a plugin looks at beyond labels and in-flight load, so that only what is read is gathered. A plugin
// that reads more has a method Reads() Reads.
type Reads uint8

const (
	ReadsSample Reads = 1 << iota // Waiting, Running, KVUsed: the sample must be fresh
	ReadsLoRA                     // ActiveLoRAs, WaitingLoRAs, MaxLoRAs: the sample must be fresh
	ReadsPrefix                   // PrefixBlocks
)

// readsFresh is what only a fresh sample tells.
const readsFresh = ReadsSample | ReadsLoRA

// Handler chooses which profiles run for a request, one after the other.
type Handler interface {
	// Next is the index of the profile to run after those in earlier, or -1 when all is done. Called until it says
	// -1. A profile that it names twice costs its request a 500.
	Next(in *messages.Request, profiles []string, earlier []Result) int
	// Primary is the index in results whose pick serves the request. Called once for each request, after the last
	// Next, unless a profile failed, which refuses the request. results has every run in its order; it is empty if
	// Next said -1 at once. An index out of range costs its request a 500. As with Next, nothing of the arguments may
	// be kept or changed.
	Primary(results []Result) int
}
