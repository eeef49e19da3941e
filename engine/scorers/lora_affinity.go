package scorers

import (
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// LoRAAffinity prefers servers that can serve the request's LoRA adapter soon: 1 where the adapter is in use, 0.8 where
// a slot is free, 0.6 where the adapter waits for a slot, else 0. The adapter is the model that the request names. A
// server that does not report its adapters scores 0: one that was started without LoRA reports none. A server whose
// answer is stale is passed by; while all are stale, in-flight load stands in.
type LoRAAffinity struct {
	slots           attributes.NumberSlot
	active, waiting attributes.NamesSlot
}

// Validate returns nil: there are no parameters.
func (*LoRAAffinity) Validate() error { return nil }

// Declare asks for the adapters.
func (s *LoRAAffinity) Declare(r *attributes.Reader) {
	s.slots = r.Number(attributes.MaxLoRAs.Name, "")
	s.active, s.waiting = r.Names(attributes.ActiveLoRAs.Name, ""), r.Names(attributes.WaitingLoRAs.Name, "")
}

// Score looks for the request's model among the adapters of each candidate.
func (s *LoRAAffinity) Score(in *schedule.Input, scores []float32) {
	model := in.Request().Model()
	slots, active, waiting := in.Numbers(s.slots), in.Names(s.active), in.Names(s.waiting)
	for i := range scores {
		switch {
		case active.Contains(i, model):
			scores[i] = 1
		case float64(active.Count(i)+waiting.Count(i)) < slots.At(i): // not while they are unknown
			scores[i] = 0.8
		case waiting.Contains(i, model):
			scores[i] = 0.6
		}
	}
}
