package load

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslogdatav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	idKey      = "x-signalbox-request-id"
	defaultID  = "0000000000000000-1" // of a server that gives none
	entryDelay = 32                   // requests that end before an entry is sent: the proxy needs some milliseconds
)

// journal is the access log of one connection: one stream for as long as the connection lives,
// a message for each entry.
type journal struct {
	stream
	opened  bool
	waiting [][]byte
	forms   map[formOf]*form
}

// add takes an entry, and sends the one that has waited long enough. Under the connection's mu.
func (j *journal) add(entry []byte) {
	if j.waiting = append(j.waiting, entry); len(j.waiting) > entryDelay {
		j.release(len(j.waiting) - entryDelay)
	}
}

func (j *journal) release(n int) {
	if n > 0 && !j.opened {
		j.opened = true
		j.conn.open(&j.stream, logHeaders)
	}
	for _, e := range j.waiting[:n] {
		j.stream.add(e)
	}
	j.waiting = append(j.waiting[:0], j.waiting[n:]...)
}

func (j *journal) allSent() {}

func (j *journal) onMessage([]byte) error { return errors.New("an answer to the access log") }

// form is an entry's message, with its prefix. Two that are of one form differ in the id, the server, and nothing else.
type form struct {
	message    []byte
	id, served []int // where they stand
	port       int   // likewise, three bytes of a varint
}

// formOf is what decides the lengths in a form.
type formOf struct{ idBytes, responseBytes int }

// entry is one message. Under the connection's mu.
func (j *journal) entry(id, served []byte, responseBytes int) ([]byte, error) {
	of := formOf{len(id), responseBytes}
	f, ok := j.forms[of]
	if !ok {
		f = newForm(of)
		j.forms[of] = f
	}
	out := bytes.Clone(f.message)
	for _, at := range f.id {
		copy(out[at:], id)
	}
	for _, at := range f.served {
		copy(out[at:], served)
	}
	port, err := strconv.ParseUint(string(served[len(servedHost)+1:]), 10, 16)
	out[f.port], out[f.port+1], out[f.port+2] = byte(port)|0x80, byte(port>>7)|0x80, byte(port>>14)
	return out, err
}

func newForm(of formOf) *form {
	id := bytes.Repeat([]byte{'?'}, of.idBytes)
	f := &form{
		message: framed(&accesslogv3.StreamAccessLogsMessage{LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{
			HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{
				LogEntry: []*accesslogdatav3.HTTPAccessLogEntry{logged(string(id), uint64(of.responseBytes))},
			},
		}}),
	}
	f.id, f.served = places(f.message, id), places(f.message, []byte(anyServed))
	f.port = places(f.message, protowire.AppendVarint([]byte{3 << 3}, math.MaxUint16))[0] + 1
	return f
}

// logged is what Envoy logs of a request, as far as its configurations ask for it.
func logged(id string, responseBytes uint64) *accesslogdatav3.HTTPAccessLogEntry {
	text := structpb.NewStringValue
	lb := &structpb.Struct{Fields: map[string]*structpb.Value{
		destinationKey: text(anyServed), destinationKey + "-served": text(anyServed), idKey: text(id),
	}}
	after := func(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
	return &accesslogdatav3.HTTPAccessLogEntry{
		CommonProperties: &accesslogdatav3.AccessLogCommon{
			DownstreamRemoteAddress: address("10.1.2.3", 51234), DownstreamLocalAddress: address("10.1.2.4", 8080),
			DownstreamDirectRemoteAddress: address("10.1.2.3", 51234), StartTime: timestamppb.Now(),
			TimeToLastRxByte: after(200 * time.Microsecond), TimeToFirstUpstreamTxByte: after(900 * time.Microsecond),
			TimeToLastUpstreamTxByte: after(time.Millisecond), TimeToFirstUpstreamRxByte: after(41 * time.Millisecond),
			TimeToLastUpstreamRxByte: after(2 * time.Second), TimeToFirstDownstreamTxByte: after(42 * time.Millisecond),
			TimeToLastDownstreamTxByte: after(2 * time.Second), Duration: after(2 * time.Second),
			UpstreamRemoteAddress: address(servedHost, math.MaxUint16),
			UpstreamLocalAddress:  address("10.1.2.4", 40123), UpstreamCluster: "model_servers",
			ResponseFlags:               &accesslogdatav3.ResponseFlags{},
			Metadata:                    &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": lb}},
			UpstreamRequestAttemptCount: 1, DownstreamWireBytesReceived: 9000, DownstreamWireBytesSent: responseBytes +
				200,
			UpstreamWireBytesSent: 9000, UpstreamWireBytesReceived: responseBytes + 200,
			AccessLogType: accesslogdatav3.AccessLogType_DownstreamEnd,
		},
		ProtocolVersion: accesslogdatav3.HTTPAccessLogEntry_HTTP11,
		Request: &accesslogdatav3.HTTPRequestProperties{
			RequestMethod: corev3.RequestMethod_POST, Scheme: "http", Authority: "llm.example.com",
			Path:      "/v1/chat/completions",
			UserAgent: "OpenAI/Python 1.54.0", ForwardedFor: "10.1.2.3",
			RequestId:           "5f2c0f3e-6a3b-4f6d-9c1e-0123456789ab",
			RequestHeadersBytes: 612, RequestBodyBytes: 8192,
		},
		Response: &accesslogdatav3.HTTPResponseProperties{
			ResponseCode: wrapperspb.UInt32(200), ResponseHeadersBytes: 190, ResponseBodyBytes: responseBytes,
			ResponseCodeDetails: "via_upstream",
		},
	}
}

func address(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// requestID is the id in a pick's header mutation.
func requestID(pick []byte) ([]byte, error) {
	_, after, ok := bytes.Cut(pick, []byte(idKey))
	if !ok {
		return []byte(defaultID), nil
	}
	num, value, _, err := field(after)
	if err != nil || num != protowire.Number(3) {
		return nil, fmt.Errorf("no raw value behind %s in %q", idKey, pick)
	}
	return value, nil
}

// places are all offsets at which a text stands.
func places(message, text []byte) []int {
	var all []int
	for at := 0; ; {
		i := bytes.Index(message[at:], text)
		if i < 0 {
			return all
		}
		all = append(all, at+i)
		at += i + len(text)
	}
}
