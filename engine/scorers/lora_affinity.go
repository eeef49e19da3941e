package scorers

import "github.com/signalbox-epp/signalbox/engine/schedule"

// LoRAAffinity prefers servers that can serve the request's LoRA adapter soon: 1 where the adapter is in use, 0.8
// where a slot is free, 0.6 where the adapter waits for a slot, else 0. The adapter is the model that the request
// names.
type LoRAAffinity struct{}

// Validate returns nil: there are no parameters.
func (LoRAAffinity) Validate() error { return nil }

// Reads reports that the adapters must be known and fresh.
func (LoRAAffinity) Reads() schedule.Reads { return schedule.ReadsLoRA }

// Score looks for the request's model among the adapters of each candidate.
func (LoRAAffinity) Score(in *schedule.Input, scores []float32) {
	model := in.Request.Model
	for i := range in.Candidates.Len() {
		e := in.Candidates.At(i)
		switch {
		case e.ActiveLoRAs().Contains(model):
			scores[i] = 1
		case e.ActiveLoRAs().Len()+e.WaitingLoRAs().Len() < e.MaxLoRAs():
			scores[i] = 0.8
		case e.WaitingLoRAs().Contains(model):
			scores[i] = 0.6
		default:
			scores[i] = 0
		}
	}
}
