package runtime_test

import (
	"sync"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
)

// The clock is not read for each item. Still items begin one after the other, and none before it was posted, however
// many goroutines post.
func TestItemsBeginInOrder(t *testing.T) {
	s := start(t, runtime.Config{Loops: 2, Ring: 1 << 16})
	var posters sync.WaitGroup
	for range 4 {
		posters.Go(func() {
			done := make(chan struct{}, 1)
			for range 500 {
				live(s, done)
			}
		})
	}
	posters.Wait()
	events, err := runtimetest.Inspect(s).Events(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) < 4*500*6 {
		t.Fatalf("%d events, want 6 of each of 2000 lives", len(events))
	}
	free := int64(0)
	for i, e := range events {
		if e.Waited < 0 || e.Begin < free {
			t.Fatalf("event %d begins at %d, when the loop was free at %d, and has waited %d", i, e.Begin, free,
				e.Waited)
		}
		free = e.Begin + e.Took
	}
}
