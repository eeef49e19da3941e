package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"runtime/metrics"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/protobuf/types/known/structpb"
)

// floor answers every request with one endpoint. It gives every chunk back as it came where the proxy keeps no copy,
// and lets it pass elsewhere.
type floor struct {
	extprocv3.UnimplementedExternalProcessorServer
}

const (
	floorEndpoint  = "127.0.0.1:10001"
	destinationKey = "x-gateway-destination-endpoint"
)

// floorStream is one request.
type floorStream struct {
	extprocv3.ExternalProcessor_ProcessServer
	request extprocfilterv3.ProcessingMode_BodySendMode
	body    []*extprocv3.HttpBody // in FULL_DUPLEX_STREAMED: it goes back once it is whole
}

// Process names the endpoint as late as the request's body mode allows, and answers all else at once.
func (floor) Process(s extprocv3.ExternalProcessor_ProcessServer) error {
	f := floorStream{ExternalProcessor_ProcessServer: s}
	for {
		in, err := s.Recv()
		if err != nil {
			return nil //nolint:nilerr // reset is how a stream ends
		}
		switch m := in.Request.(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			f.request = in.GetProtocolConfig().GetRequestBodyMode()
			err = f.onRequestHeaders()
		case *extprocv3.ProcessingRequest_RequestBody:
			err = f.onRequestBody(m.RequestBody)
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
				ResponseHeaders: &extprocv3.HeadersResponse{},
			}})
		case *extprocv3.ProcessingRequest_ResponseBody:
			err = s.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
				ResponseBody: f.onResponseBody(m.ResponseBody),
			}})
		}
		if err != nil {
			return err
		}
	}
}

func (f *floorStream) onRequestHeaders() error {
	switch f.request {
	case extprocfilterv3.ProcessingMode_STREAMED:
		return f.Send(headersAnswer(picked()))
	case extprocfilterv3.ProcessingMode_BUFFERED:
		return f.Send(headersAnswer(nil))
	default: // FULL_DUPLEX_STREAMED: once the body is whole
		return nil
	}
}

func (f *floorStream) onRequestBody(b *extprocv3.HttpBody) error {
	switch f.request {
	case extprocfilterv3.ProcessingMode_STREAMED:
		return f.Send(bodyAnswer(&extprocv3.BodyResponse{}))
	case extprocfilterv3.ProcessingMode_BUFFERED:
		return f.Send(withMetadata(bodyAnswer(&extprocv3.BodyResponse{Response: picked()})))
	default:
	}
	if f.body = append(f.body, b); !b.EndOfStream {
		return nil
	}
	err := f.Send(headersAnswer(picked()))
	for _, chunk := range f.body {
		if err != nil {
			return err
		}
		err = f.Send(bodyAnswer(streamed(chunk)))
	}
	f.body = nil
	return err
}

func (f *floorStream) onResponseBody(b *extprocv3.HttpBody) *extprocv3.BodyResponse {
	if f.request == extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED {
		return streamed(b)
	}
	return &extprocv3.BodyResponse{}
}

// picked are the mutations that name the endpoint.
func picked() *extprocv3.CommonResponse {
	return &extprocv3.CommonResponse{
		ClearRouteCache: true,
		HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{{
			Header: &corev3.HeaderValue{Key: destinationKey, RawValue: []byte(floorEndpoint)},
		}}},
	}
}

// headersAnswer answers the request's headers; with nil it changes nothing.
func headersAnswer(r *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
	m := &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{Response: r},
	}}
	if r == nil {
		return m
	}
	return withMetadata(m)
}

func bodyAnswer(r *extprocv3.BodyResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: r}}
}

// withMetadata names the endpoint for the load balancer.
func withMetadata(m *extprocv3.ProcessingResponse) *extprocv3.ProcessingResponse {
	destination := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		destinationKey: structpb.NewStringValue(floorEndpoint),
	}})
	m.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{"envoy.lb": destination}}
	return m
}

func streamed(b *extprocv3.HttpBody) *extprocv3.BodyResponse {
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{
			Body: b.Body, EndOfStream: b.EndOfStream,
		}},
	}}}
}

// floorLog takes entries of the access log and forgets them.
type floorLog struct {
	accesslogv3.UnimplementedAccessLogServiceServer
}

func (floorLog) StreamAccessLogs(s accesslogv3.AccessLogService_StreamAccessLogsServer) error {
	for {
		if _, err := s.Recv(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
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
	//nolint:gosec // loopback, ends with the process
	go func() { _ = http.Serve(page, http.HandlerFunc(serveMallocs)) }()
	var options []grpc.ServerOption
	if tuned {
		debug.SetGCPercent(400)
		options = append(options, grpc.NumStreamWorkers(64), experimental.BufferPool(pool),
			grpc.ForceServerCodecV2(pooledCodec{}))
	}
	s := grpc.NewServer(options...)
	extprocv3.RegisterExternalProcessorServer(s, floor{})
	accesslogv3.RegisterAccessLogServiceServer(s, floorLog{})
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
