package accesslog

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/messages"
)

// told is all that an entry says, read one way or the other.
type told struct {
	Intermediate bool
	ID           string
	Connection   string
	End          messages.ResponseEnded
}

// generated reads an entry through the generated types.
func generated(e *entryPB) told {
	c, response := e.GetCommonProperties(), e.GetResponse()
	flags, socket := c.GetResponseFlags(), c.GetUpstreamRemoteAddress().GetSocketAddress()
	served := messages.Address("")
	if ip, err := netip.ParseAddr(socket.GetAddress()); err == nil && socket.GetPortValue() <= math.MaxUint16 {
		served = messages.Address(netip.AddrPortFrom(ip.Unmap(), uint16(socket.GetPortValue())).String())
	}
	lasted := max(c.GetDuration().AsDuration(), c.GetTimeToLastDownstreamTxByte().AsDuration(),
		c.GetTimeToLastUpstreamRxByte().AsDuration())
	return told{
		Intermediate: c.GetIntermediateLogEntry(), //nolint:staticcheck // proxies still set it
		ID:           c.GetMetadata().GetFilterMetadata()[namespace].GetFields()[idKey].GetStringValue(),
		Connection:   c.GetMetadata().GetFilterMetadata()[namespace].GetFields()[connectionKey].GetStringValue(),
		End: messages.ResponseEnded{
			At:            c.GetStartTime().AsTime().Add(lasted),
			ResponseBytes: int64(min(response.GetResponseBodyBytes(), 1<<62)),
			Logged: messages.Logged{
				Status: int(response.GetResponseCode().GetValue()), Served: served,
				Headers:    c.GetTimeToFirstUpstreamRxByte().AsDuration(),
				FirstToken: bodyTime(c.GetCustomTags()[bodyBegan]),

				ClientLeft: flags.GetDownstreamConnectionTermination() || flags.GetDownstreamRemoteReset(),
				Broken: flags.GetUpstreamRemoteReset() || flags.GetUpstreamConnectionTermination() ||
					flags.GetUpstreamConnectionFailure() ||
					flags.GetUpstreamProtocolError() || flags.GetNoHealthyUpstream() ||
					flags.GetUpstreamRetryLimitExceeded(),
			},
		},
	}
}

// bodyTime is a number of microseconds, if it is one.
func bodyTime(text string) time.Duration {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || len(text) > 18 {
		return 0
	}
	return time.Duration(min(n, math.MaxInt64/1000)) * time.Microsecond
}

// compare reads a message both ways.
func compare(t *testing.T, message []byte) {
	t.Helper()
	var want, got []told
	ok := eachEntry(message, func(e *entry) {
		got = append(got, told{e.intermediate, string(e.id), string(e.connection),
			e.end()})
	})
	var m accesslogv3.StreamAccessLogsMessage
	if err := proto.Unmarshal(message, &m); err != nil {
		return // it need not notice what it does not read
	}
	for _, e := range m.GetHttpLogs().GetLogEntry() {
		want = append(want, generated(e))
	}
	if !ok {
		t.Fatalf("%x is malformed, but proto.Unmarshal reads it", message)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%x, generated types -, by hand +:\n%s", message, diff)
	}
}

