package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// full is a configuration under which one request is served, and all others wait.
const full = "{apiVersion: llm-d.ai/v1, kind: EndpointPickerConfig, featureGates: [flowControl], " +
	"plugins: [{type: concurrency-detector, parameters: {maxConcurrency: 1}}, {type: round-robin-fairness-policy}], " +
	"flowControl: {saturationDetector: {pluginRef: concurrency-detector}, defaultRequestTTL: 10m, " +
	"defaultPriorityBand: {maxRequests: 100k, fairnessPolicyRef: round-robin-fairness-policy}}}"

// barWaiting is how many bytes a stream that waits may take beside its body.
const barWaiting = 32 << 10

// waiting measures what streams take whose requests wait for room, beside their bodies.
func (b *bench) waiting() error {
	const streams = 10_000
	b.head(fmt.Sprintf("%d streams that wait for room", streams), "request body", "RSS KB/stream beside the body",
		"bar", "heap", "stacks", "answered after s")
	for _, size := range []int{1 << 10, 8 << 10, 65 << 10} {
		p, err := b.lab.box(bothCores, 1, "--config-text", full, "--max-held-bytes", "8000000000",
			"--drain-timeout", "1m")
		if err != nil {
			return err
		}
		if err := b.wait(p, streams, size); err != nil {
			return err
		}
		b.running = nil // wait has ended it
	}
	return nil
}

// wait has so many requests with bodies of some bytes wait, and then ends the process.
func (b *bench) wait(p *process, streams, size int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	l := &waitLine{process: p, body: chat(size)}
	defer l.close()
	if err := errors.Join(l.dial(10), l.open(ctx, 101), l.await(100)); err != nil { // what they share is there
		return err
	}
	before, err := l.look()
	if err != nil {
		return err
	}
	if err := errors.Join(l.open(ctx, streams), l.await(streams+100)); err != nil {
		return err
	}
	after, err := l.look()
	if err != nil {
		return err
	}
	each := func(before, after float64) float64 { return (after - before) / float64(streams) }
	rss := each(before.rss, after.rss) - float64(size)
	answered, err := l.end(cancel)
	if err != nil {
		return err
	}
	b.row(fmt.Sprintf("%d KB", size>>10), figure(rss/1e3), strings.Replace(b.bar(rss, barWaiting), figure(barWaiting),
		figure(float64(barWaiting)/1e3), 1),
		figure((each(before.heap, after.heap)-float64(size))/1e3), figure(each(before.stacks, after.stacks)/1e3),
		figure(answered.Seconds()))
	return nil
}

// waitLine is requests that wait at one process.
type waitLine struct {
	*process
	body    []byte
	conns   []*grpc.ClientConn
	streams []extprocv3.ExternalProcessor_ProcessClient
}

func (l *waitLine) dial(n int) error {
	for range n {
		conn, err := grpc.NewClient("passthrough:///"+l.address,
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		l.conns = append(l.conns, conn)
	}
	return nil
}

func (l *waitLine) close() {
	for _, c := range l.conns {
		_ = c.Close() // the process has ended
	}
}

// open begins requests.
func (l *waitLine) open(ctx context.Context, n int) error {
	for range n {
		stream, err := extprocv3.NewExternalProcessorClient(l.conns[len(l.streams)%len(l.conns)]).Process(ctx)
		if err != nil {
			return err
		}
		l.streams = append(l.streams, stream)
		if err := errors.Join(stream.Send(l.head()), l.sendBody(stream)); err != nil {
			return err
		}
	}
	return nil
}

func (l *waitLine) head() *extprocv3.ProcessingRequest {
	lines := &corev3.HeaderMap{}
	for _, h := range [][2]string{
		{":method", "POST"}, {":path", "/v1/chat/completions"}, {":authority", "llm"},
		{"content-type", "application/json"}, {"content-length", fmt.Sprint(len(l.body))},
		{"x-request-id", fmt.Sprint("request-", len(l.streams))},
		{"x-llm-d-inference-fairness-id", fmt.Sprint("tenant-", len(l.streams)%500)},
	} {
		lines.Headers = append(lines.Headers, &corev3.HeaderValue{Key: h[0], RawValue: []byte(h[1])})
	}
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: lines}},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{
			RequestBodyMode:  filterv3.ProcessingMode_FULL_DUPLEX_STREAMED,
			ResponseBodyMode: filterv3.ProcessingMode_NONE,
		},
	}
}

// sendBody sends the body in messages of 16 KB, as Envoy does.
func (l *waitLine) sendBody(stream extprocv3.ExternalProcessor_ProcessClient) error {
	for at := 0; at < len(l.body); at += 16 << 10 {
		to := min(at+16<<10, len(l.body))
		if err := stream.Send(&extprocv3.ProcessingRequest{
			Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{
				Body: l.body[at:to], EndOfStream: to == len(l.body),
			}},
		}); err != nil {
			return err
		}
	}
	return nil
}

// await waits until so many requests wait.
func (l *waitLine) await(n int) error {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-look.C {
		got, err := l.series("signalbox_flow_waiting_requests")
		if err != nil || got == float64(n) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%v requests wait, want %d", got, n)
		}
	}
}

// end has the process end, and returns how long the answers take. cancel ends what runs then.
func (l *waitLine) end(cancel func()) (took time.Duration, err error) {
	began, ended := time.Now(), make(chan error, 1)
	go func() { ended <- l.stop() }()
	refused := 0
	for _, stream := range l.streams {
		answer, failed := stream.Recv()
		if err = failed; err != nil {
			break
		}
		if answer.GetImmediateResponse() != nil {
			refused++
		}
	}
	took = time.Since(began)
	cancel()
	if err == nil && refused != len(l.streams)-1 { // one was picked for
		err = fmt.Errorf("%d of %d streams were refused", refused, len(l.streams))
	}
	return took, errors.Join(err, <-ended)
}

// held is the memory of a process.
type held struct{ rss, heap, stacks float64 }

// settled is how long the memory of a process has not changed once it has: the process gives back what it does not use
// every five seconds.
const settled = 8 * time.Second

// look waits until memory has settled.
func (l *waitLine) look() (m held, err error) {
	look := time.NewTicker(500 * time.Millisecond)
	defer look.Stop()
	for since := time.Now(); time.Since(since) < settled; <-look.C {
		rss, err := l.rss()
		if err != nil {
			return m, err
		}
		if change := math.Abs(float64(rss) - m.rss); change > m.rss/200 {
			m.rss, since = float64(rss), time.Now()
		}
	}
	for name, to := range map[string]*float64{
		"go_memstats_heap_alloc_bytes": &m.heap, "go_memstats_stack_inuse_bytes": &m.stacks,
	} {
		if *to, err = l.series(name); err != nil {
			return m, err
		}
	}
	return m, nil
}

// chat is a chat completion of so many bytes.
func chat(size int) []byte {
	const head, tail = `{"model":"m","messages":[{"role":"user","content":"`, `"}],"max_tokens":100}`
	return []byte(head + strings.Repeat("x", size-len(head)-len(tail)) + tail)
}
