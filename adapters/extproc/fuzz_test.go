package extproc

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

// naiveSubset reads a hint from the generated types.
func naiveSubset(m *ask) (list []messages.Address, given bool) {
	v, given := m.GetMetadataContext().GetFilterMetadata()[subsetNamespace].GetFields()[subsetKey]
	var texts []string
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		texts = []string{k.StringValue}
	case *structpb.Value_ListValue:
		for _, item := range k.ListValue.GetValues() {
			texts = append(texts, item.GetStringValue())
		}
	}
	for _, part := range strings.Split(strings.Join(texts, ","), ",") {
		if a := naiveAddress(strings.TrimSpace(part)); a != "" && len(list) < 4096 {
			list = append(list, a)
		}
	}
	return list, given
}

var (
	ipv4Port = regexp.MustCompile(`^([0-9.]+):([0-9]+)$`)
	ipv6Port = regexp.MustCompile(`^\[([0-9a-fA-F:.]+)\]:([0-9]+)$`)
)

func naiveAddress(s string) messages.Address {
	parts := ipv4Port.FindStringSubmatch(s)
	if parts == nil {
		if parts = ipv6Port.FindStringSubmatch(s); parts == nil || !strings.Contains(parts[1], ":") {
			return ""
		}
	}
	ip, err := netip.ParseAddr(parts[1])
	port, errPort := strconv.ParseUint(parts[2], 10, 16)
	switch {
	case err != nil || errPort != nil:
		return ""
	case ip.Unmap().Is4():
		return messages.Address(ip.Unmap().String() + ":" + strconv.Itoa(int(port)))
	}
	return messages.Address("[" + ip.String() + "]:" + strconv.Itoa(int(port)))
}

// FuzzFacts reads any frame: the subset hint is what the generated types say, and what is kept of headers is clean.
func FuzzFacts(f *testing.F) {
	for _, m := range []*ask{
		qH(last), hint(qH(last), "10.0.0.1:1, [2001:db8::1]:80 ,x"),
		hint(qB("{}", last), []any{"10.0.0.1:1", 1, nil, true, "[::ffff:10.0.0.1]:65535", []any{"10.0.0.1:1"}}),
		hint(qH(more), map[string]any{"a": "b"}), hint(qT(), nil), hint(rH(last), 7), hint(qH(last), []any{}),
		hint(qH(last), "[fe80::1%eth0]:1,1.2.3.4:070"),
		withMeta(qH(more), lbNamespace, map[string]any{servedKey: "10.0.0.1:1"}),
		qH(more, ":path: /a?b\xff", "content-encoding: gzip", "content-encoding: br", "x-request-id: \xff",
			"x-llm-d-inference-fairness-id: é", "content-length: 1e9"),
	} {
		frame, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		var in wire.Request
		m := new(ask)
		if (wire.Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(frame)}, &in) != nil ||
			proto.Unmarshal(frame, m) != nil {
			return
		}
		defer in.Release()
		var got facts
		got.readSubset(&in)
		if list, given := naiveSubset(m); given != got.subset.Given ||
			!slices.Equal(list, got.subset.Addresses.Append(nil)) {
			t.Errorf("%v: subset %v, want given %v: %q", m, got.subset, given, list)
		}
		if in.Kind == wire.RequestHeaders {
			got.read(&in, []string{"x-a", ":path", "cookie=a"}, nil)
		}
		for i, h := range got.declared {
			if len(h.Text) > 128 || !utf8.ValidString(h.Text) || !h.Given && h.Text != "" {
				t.Errorf("%v: header %d is %q, given %t", m, i, h.Text, h.Given)
			}
		}
		flow := got.flow(&Configuration{Flows: []int{0, 2}}).Fairness
		if !utf8.ValidString(flow) || flow == "" || len(flow) > 128 {
			t.Errorf("%v: flow %q", m, flow)
		}
		if a := readServed(&in); a != "" && naiveAddress(string(a)) != a {
			t.Errorf("%v: served by %q", m, a)
		}
	})
}

