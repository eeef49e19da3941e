package scorers

import (
	"cmp"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// EmbeddingsCache prefers servers that were sent the images, sounds and files of the request before, and so need not
// compute their embeddings: the score is the share of them, and 0 where that is unknown, as it is for a request without
// any.
type EmbeddingsCache struct {
	// ProducerName names the mm-embeddings-cache-producer that is read; empty = the only one.
	ProducerName string `json:"producerName" names:"mm-embeddings-cache-producer"`

	cached attributes.NumberSlot
}

// Refer has a producer be there.
func (s *EmbeddingsCache) Refer(plugin func(parameter, name string) any) error {
	plugin("producerName", cmp.Or(s.ProducerName, "mm-embeddings-cache-producer"))
	return nil
}

// Declare asks for the share.
func (s *EmbeddingsCache) Declare(r *attributes.Reader) {
	s.cached = r.Number(attributes.MediaCached.Name, s.ProducerName)
}

// Score takes the share of each candidate.
func (s *EmbeddingsCache) Score(in *schedule.Input, scores []float32) {
	cached := in.Numbers(s.cached)
	for i := range scores {
		if share := cached.At(i); share > 0 {
			scores[i] = float32(share)
		}
	}
}
