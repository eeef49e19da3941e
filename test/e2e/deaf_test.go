package e2e

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// deafStream is an exchange whose client has read the pick and nothing after it, so that Signalbox waits in the middle
// of giving the response back.
func deafStream(t *testing.T, p *picker) *exchange {
	t.Helper()
	x := picked(t, dialPlain(t, p.grpcPort))
	x.respond(false)
	for range 16 {
		x.send(&extprocv3.ProcessingRequest{
			Request: &extprocv3.ProcessingRequest_ResponseBody{
				ResponseBody: &extprocv3.HttpBody{Body: bytes.Repeat([]byte("x"), 60_000)},
			},
		})
	}
	return x
}

// TestCommandSlowReaderHoldsOnlyItsStream: others on the same server go on,
// and a shutdown does not wait for a client that reads nothing.
func TestCommandSlowReaderHoldsOnlyItsStream(t *testing.T) {
	p := serve(t, simulated(t, 1, quick...), "--secure-serving=false", "--drain-timeout", "1s")
	p.pooled(t, 1)
	deafStream(t, p)
	conn := dialPlain(t, p.grpcPort)
	for range 100 {
		picked(t, conn).respond(true)
	}
	eventually(t, 5*time.Second, "one stream is left", func() bool { return p.metric("signalbox_streams") == 1 })
	if most, rss := 100_000_000, memory(t, p.process, "VmRSS"); !raceEnabled() && rss > most {
		t.Errorf("%d bytes of memory, want %d at most", rss, most)
	}
	p.signal(t, syscall.SIGTERM)
	if code := p.exitCode(t, 8*time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}
