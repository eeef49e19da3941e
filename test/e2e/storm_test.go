package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
)

// held are the gauges that show what Signalbox holds for requests.
var held = append([]string{"signalbox_held_body_bytes", "signalbox_prefix_placed_prompts"},
	gauges...)

// TestEnvoyStormLeavesNothing: bad input of every kind, all at once and many times, leaves no goroutine, no stream, no
// load and no byte behind, and the same process serves on.
func TestEnvoyStormLeavesNothing(t *testing.T) {
	s := startStack(t, simulated(t, 2, quick...), "--body-timeout", "2s")
	kinds := storm(t)
	rage(t, s, kinds, 1) // connections, pools and buffers grow to their size
	s.picker.idle(t)
	before := s.picker.metric("go_goroutines")

	began := time.Now()
	sent := rage(t, s, kinds, 12)
	took := time.Since(began)
	for _, gauge := range held {
		eventually(t, 10*time.Second, gauge+" at 0", func() bool {
			status, page := get(s.picker.metrics + "/metrics")
			return status == http.StatusOK && hasSeries(page, gauge) && sumOf(page, gauge) == 0
		})
	}
	// Fetches of metrics come and go; what a request leaves behind would be there hundreds of times.
	const others = 6
	eventually(t, 10*time.Second, fmt.Sprintf("at most %v goroutines", before+others), func() bool {
		return s.picker.metric("go_goroutines") <= before+others
	})
	t.Logf("%d bad requests in %v; goroutines: %v before, %v after", sent, took.Round(time.Millisecond), before,
		s.picker.metric("go_goroutines"))
	if n := s.picker.metric("signalbox_stream_panics_total"); n != 0 {
		t.Errorf("%v streams panicked", n)
	}
	stillWell(t, s)
}

// TestCommandStormOfStreams does the same to the ext_proc port itself, with frames that no Envoy would send.
func TestCommandStormOfStreams(t *testing.T) {
	p := serve(t, simulated(t, 1, quick...), "--body-timeout", "2s")
	p.pooled(t, 1)
	conn := dial(t, p.grpcPort)
	const each = 60
	rageStreams(t, conn, 4)
	p.idle(t)
	before := p.metric("go_goroutines")
	rageStreams(t, conn, each)
	for _, gauge := range held {
		eventually(t, 10*time.Second, gauge+" at 0", func() bool { return p.metric(gauge) == 0 })
	}
	const others = 6
	eventually(t, 10*time.Second, fmt.Sprintf("at most %v goroutines", before+others),
		func() bool { return p.metric("go_goroutines") <= before+others })
	picked(t, conn).respond(true)
	if p.gone() {
		t.Errorf("signalbox ended: %v", p.result)
	}
}

// bad is one kind of bad input. It fails the test by its error.
type bad struct {
	name string
	send func(s *stack) error
}

// storm is every kind. What is hung up on has no answer to look at.
func storm(t *testing.T) []bad {
	t.Helper()
	body := chatBody(model, "hello", 2, false)
	sized := func(headers string) string {
		return chatHead + headers + "content-length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	var many strings.Builder
	for i := range 60 {
		fmt.Fprintf(&many, "x-many-%d: %s\r\n", i, strings.Repeat("m", 1010))
	}
	kb60 := strings.Repeat("b", 60<<10)
	return []bad{
		posted("broken JSON", `{"model":"`, 400), posted("brackets", strings.Repeat("[", 1<<18), 400),
		posted("not JSON", "\x00\xff", 400),
		// or it comes too slowly
		posted("empty", "", 400), posted("over the limit", chatBody(model, strings.Repeat("x", 33<<20), 2, false), 413,
			408),
		written("not UTF-8", sized("x-odd: \xff\xfe\r\n"), 200),
		written("repeated", sized(strings.Repeat("x-again: y\r\n", 100)), 200),
		written("60 KB in total", sized(many.String()), 200), written("one of 60 KB", sized("x-big: "+kb60+"\r\n"),
			200),
		hungUp("over Envoy's limit", sized("x-big: "+kb60+kb60+"\r\n")),
		written("endless", chatHead+"transfer-encoding: chunked\r\n\r\n"+chunks(`{"model":"`), 408),
		hungUp("endless, hung up on", chatHead+"transfer-encoding: chunked\r\n\r\n"+chunks(`{"model":"`)),
		hungUp("content-length 10^12", chatHead+"content-length: 1000000000000\r\n\r\n"+body),
		hungUp("cut chunk", chatHead+"transfer-encoding: chunked\r\n\r\nff\r\n{\"model\""),
		hungUp("cut head", chatHead[:40]),
		{"leaves the answer", func(s *stack) error {
			ctx, leave := context.WithTimeout(context.Background(), 30*time.Millisecond)
			defer leave()
			_ = s.client.stream(ctx, "a long story", 2000)
			return nil
		}},
	}
}

func posted(name, body string, want ...int) bad {
	return bad{name, func(s *stack) error {
		return expect(name, s.client.post("/v1/chat/completions", body), want...)
	}}
}

func written(name, request string, want int) bad {
	return bad{name, func(s *stack) error {
		conn, err := dialRaw(s.envoy.url, request)
		if err != nil {
			return err
		}
		defer conn.Close()
		return expect(name, readAnswer(conn), want)
	}}
}

func hungUp(name, request string) bad {
	return bad{name, func(s *stack) error {
		conn, err := dialRaw(s.envoy.url, request)
		if err != nil {
			return err
		}
		return conn.Close()
	}}
}

func expect(name string, a answer, want ...int) error {
	if a.err != nil || !slices.Contains(want, a.status) {
		return fmt.Errorf("%s: %s; want %v", name, a.String(), want)
	}
	return nil
}

// rage sends every kind so many times, 16 at once, and returns how many that were.
func rage(t *testing.T, s *stack, kinds []bad, each int) int {
	t.Helper()
	work := make(chan bad)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for b := range work {
				if err := b.send(s); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range each {
		for _, b := range kinds {
			work <- b
		}
	}
	close(work)
	all.Wait()
	return each * len(kinds)
}

// rageStreams opens streams, sends frames out of order, and leaves in different ways.
func rageStreams(t *testing.T, conn *grpc.ClientConn, each int) {
	t.Helper()
	part := &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: bytes.Repeat([]byte("x"), 1<<16)},
		},
	}
	head := &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{
			RequestHeaders: headers(false, ":path", "/v1/completions", "x", "\xff"),
		},
	}
	response := &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: headers(true, ":status", "999")},
	}
	trailers := &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}},
	}
	scripts := [][]*extprocv3.ProcessingRequest{
		{}, {{}}, {part}, {trailers}, {response}, {head, head}, {head, part, part},
		{head, part, trailers, trailers, part},
		{head, response, part}, {head, part, head, response, trailers},
	}
	var all sync.WaitGroup
	for i := range each {
		script := scripts[i%len(scripts)]
		all.Go(func() {
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			for _, m := range script {
				if stream.Send(m) != nil {
					return // it was told off already
				}
			}
			if i%2 == 0 { // otherwise the stream is reset
				_ = stream.CloseSend()
				for err = error(nil); err == nil; _, err = stream.Recv() {
				}
			}
		})
	}
	all.Wait()
}

func hasSeries(page, name string) bool {
	return slices.ContainsFunc(strings.Split(page, "\n"), func(line string) bool {
		return strings.HasPrefix(line, name+" ") || strings.HasPrefix(line, name+"{")
	})
}
