package load

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"
)

func TestReadReplyKnowsEndAndLength(t *testing.T) {
	body, err := proto.Marshal(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
			Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{
				Body: make([]byte, 300), EndOfStream: true,
			}},
		}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := readReply(body)
	if err != nil || r.field != 3 || r.bodyBytes != 300 || !r.end {
		t.Errorf("read %d, %d bytes, end %v, %v; want 3, 300, true", r.field, r.bodyBytes, r.end, err)
	}
	for n := 1; n < len(body); n++ {
		if r, err := readReply(body[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes read as %+v", n, len(body), r)
		}
	}
}

// An entry that is put together reads as one that was made for its request: ids and ports of any length.
func TestEntriesNameTheirRequest(t *testing.T) {
	j := journal{forms: map[formOf]*form{}}
	for _, c := range []struct {
		id, served string
		port       uint32
	}{
		{"00000000000000ab-7", "127.0.0.1:10001", 10001}, {"00000000000000ab-8", "127.0.0.1:65535", 65535},
		{"00000000000000ab-12345", "127.0.0.1:40000", 40000}, {"00000000000000ab-8", "127.0.0.1:16384", 16384},
	} {
		b, err := j.entry([]byte(c.id), []byte(c.served), 4321)
		if err != nil {
			t.Fatal(err)
		}
		var m accesslogv3.StreamAccessLogsMessage
		if err := proto.Unmarshal(b[5:], &m); err != nil {
			t.Fatal(err)
		}
		e := m.GetHttpLogs().GetLogEntry()[0]
		lb := e.GetCommonProperties().GetMetadata().GetFilterMetadata()["envoy.lb"].GetFields()
		if got := lb[idKey].GetStringValue(); got != c.id {
			t.Errorf("id %q, want %q", got, c.id)
		}
		if got := lb[destinationKey+"-served"].GetStringValue(); got != c.served {
			t.Errorf("served %q, want %q", got, c.served)
		}
		want := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: servedHost, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: c.port},
		}}}
		if got := e.GetCommonProperties().GetUpstreamRemoteAddress(); !proto.Equal(got, want) {
			t.Errorf("upstream %v, want %v", got, want)
		}
		if got := e.GetResponse().GetResponseBodyBytes(); got != 4321 {
			t.Errorf("%d bytes, want 4321", got)
		}
	}
}
