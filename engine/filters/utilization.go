package filters

import (
	"errors"
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// Utilization keeps the servers that meet all conditions on how much they are used. What a server does not report meets
// any condition. If conditions read what servers report, those whose answer is stale are dropped; while all are stale,
// all are kept.
type Utilization struct {
	// Conditions are what a server must meet; at least one.
	Conditions []Condition `json:"conditions"`
	// FallbackOnEmpty keeps all servers where none would be left; otherwise such a request is refused.
	FallbackOnEmpty bool `json:"fallbackOnEmpty"`

	values []attributes.NumberSlot // by condition
}

// Condition bounds one metric.
type Condition struct {
	// Metric names what is compared: active-requests (those that were sent and have not ended), running-requests,
	// waiting-queue or kv-cache-utilization (0 to 1).
	Metric string `json:"metric"`
	// MaxValue is the largest value that meets the condition; 0 or more, of kv-cache-utilization at most 1.
	MaxValue float64 `json:"maxValue"`
}

// attribute returns where the value of a metric is; "" = there is no such metric.
func (c *Condition) attribute() string {
	switch c.Metric {
	case "active-requests":
		return attributes.InflightRequests.Name
	case "running-requests":
		return attributes.RunningRequests.Name
	case "waiting-queue":
		return attributes.WaitingRequests.Name
	case "kv-cache-utilization":
		return attributes.KVCacheUsage.Name
	}
	return ""
}

// Validate returns which parameters are missing or out of range.
func (f *Utilization) Validate() error {
	var errs []error
	if len(f.Conditions) == 0 {
		errs = append(errs, errors.New("conditions: got none, want at least one"))
	}
	for i := range f.Conditions {
		c := &f.Conditions[i]
		if c.attribute() == "" {
			errs = append(errs, fmt.Errorf("conditions[%d].metric: got %q, want active-requests, running-requests, "+
				"waiting-queue or kv-cache-utilization", i, clip.Value(c.Metric)))
		}
		switch share := c.attribute() == attributes.KVCacheUsage.Name; {
		case share && !(c.MaxValue >= 0 && c.MaxValue <= 1):
			errs = append(errs, fmt.Errorf("conditions[%d].maxValue: got %v, want 0 to 1", i, c.MaxValue))
		case !(c.MaxValue >= 0):
			errs = append(errs, fmt.Errorf("conditions[%d].maxValue: got %v, want 0 or more", i, c.MaxValue))
		}
	}
	return errors.Join(errs...)
}

// Declare asks for the metrics.
func (f *Utilization) Declare(r *attributes.Reader) {
	for i := range f.Conditions {
		if name := f.Conditions[i].attribute(); name != "" {
			f.values = append(f.values, r.Number(name, ""))
		}
	}
}

// Filter compares each candidate with each condition.
func (f *Utilization) Filter(in *schedule.Input, keep []bool) {
	for c, slot := range f.values {
		values, most := in.Numbers(slot), f.Conditions[c].MaxValue
		for i := range keep {
			keep[i] = keep[i] && !(values.At(i) > most)
		}
	}
	if f.FallbackOnEmpty && none(keep) {
		keepAll(keep)
	}
}
