package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
)

const stalledBytes = 1 << 20 // of the body of each stream, which never ends

// stalled is how many streams stop, and the bytes that all of them may hold. The race detector multiplies what this
// process, their client, takes.
func stalled() (streams, limit int) {
	if raceEnabled() {
		return 200, 52 << 20
	}
	return 1000, 256 << 20
}

// stall is how streams stop half way through.
type stall struct {
	head  []string // further headers of the request
	chunk int      // bytes of a body message
	bytes int      // of the body
	whole bool     // the request ends, and its pick is not read
	fits  bool     // within the limit, all of it: no request is refused, and no more is held than came
}

// atOnce is how long half of the refused requests may wait for it, from the first byte that they send.
func atOnce() time.Duration {
	if raceEnabled() {
		return time.Second
	}
	return 100 * time.Millisecond
}

// TestCommandHoldsBodiesWithinTheLimit: what streams that stop half way through may take is what the flag says, and a
// share for the transport, at every moment. Who goes beyond is refused at once.
func TestCommandHoldsBodiesWithinTheLimit(t *testing.T) {
	seenElsewhere(t)
	for name, how := range map[string]stall{
		"the body never ends": {chunk: 64 << 10, bytes: stalledBytes},
		"in small pieces":     {chunk: 1000, bytes: stalledBytes},
		"and a little more":   {chunk: 64 << 10, bytes: stalledBytes + 100},
		"the length is told, and a part comes": {
			head: []string{"content-length", strconv.Itoa(stalledBytes)}, chunk: 4 << 10, bytes: 64 << 10, fits: true,
		},
		"the length is told, and nothing comes": {head: []string{"content-length", strconv.Itoa(stalledBytes)},
			fits: true},
		"the pick is not read": {chunk: 64 << 10, bytes: stalledBytes, whole: true},
	} {
		t.Run(name, func(t *testing.T) { how.try(t) })
	}
}

func (how stall) try(t *testing.T) {
	streams, limit := stalled()
	p := serve(t, simulated(t, 1, quick...), "--config-text", ungated, "--max-held-bytes", strconv.Itoa(limit),
		"--body-timeout", "2m",
		"--secure-serving=false")
	p.pooled(t, 1)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var conns []*grpc.ClientConn
	for range 8 {
		conns = append(conns, dialPlain(t, p.grpcPort))
	}
	refused := &refusals{}
	highest := p.highest("signalbox_held_body_bytes")
	var senders, readers sync.WaitGroup
	for i := range streams {
		stream, err := extprocv3.NewExternalProcessorClient(conns[i%len(conns)]).Process(ctx)
		if err != nil {
			t.Fatal(err)
		}
		x := &exchange{ExternalProcessor_ProcessClient: stream, t: t, begun: true}
		began := time.Now()
		senders.Go(func() { how.send(x) })
		if !how.whole {
			readers.Go(func() { x.mayBeRefused(refused, began) })
		}
	}
	senders.Wait()
	limit = how.settles(t, p, streams, limit)
	heldWithin(t, p, limit, highest)
	if !how.whole && !how.fits {
		eventually(t, 30*time.Second, "who is refused hears of it", func() bool {
			return float64(refused.count()) == p.metric("signalbox_refusals_total")
		})
		t.Logf("under the storm, from its first byte to its refusal: %v", refused)
		// a client that reads nothing takes some in the end, and makes room
		refusedAtOnce(ctx, t, dialPlain(t, p.grpcPort))
	}
	leave()
	readers.Wait()
	p.idle(t)
	eventually(t, 5*time.Second, "nothing is held", func() bool { return p.metric("signalbox_held_body_bytes") == 0 })
	picked(t, dialPlain(t, p.grpcPort)).respond(true)
}

// settles waits until every stream was refused or is held, and gives the bytes that all may hold at most.
func (how stall) settles(t *testing.T, p *picker, streams, limit int) int {
	t.Helper()
	least := float64(limit) / 2
	if how.fits {
		limit = streams * 64 << 10 // a buffer of 64 KiB each, for what came or for the length that was told
		least = float64(limit) - 1
	}
	eventually(t, time.Minute, "every stream was refused, or is held", func() bool {
		return p.metric("signalbox_streams")+p.metric("signalbox_refusals_total",
			`reason="overloaded"`) == float64(streams) &&
			p.metric("signalbox_held_body_bytes") > least
	})
	if n := p.metric("signalbox_refusals_total"); how.fits && n > 0 {
		t.Errorf("%v streams are refused, want none", n)
	}
	return limit
}

