package queues_test

import (
	"testing"

	"github.com/signalbox-epp/signalbox/engine/queues"
	"github.com/signalbox-epp/signalbox/engine/queues/queuestest"
)

// TestConformance holds every type of queue against what it says that it can do.
func TestConformance(t *testing.T) {
	for name, fresh := range queues.Types {
		t.Run(name, func(t *testing.T) { queuestest.Conform(t, fresh()) })
	}
}
