package points

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// LatencyObserver observes how long each server takes to the first token of streamed answers, from the pick on, and
// reads no page for it. It emits for each server llm-d.ai/ttft-floor-seconds, which it needs when nothing waits;
// llm-d.ai/ttft-low-seconds and llm-d.ai/ttft-typical-seconds, two percentiles of the newest times; and
// llm-d.ai/ttft-low-inflight-requests and llm-d.ai/ttft-typical-inflight-requests, the requests in flight at the picks
// whose times are within 10 percentiles of these. What too few answers have shown is unknown.
//
// Answers that are not streamed show nothing, for their first token comes with the last, nor do errors and answers with
// a prefill or encode server. In the light lane an answer shows its time when it ends, if the access log has the
// time of the body's first byte.
type LatencyObserver struct {
	// IntervalDuration is the time between two evaluations; here each answer counts at once.
	IntervalDuration time.Duration `json:"intervalDuration" effect:"warning"`
	// MaxObservationAge is how long a time counts for the percentiles; more than 0.
	MaxObservationAge time.Duration `json:"maxObservationAge"`
	// MaxRequests is how many of the newest times of a server count; 1 to 1000.
	MaxRequests int `json:"maxRequests"`
	// MinRequests is how many times a server must have shown for its percentiles and its floor to be known; 1 to
	// maxRequests.
	MinRequests int `json:"minRequests"`
	// LowPercentile is the lower percentile; more than 0.
	LowPercentile int `json:"lowPercentile"`
	// TypicalPercentile is the higher one; more than lowPercentile, less than 100.
	TypicalPercentile int `json:"typicalPercentile"`
	// WindowSize is how many times are kept; here no more than maxRequests are.
	WindowSize int `json:"windowSize" effect:"warning"`
	// BucketDuration is the time of which the 10th percentile is one measure of the floor; more than 0, at most
	// maxObservationAge.
	BucketDuration time.Duration `json:"bucketDuration"`
	// BucketHistorySize is how many of these measures count, the newest; the floor is the 10th percentile of them; 2 to
	// 10000.
	BucketHistorySize int `json:"bucketHistorySize"`
	// InFlightLoadProducerName names the inflight-load-producer that counts; empty = the only one.
	InFlightLoadProducerName string `json:"inFlightLoadProducerName" names:"inflight-load-producer"`

	reads observed
}

// observed is what an observer reads and keeps.
type observed struct {
	requests attributes.NumberSlot
	times    memory.FirstTokens
	inflight schedule.Private[int] // at the picked server, without the request
}

// Limits of the parameters.
const (
	mostRequests = 1_000
	mostBuckets  = 10_000
)

// Validate returns which parameters are out of range.
func (o *LatencyObserver) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.MaxObservationAge <= 0 {
		fail("maxObservationAge: got %v, want more than 0", o.MaxObservationAge)
	}
	if o.MaxRequests < 1 || o.MaxRequests > mostRequests {
		fail("maxRequests: got %d, want 1 to %d", o.MaxRequests, mostRequests)
	}
	if o.MinRequests < 1 || o.MinRequests > o.MaxRequests {
		fail("minRequests: got %d, want 1 to maxRequests", o.MinRequests)
	}
	if o.LowPercentile < 1 || o.LowPercentile >= o.TypicalPercentile {
		fail("lowPercentile: got %d, want 1 or more, less than typicalPercentile", o.LowPercentile)
	}
	if o.TypicalPercentile > 99 {
		fail("typicalPercentile: got %d, want below 100", o.TypicalPercentile)
	}
	if o.BucketDuration <= 0 || o.BucketDuration > o.MaxObservationAge {
		fail("bucketDuration: got %v, want more than 0, at most maxObservationAge", o.BucketDuration)
	}
	if o.BucketHistorySize < 2 || o.BucketHistorySize > mostBuckets {
		fail("bucketHistorySize: got %d, want 2 to %d", o.BucketHistorySize, mostBuckets)
	}
	return errors.Join(errs...)
}

// Declare asks for the requests in flight, and for what is known of first tokens.
func (o *LatencyObserver) Declare(r *attributes.Reader) {
	o.reads = observed{
		requests: r.Number(attributes.InflightRequests.Name, o.InFlightLoadProducerName),
		times:    memory.NewFirstTokens(r), inflight: schedule.NewPrivate[int](r),
	}
}

// WithoutBody says when times are known.
func (o *LatencyObserver) WithoutBody() string {
	return "knows the time to a first token once the access log tells the answer's end, if that has " +
		"signalbox-body-began-us, and else not"
}

// Emits returns the names of the attributes.
func (*LatencyObserver) Emits() []string {
	return []string{
		attributes.FirstTokenFloor.Name, attributes.FirstTokenLow.Name, attributes.FirstTokenTypical.Name,
		attributes.FirstTokenLowLoad.Name, attributes.FirstTokenTypicalLoad.Name,
	}
}

// Produce sets what is known of each server.
func (o *LatencyObserver) Produce(in *schedule.Input, out *schedule.Produced) {
	view := in.Memory()
	for i, c := range in.Candidates().All() {
		sum, known := o.reads.times.Of(view, c.ID())
		if !known {
			continue
		}
		out.Set(0, i, sum.Floor)
		if math.IsNaN(sum.Typical) {
			continue
		}
		out.Set(1, i, sum.Low)
		out.Set(2, i, sum.Typical)
		out.Set(3, i, sum.LowInflight)
		out.Set(4, i, sum.TypicalInflight)
	}
}

// PreRequest notes what is in flight at the server that the request goes to. The request was not there yet when that
// was read.
func (o *LatencyObserver) PreRequest(p *schedule.Picked, _ *schedule.Headers) schedule.Refusal {
	o.reads.inflight.Set(p, int(p.Number(o.reads.requests, p.At(0))))
	return schedule.Refusal{}
}

// FirstToken keeps the time.
func (o *LatencyObserver) FirstToken(b *schedule.Begun) {
	inflight, noted := o.reads.inflight.Get(b)
	if !noted {
		return
	}
	o.reads.times.Keep(b.Notes(), b.Served(), messages.FirstToken{
		Took: b.Took(), Inflight: inflight, Over: messages.FirstTokenSpan{
			MaxAge: o.MaxObservationAge, Most: o.MaxRequests, Least: o.MinRequests, Low: o.LowPercentile,
			Typical: o.TypicalPercentile, Bucket: o.BucketDuration, Buckets: o.BucketHistorySize,
		},
	})
}