// heldWithin compares with the limit what is held at rest, what was held at most, and the process's memory once the
// streams stall. In the storm before that it may be a little more: what grpc-go has read of those that are about to be
// refused is garbage for a moment.
func heldWithin(t *testing.T, p *picker, limit int, highest func() (float64, int)) {
	t.Helper()
	rest := p.metric("signalbox_held_body_bytes")
	if rest > float64(limit) {
		t.Errorf("%.0f bytes are held at rest, want %d at most", rest, limit)
	}
	held, readings := highest()
	stalled, peak := memory(t, p.process, "VmRSS"), memory(t, p.process, "VmHWM")
	t.Logf("%.0f MB held at most, by %d readings, %.0f MB at rest; %v streams left, %v refused; %d MB of memory, %d "+
		"at the peak", held/1e6, readings,
		rest/1e6, p.metric("signalbox_streams"), p.metric("signalbox_refusals_total"), stalled/1e6, peak/1e6)
	if held > float64(limit) {
		t.Errorf("%.0f bytes were held, want %d at most", held, limit)
	}
	// the race detector's own memory says nothing
	if bar := limit*3/2 + 200e6; (stalled > bar || peak > bar+50e6) && !raceEnabled() {
		t.Errorf("%d MB of memory, %d at the peak, want %d at most, and 50 more in the storm", stalled/1e6, peak/1e6,
			bar/1e6)
	}
}

// send sends what there is of a request, or as much as is taken.
func (how stall) send(x *exchange) {
	h := append([]string{":method", "POST", ":path", "/v1/chat/completions", ":authority", "a", "content-type",
		"text/plain"}, how.head...)
	if x.Send(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: headers(false, h...)},
	}) != nil {
		return
	}
	piece := make([]byte, how.chunk)
	for left := how.bytes; left > 0; left -= len(piece) {
		b := &extprocv3.HttpBody{Body: piece[:min(left, len(piece))], EndOfStream: how.whole && left <= len(piece)}
		if x.Send(&extprocv3.ProcessingRequest{
			Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: b},
		}) != nil {
			return
		}
	}
}

// refusedAtOnce has further streams come, one after the other, with more than there can be room for.
func refusedAtOnce(ctx context.Context, t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	refused := &refusals{}
	ctx, leave := context.WithTimeout(ctx, 20*time.Second)
	defer leave()
	for range 21 {
		stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
		if err != nil {
			t.Fatal(err)
		}
		x := &exchange{ExternalProcessor_ProcessClient: stream, t: t, begun: true}
		began := time.Now()
		stall{chunk: 64 << 10, bytes: 30 << 20}.send(x)
		x.mayBeRefused(refused, began)
	}
	t.Logf("after it: %v", refused)
	if refused.count() != 21 {
		t.Errorf("%d of 21 further streams were refused", refused.count())
	}
	if _, median, _ := refused.spread(); median > atOnce() {
		t.Errorf("half of the refusals came after %v, want %v at most", median, atOnce())
	}
}

// refusals are how long refused requests waited, from the first byte that they sent.
type refusals struct {
	mu    sync.Mutex
	waits []time.Duration
}

func (r *refusals) add(wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = append(r.waits, wait)
}

func (r *refusals) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waits)
}

func (r *refusals) spread() (least, median, most time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waits) == 0 {
		return 0, 0, 0
	}
	slices.Sort(r.waits)
	return r.waits[0], r.waits[len(r.waits)/2], r.waits[len(r.waits)-1]
}

func (r *refusals) String() string {
	least, median, most := r.spread()
	return fmt.Sprintf("%d refused after %v, median %v, at most %v", r.count(), least.Round(time.Microsecond),
		median.Round(time.Microsecond), most.Round(time.Microsecond))
}

// highest reads a metric all the time until it is asked, and gives the largest of so many readings.
func (p *picker) highest(name string) func() (most float64, readings int) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	most, readings := 0.0, 0
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			most, readings = max(most, p.metric(name)), readings+1
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
	return func() (float64, int) {
		close(stop)
		<-stopped
		return most, readings
	}
}

// mayBeRefused waits for the stream's end, or for a refusal, which must say when to come again.
func (x *exchange) mayBeRefused(refused *refusals, began time.Time) {
	answer, err := x.Recv()
	if err != nil {
		return
	}
	wait := time.Since(began)
	m := answer.GetImmediateResponse()
	again := false
	for _, h := range m.GetHeaders().GetSetHeaders() {
		again = again || h.GetHeader().GetKey() == "retry-after"
	}
	if m.GetStatus().GetCode() != 503 || !again {
		x.t.Errorf("got %v, want 503 with retry-after", answer)
	}
	refused.add(wait)
}

// memory is what the kernel counts for a process, in bytes.
func memory(t *testing.T, p *process, field string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatalf("no %s", field)
	return 0
}
