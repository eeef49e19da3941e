package batch

import "time"

// Reason says why a sequence ended.
type Reason uint8

// The reasons, in the order in which vLLM lists them. Running is the absence of a reason.
const (
	Running Reason = iota
	Stop
	Length
	Abort
)

func (r Reason) String() string { return [...]string{"", "stop", "length", "abort"}[r] }

// Histogram counts values by upper bounds.
type Histogram struct {
	// Bounds are the upper bounds, rising, without the infinite one.
	Bounds []float64
	// Counts has one more element than Bounds; they are not cumulative.
	Counts []uint64
	Sum    float64
	Count  uint64
}

func newHistogram(bounds []float64) Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

func (h *Histogram) observe(v float64) {
	i := 0
	for i < len(h.Bounds) && v > h.Bounds[i] {
		i++
	}
	h.Counts[i]++
	h.Sum += v
	h.Count++
}

func (h *Histogram) observeTime(d time.Duration) { h.observe(d.Seconds()) }

// Bucket bounds of vLLM 0.32 for a context of 4096 tokens.
var (
	firstTokenSeconds = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
		160, 640, 2560}
	tokenSeconds   = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	requestSeconds = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920,
		7680}
	tokenCounts      = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000}
	stepTokens       = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	preemptionCounts = []float64{1, 2, 3, 4, 5, 10, 20}
	choiceCounts     = []float64{1, 2, 5, 10, 20}
)

// Tally is what the engine has counted since its start.
type Tally struct {
	Submitted        uint64 // sequences
	Preemptions      uint64
	QueriedTokens    uint64 // prompt tokens looked up in the prefix cache
	HitTokens        uint64 // of these, found
	PromptTokens     uint64 // of prompts whose prefill is done, cached ones included
	CachedTokens     uint64 // of these, found in the prefix cache
	GenerationTokens uint64
	Finished         [Abort + 1]uint64 // sequences by Reason

	FirstToken, InterToken, PerOutputToken      Histogram // seconds
	EndToEnd, Queue, Inference, Prefill, Decode Histogram // seconds
	PromptLength, AnswerLength, ComputedTokens  Histogram // tokens
	MaxTokens, LongestAnswer, StepTokens        Histogram // tokens
	RequestPreemptions, Choices                 Histogram // counts
}

func newTally() Tally {
	return Tally{
		FirstToken: newHistogram(firstTokenSeconds), InterToken: newHistogram(tokenSeconds),
		PerOutputToken: newHistogram(tokenSeconds),
		EndToEnd:       newHistogram(requestSeconds), Queue: newHistogram(requestSeconds),
		Inference: newHistogram(requestSeconds),
		Prefill:   newHistogram(requestSeconds), Decode: newHistogram(requestSeconds),
		PromptLength: newHistogram(tokenCounts), AnswerLength: newHistogram(tokenCounts),
		ComputedTokens: newHistogram(tokenCounts),
		MaxTokens:      newHistogram(tokenCounts), LongestAnswer: newHistogram(tokenCounts),
		StepTokens:         newHistogram(stepTokens),
		RequestPreemptions: newHistogram(preemptionCounts), Choices: newHistogram(choiceCounts),
	}
}

// token counts one token of s that came out at t.
func (y *Tally) token(s *sequence, t time.Time) {
	y.GenerationTokens++
	if s.generated > 1 {
		y.InterToken.observeTime(t.Sub(s.lastToken))
		return
	}
	y.PromptTokens += uint64(len(s.req.Prompt))
	y.CachedTokens += uint64(s.cachedTokens)
	y.FirstToken.observeTime(t.Sub(s.arrived))
}

// ended counts a sequence that ran to its end. Of an aborted one only the fact is counted.
func (y *Tally) ended(s *sequence, t time.Time, why Reason) {
	y.Finished[why]++
	if why == Abort {
		return
	}
	y.EndToEnd.observeTime(t.Sub(s.arrived))
	y.Queue.observeTime(s.scheduled.Sub(s.arrived))
	y.Inference.observeTime(t.Sub(s.scheduled))
	y.Prefill.observeTime(s.firstToken.Sub(s.scheduled))
	y.Decode.observeTime(t.Sub(s.firstToken))
	if s.generated > 1 {
		y.PerOutputToken.observe(t.Sub(s.firstToken).Seconds() / float64(s.generated-1))
	}
	y.PromptLength.observe(float64(len(s.req.Prompt)))
	y.AnswerLength.observe(float64(s.generated))
	y.LongestAnswer.observe(float64(s.generated))
	y.MaxTokens.observe(float64(s.req.MaxTokens))
	y.ComputedTokens.observe(float64(len(s.req.Prompt) - s.cachedTokens))
	y.RequestPreemptions.observe(float64(s.preemptions))
	y.Choices.observe(1)
}
