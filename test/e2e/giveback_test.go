package e2e

import (
	"strconv"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

const largeBodies = 20

// TestCommandGivesMemoryBack: 20 large bodies arrive at once, and are gone. At the peak the process has them, and a
// share for the transport and the collector; half a minute later it is small again,
// though nothing has come since that would have it collect garbage.
func TestCommandGivesMemoryBack(t *testing.T) {
	seenElsewhere(t)
	for name, c := range map[string]struct {
		bytes int // of a body
		told  bool
		room  int // bytes that a body may take while it is held
	}{
		"the length is not told": {bytes: 31 << 20, room: 32 << 20}, // its buffer has doubled
		"the length is told":     {bytes: 17 << 20, told: true, room: 17 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			// Bodies of requests that wait for room would be there at the same time as those that go back.
			p := serve(t, simulated(t, 1, quick...), "--secure-serving=false", "--config-text", ungated)
			p.pooled(t, 1)
			before := memory(t, p.process, "VmRSS")
			sendLargeBodies(t, p, c.bytes, c.told)
			p.idle(t)
			ended := time.Now()
			after, peak := memory(t, p.process, "VmRSS"), memory(t, p.process, "VmHWM")
			t.Logf("%d MB before, %d at the peak, %d at the end", before/1e6, peak/1e6, after/1e6)
			if bar := largeBodies*c.room + 220e6; peak > bar && !raceEnabled() {
				t.Errorf("%d MB at the peak, want %d at most", peak/1e6, bar/1e6)
			}
			eventually(t, 30*time.Second, "memory is given back",
				func() bool { return memory(t, p.process, "VmRSS") < before+96<<20 })
			t.Logf("%d MB %v later", memory(t, p.process, "VmRSS")/1e6, time.Since(ended).Round(100*time.Millisecond))
		})
	}
}

// sendLargeBodies has all bodies but their last piece arrive before the first of them is whole, and takes them back.
func sendLargeBodies(t *testing.T, p *picker, size int, told bool) {
	t.Helper()
	head := []string{":method", "POST", ":path", "/v1/chat/completions", ":authority", "a", "content-type",
		"text/plain"}
	if told {
		head = append(head, "content-length", strconv.Itoa(size))
	}
	piece := make([]byte, 64<<10)
	var most, all sync.WaitGroup
	most.Add(largeBodies)
	for range largeBodies {
		x := openExchange(t, dialPlain(t, p.grpcPort))
		all.Go(func() {
			x.send(&extprocv3.ProcessingRequest{
				Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: headers(false, head...)},
			})
			for left := size; left > len(piece); left -= len(piece) {
				x.send(&extprocv3.ProcessingRequest{
					Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: piece}},
				})
			}
			most.Done()
			most.Wait()
			x.send(&extprocv3.ProcessingRequest{
				Request: &extprocv3.ProcessingRequest_RequestBody{
					RequestBody: &extprocv3.HttpBody{Body: piece, EndOfStream: true},
				},
			})
			x.receive()
			for back := 0; back < size; {
				body := x.receive().GetRequestBody().GetResponse().GetBodyMutation()
				back += len(body.GetStreamedResponse().GetBody())
			}
			x.respond(true)
		})
	}
	all.Wait()
}