func encoded(t testing.TB, list ...*entryPB) []byte {
	t.Helper()
	b, err := proto.Marshal(&accesslogv3.StreamAccessLogsMessage{
		LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{
			HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: list},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// odd are messages that no proxy sends, and that mean something all the same.
func odd(t testing.TB) map[string][]byte {
	full := encoded(t, named("7", func(e *entryPB) {
		e.CommonProperties.ResponseFlags = &flags{UpstreamProtocolError: true, DownstreamRemoteReset: true,
			LocalReset: true}
		e.CommonProperties.IntermediateLogEntry = true //nolint:staticcheck // proxies still set it
	}), named("8"))
	bare := encoded(t, &entryPB{})
	number := encoded(t, named("7", func(e *entryPB) {
		e.CommonProperties.Metadata.FilterMetadata[namespace].Fields[idKey] = structpb.NewNumberValue(7)
		e.CommonProperties.Metadata.FilterMetadata[namespace].Fields[connectionKey] = structpb.NewStringValue("3")
		e.CommonProperties.Metadata.FilterMetadata["other"] = &structpb.Struct{}
	}))
	pipe := encoded(t, named("7", func(e *entryPB) {
		e.CommonProperties.UpstreamRemoteAddress = &corev3.Address{
			Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/x"}},
		}
	}))
	tcp := []byte{3<<3 | 2, 0}
	return map[string][]byte{
		"nothing": {}, "full": full, "bare": bare, "number": number, "pipe": pipe, "tcp": tcp,
		"tcp at last": append(full[:len(full):len(full)], tcp...),
		"tags": encoded(t, named("7", func(e *entryPB) {
			e.CommonProperties.CustomTags = map[string]string{bodyBegan: "302025", "other": "7"}
		}), named("8", func(e *entryPB) { e.CommonProperties.CustomTags = map[string]string{bodyBegan: "-"} })),
		"a huge tag": encoded(t, named("7", func(e *entryPB) {
			e.CommonProperties.CustomTags = map[string]string{bodyBegan: strings.Repeat("9", 18)}
		}), named("7", func(e *entryPB) {
			e.CommonProperties.CustomTags = map[string]string{bodyBegan: strings.Repeat("9", 19)}
		})),
		"tcp before": append(tcp[:2:2], full...), "twice": append(full[:len(full):len(full)], number...),
	}
}

func TestEntriesReadLikeTheGeneratedTypes(t *testing.T) {
	for name, message := range odd(t) {
		t.Run(name, func(t *testing.T) { compare(t, message) })
	}
}

// One entry may stand in pieces, which merge: every split of two different entries' bytes.
func TestPiecesMerge(t *testing.T) {
	inner := func(e *entryPB) []byte {
		b, err := proto.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	a := inner(named("7", func(e *entryPB) {
		e.CommonProperties.ResponseFlags = &flags{UpstreamRemoteReset: true}
		e.CommonProperties.UpstreamRemoteAddress = socket("10.0.0.3", 70_000)
	}))
	b := inner(named("8", func(e *entryPB) {
		e.CommonProperties.UpstreamRemoteAddress = &corev3.Address{
			Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				PortSpecifier: &corev3.SocketAddress_NamedPort{NamedPort: "http"},
			}},
		}
		e.CommonProperties.Duration, e.Response.ResponseCode = nil, nil
	}))
	for _, whole := range [][]byte{append(a[:len(a):len(a)], b...), append(b[:len(b):len(b)], a...)} {
		list := append(appendVarint([]byte{1<<3 | 2}, len(whole)), whole...)
		compare(t, append(appendVarint([]byte{2<<3 | 2}, len(list)), list...))
	}
}

func appendVarint(b []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func TestEntriesThatAreCutAreMalformed(t *testing.T) {
	whole := encoded(t, named("7"))
	for n := 1; n < len(whole); n++ {
		if eachEntry(whole[:n], func(*entry) { t.Errorf("an entry is visited in %d of %d bytes", n, len(whole)) }) {
			t.Errorf("the first %d of %d bytes pass", n, len(whole))
		}
	}
}

// A message may hold a million entries: what they take does not grow with their number.
func TestEntriesAreKeptNowhere(t *testing.T) {
	list := func(n int) []byte {
		return append(encoded(t, named("7")), encoded(t, slices.Repeat([]*entryPB{{}}, n)...)...)
	}
	for _, n := range []int{1, 10, 10_000} {
		message, visits := list(n), 0
		cost := testing.AllocsPerRun(5, func() {
			visits = 0
			if !eachEntry(message, func(*entry) { visits++ }) {
				t.Errorf("%d entries are malformed", n)
			}
		})
		if visits != n+1 || cost > 1 {
			t.Errorf("%d entries: %d visits, %v allocations, want all of them visited, and one allocation at most", n+1,
				visits, cost)
		}
	}
}

// Whatever the last entry is, none is visited.
func TestAllEntriesAreReadBeforeOneIsVisited(t *testing.T) {
	bad := []byte{2<<3 | 2, 4, 1<<3 | 2, 2, 1<<3 | 2, 9} // an entry whose common properties are longer than it
	for name, message := range map[string][]byte{
		"alone": bad, "after a good one": append(encoded(t, named("7")), bad...),
		"before a good one": append(slices.Clip(bad), encoded(t, named("7"))...),
	} {
		if eachEntry(message, func(*entry) { t.Errorf("%s: an entry is visited", name) }) {
			t.Errorf("%s: it is not malformed", name)
		}
	}
}

func FuzzEntries(f *testing.F) {
	for _, message := range odd(f) {
		f.Add(message)
	}
	f.Fuzz(compare)
}

func BenchmarkEntry(b *testing.B) {
	message := encoded(b, named("7"))
	b.ReportAllocs()
	for b.Loop() {
		eachEntry(message, func(e *entry) {
			if e.end().At.After(began.Add(time.Hour)) {
				b.Fatal("late")
			}
		})
	}
}