// script makes frames of bytes: the first says the body modes, each further one a frame.
func script(bytes []byte) (frames []*ask, body string) {
	ended := false
	for i, b := range bytes[1:min(len(bytes), 40)] {
		eos, text := b&8 != 0, strings.Repeat(string(rune('a'+i%26)), int(b>>4)*int(b>>4)*300)
		var m *ask
		switch b & 7 {
		case 0:
			m = qH(eos)
			m.ProtocolConfig = nil
		case 1:
			m = qB(text, eos)
			if !ended {
				body += text
			}
			ended = ended || eos
		case 2:
			m = qT()
			ended = true
		case 3:
			m = rH(eos)
		case 4:
			m = rB(text, eos)
		case 5:
			m = rT()
		case 6:
			m = hint(qH(eos), text)
			m.ProtocolConfig = nil
		default:
			m = &ask{ObservabilityMode: eos}
		}
		if i == 0 {
			m = withModes(m, modes(bytes[0]&7), modes(bytes[0]>>4&7))
		}
		frames = append(frames, m)
	}
	return frames, body
}

// doomed finds an error in the first piece.
type doomed struct{ status int }

func failing(messages.API, string) Scanner { return &doomed{} }

func (d *doomed) Write([]byte)        { d.status = 503 }
func (*doomed) Usage() messages.Usage { return messages.Usage{} }
func (d *doomed) ID() []byte          { return nil }
func (d *doomed) ErrorStatus() int    { return d.status }
func (d *doomed) Began() bool         { return true }
func (d *doomed) Events() int         { return 0 }

// FuzzStream plays frames in any order: the stream ends well, with one answer at most, and gives back the body that it
// was sent.
func FuzzStream(f *testing.F) {
	for _, s := range []string{
		"\x44\x00\x19\x0b", "\x44\x00\x11\x19\x03\x14\x1c", "\x44\x00\x11\x02\x03\x05", "\x44\x08\x0b",
		"\x22\x00\x19\x03\x1c", "\x22\x19", "\x33\x00\x11\x02", "\x11\x00\x11\x19\x0b", "\x00\x00\x0b",
		"\x55\x00\x11\x19\x03\x1c", "\x44\x19", "\x44\x02", "\x44\x0f\x00", "\x07\x00", "\x44\x06\xf1\xf9\x03\xf4\xfc",
		"\x44\x00\x00\x19\x19\x03\x03\x0c\x0c", "\x44\x03\x1c",
	} {
		f.Add([]byte(s), uint8(0))
		f.Add([]byte(s), uint8(1))
		f.Add([]byte(s), uint8(5))
	}
	f.Fuzz(func(t *testing.T, bytes []byte, how uint8) {
		if len(bytes) < 2 {
			return
		}
		does := []setup{{}, {script: fail(messages.PickFailed{Reason: messages.NoEndpoints})}, {full: true},
			{config: func(c *Config) { c.MaxBodyBytes = 1000 }}, {config: func(c *Config) { c.MaxHeldBytes = 1000 }},
			{scan: failing}}
		r := newRig(does[int(how)%len(does)])
		frames, body := script(bytes)
		p := newTape(t.Context(), frames...)
		p.half = true
		if err := r.srv.Process(p); err != nil || len(r.panicked) > 0 || r.srv.Held() != 0 ||
			len(r.started())+len(r.refused) > 1 {
			t.Fatalf("error %v, panics %v, %d bytes held, %d cycles, %d records", err, r.panicked, r.srv.Held(),
				len(r.started()), len(r.refused))
		}
		r.settled(t)
		for _, c := range r.started() {
			told := strings.Join(c.lines(), "\n")
			if n := strings.Count(told, "error 503"); n > 1 || n == 1 && !strings.Contains(told, "error 503\nfirst") {
				t.Errorf("told %q, want one error at most, right before the first token", told)
			}
		}
		answers, echoed := 0, ""
		for i, m := range p.sent {
			switch a := m.GetResponse().(type) {
			case *extprocv3.ProcessingResponse_ImmediateResponse:
				if answers++; i != len(p.sent)-1 {
					t.Errorf("something follows a refusal: %q", transcript(t, p.sent))
				}
			case *extprocv3.ProcessingResponse_RequestBody:
				echoed += string(a.RequestBody.GetResponse().GetBodyMutation().GetStreamedResponse().GetBody())
			}
			if m.GetDynamicMetadata() != nil {
				answers++
			}
		}
		if answers > 1 {
			t.Errorf("%d answers: %q", answers, transcript(t, p.sent))
		}
		if echoed != "" && !strings.HasPrefix(body, echoed) {
			t.Errorf("%d bytes came back of %d that were sent, or others", len(echoed), len(body))
		}
	})
}
