package scorers

import (
	"math"
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
)

func TestEmbeddingsCache(t *testing.T) {
	with := func(share float64) scheduletest.Endpoint {
		return scheduletest.Endpoint{Produced: map[string]float64{attributes.MediaCached.Name: share}}
	}
	scores, s := make([]float32, 4), new(EmbeddingsCache)
	asked := ""
	if err := s.Refer(func(parameter, name string) any { asked = parameter + " " + name; return nil }); err != nil ||
		asked != "producerName mm-embeddings-cache-producer" {
		t.Errorf("asked for %q: %v", asked, err)
	}
	scheduletest.Show(t, s, request, func(in *schedule.Input) { s.Score(in, scores) },
		with(1), with(.25), with(0), with(math.NaN()))
	if !slices.Equal(scores, []float32{1, .25, 0, 0}) {
		t.Errorf("scores %v, want the shares, and 0 where there are no media", scores)
	}
}
