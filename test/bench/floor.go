package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// floor answers every request with one endpoint, and gives every chunk back as it came.
type floor struct {
	extprocv3.UnimplementedExternalProcessorServer
}

const (
	floorEndpoint  = "127.0.0.1:10001"
	destinationKey = "x-gateway-destination-endpoint"
)

// Process answers a request's headers once its body is whole, then gives the body back; what belongs to the response is
// answered at once.
func (floor) Process(s extprocv3.ExternalProcessor_ProcessServer) error {
	var body []*extprocv3.HttpBody
	for {
		in, err := s.Recv()
		if err != nil {
			return nil //nolint:nilerr // reset is how a stream ends
		}
		switch m := in.Request.(type) {
		case *extprocv3.ProcessingRequest_RequestBody:
			if body = append(body, m.RequestBody); m.RequestBody.EndOfStream {
				err = answer(s, body)
				body = nil
			}
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
				ResponseHeaders: &extprocv3.HeadersResponse{},
			}})
		case *extprocv3.ProcessingRequest_ResponseBody:
			err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
				ResponseBody: streamed(m.ResponseBody),
			}})
		}
		if err != nil {
			return err
		}
	}
}

func answer(s extprocv3.ExternalProcessor_ProcessServer, body []*extprocv3.HttpBody) error {
	destination := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		destinationKey: structpb.NewStringValue(floorEndpoint),
	}})
	err := s.Send(&extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{
				ClearRouteCache: true,
				HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{{
					Header: &corev3.HeaderValue{Key: destinationKey, RawValue: []byte(floorEndpoint)},
				}}},
			},
		}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{"envoy.lb": destination}},
	})
	for _, chunk := range body {
		if err != nil {
			return err
		}
		err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: streamed(chunk)}})
	}
	return err
}

func streamed(b *extprocv3.HttpBody) *extprocv3.BodyResponse {
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{
			Body: b.Body, EndOfStream: b.EndOfStream,
		}},
	}}}
}

// serveFloor runs until ctx is done. tuned gives it the buffer pool, GC and worker settings of Signalbox.
func serveFloor(ctx context.Context, listen, metricsListen string, tuned bool) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	page, err := net.Listen("tcp", metricsListen)
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(page, http.HandlerFunc(serveMallocs)) }() //nolint:gosec // loopback, ends with the process
	var options []grpc.ServerOption
	if tuned {
		debug.SetGCPercent(400)
		options = append(options, grpc.NumStreamWorkers(64), experimental.BufferPool(pool), grpc.ForceServerCodecV2(pooledCodec{}))
	}
	s := grpc.NewServer(options...)
	extprocv3.RegisterExternalProcessorServer(s, floor{})
	go func() {
		<-ctx.Done()
		s.Stop()
	}()
	return s.Serve(l)
}

// serveMallocs says how many objects were allocated, as the metrics page of Signalbox does.
func serveMallocs(w http.ResponseWriter, _ *http.Request) {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}}
	metrics.Read(s)
	fmt.Fprintf(w, "%s %d\n", mallocsSeries, s[0].Value.Uint64()+s[1].Value.Uint64())
}

// pooledCodec is grpc's protobuf codec over a pool that does not clear.
type pooledCodec struct{}

func (pooledCodec) Name() string { return "proto" }

func (pooledCodec) Marshal(v any) (mem.BufferSlice, error) {
	m := v.(proto.Message)
	size := proto.Size(m)
	b := pool.Get(size)
	out, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*b)[:0], m)
	if err != nil {
		return nil, err
	}
	*b = out
	return mem.BufferSlice{mem.NewBuffer(b, pool)}, nil
}

func (pooledCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b := data.MaterializeToBuffer(pool)
	defer b.Free()
	return proto.Unmarshal(b.ReadOnlyData(), v.(proto.Message))
}

// unclearedPool keeps buffers of 2 KiB, 32 KiB and 1 MiB as they come back.
type unclearedPool struct{ tiers [3]sync.Pool }

var pool = new(unclearedPool)

var tierBytes = [3]int{2 << 10, 32 << 10, 1 << 20}

// Get gives a buffer whose content is undefined.
func (p *unclearedPool) Get(length int) *[]byte {
	for i, size := range tierBytes {
		if length > size {
			continue
		}
		if b, ok := p.tiers[i].Get().(*[]byte); ok {
			*b = (*b)[:length]
			return b
		}
		b := make([]byte, length, size)
		return &b
	}
	b := make([]byte, length)
	return &b
}

// Put takes back what Get gave.
func (p *unclearedPool) Put(b *[]byte) {
	for i, size := range tierBytes {
		if cap(*b) == size {
			p.tiers[i].Put(b)
		}
	}
}
