package extproc

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/signalbox-epp/signalbox/engine/rewrites"
)

// brackets is a scripted Restorer of names between < and >, which holds back what begins with <.
type brackets struct {
	served, asked string
	held          []byte
}

func (b *brackets) Append(dst, piece []byte) []byte {
	for _, c := range piece {
		if c == '<' || len(b.held) > 0 {
			b.held = append(b.held, c)
		} else {
			dst = append(dst, c)
		}
		if c == '>' {
			dst = append(dst, bytes.ReplaceAll(b.held, []byte("<"+b.served+">"), []byte("<"+b.asked+">"))...)
			b.held = nil
		}
	}
	return dst
}

func (b *brackets) Flush(dst []byte) []byte {
	dst, b.held = append(dst, b.held...), nil
	return dst
}

// restoring is a rig whose requests for a are served by longer-name.
func restoring() *rig {
	r := newRig(setup{})
	r.inForce.Parser = angled{}
	r.inForce.Rewrites = rewrites.NewTable([]rewrites.Rewrite{{Name: "r", Rules: []rewrites.Rule{
		{Models: []string{"a"}, Targets: []rewrites.Target{{Model: "longer-name", Weight: 1}}},
	}}})
	r.inForce.Restore = func(contentType, served, asked string) Restorer {
		if contentType == "text/plain" {
			return nil
		}
		return &brackets{served: served, asked: asked}
	}
	return r
}

// restoredAnswer returns the body that the client gets of one that came in these pieces, and what is removed of the
// response's headers.
func restoredAnswer(t *testing.T, pieces []string, answers []*answer) (body string, removed []string) {
	t.Helper()
	at := 0
	for _, m := range answers {
		switch r := m.GetResponse().(type) {
		case *extprocv3.ProcessingResponse_ResponseHeaders:
			removed = r.ResponseHeaders.GetResponse().GetHeaderMutation().GetRemoveHeaders()
		case *extprocv3.ProcessingResponse_ResponseBody:
			switch mutation := r.ResponseBody.GetResponse().GetBodyMutation().GetMutation().(type) {
			case *extprocv3.BodyMutation_Body:
				body += string(mutation.Body)
			case *extprocv3.BodyMutation_StreamedResponse:
				body += string(mutation.StreamedResponse.GetBody())
			case nil:
				body += pieces[at]
			}
			at++
		}
	}
	return body, removed
}

// The client reads the name that it asked for, in each mode that shows the body, wherever that is cut.
func TestRestoredNames(t *testing.T) {
	const came = "{<longer-name>,<other>,<longer-name>}"
	head := []string{":status: 200", "content-type: application/json", fmt.Sprintf("content-length: %d", len(came))}
	tests := map[string]struct {
		model string
		head  []string // nil = head
		back  bool     // the name is put back
	}{
		"rewritten":           {"a", nil, true},
		"identity":            {"a", append(slices.Clip(head), "content-encoding: identity"), true},
		"an error of it":      {"a", append([]string{":status: 404"}, head[1:]...), true},
		"not rewritten":       {"longer-name", nil, false},
		"encoded":             {"a", append(slices.Clip(head), "content-encoding: gzip"), false},
		"of no type with one": {"a", []string{":status: 200", "content-type: text/plain"}, false},
	}
	for name, tc := range tests {
		for mode, response := range map[string]modes{"full duplex": fds, "streamed": streamed, "buffered": whole,
			"partial": partial} {
			t.Run(name+", "+mode, func(t *testing.T) {
				lines, want := head, came
				if tc.head != nil {
					lines = tc.head
				}
				if tc.back {
					want = strings.ReplaceAll(came, "longer-name", "a")
				}
				for _, pieces := range [][]string{{came}, strings.SplitAfter(came, "l"), strings.Split(came, "")} {
					if response == whole || response == partial {
						pieces = []string{came} // they have one message
					}
					ask := []*ask{withModes(qH(more, ":path: "+chatPath), fds, response), qB("<"+tc.model+">", last),
						rH(more, lines...)}
					for i, p := range pieces {
						ask = append(ask, rB(p, i == len(pieces)-1))
					}
					r := restoring()
					got, removed := restoredAnswer(t, pieces, converse(t, r.serve(t), ask...))
					if got != want || slices.Contains(removed, "content-length") != tc.back {
						t.Errorf("%d pieces: got %q, removed %q, want %q, content-length removed %v", len(pieces), got,
							removed, want, tc.back)
					}
					told, ended := fmt.Sprint(r.only(t).lines()), fmt.Sprintf("ended %d ", len(came))
					if !strings.Contains(told, ended) {
						t.Errorf("told %s, want the %d bytes of the server", told, len(came))
					}
				}
			})
		}
	}
}

// A body that stops within what may be a name loses nothing, whatever ends it.
func TestRestoredNamesHeldBack(t *testing.T) {
	begin := []*ask{qH(more, ":path: "+chatPath), qB("<a>", last)}
	for name, tc := range map[string]struct {
		response []*ask
		want     []string
	}{
		"last chunk":     {[]*ask{rH(more), rB("{<long", last)}, []string{`rB "{<long" eos`}},
		"a chunk of its": {[]*ask{rH(more), rB("<long", more), rB("", last)}, []string{`rB "<long" eos`}},
		"trailers":       {[]*ask{rH(more), rB("{<long", more), rT()}, []string{`rB "{"`, `rB "<long"`, "rT"}},
		"nothing held":   {[]*ask{rH(more), rB("{}", more), rT()}, []string{`rB "{}"`, "rT"}},
		"no headers":     {[]*ask{rB("<longer", more), rB("-name>", last)}, []string{`rB "<a>" eos`}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, m := range converse(t, restoring().serve(t), append(slices.Clip(begin), tc.response...)...) {
				if m.GetResponseBody() != nil || m.GetResponseTrailers() != nil {
					got = append(got, line(t, m))
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// marked is a proxy of the light lane.
type marked struct {
	extprocv3.ExternalProcessorClient
}

func (m marked) Process(ctx context.Context, o ...grpc.CallOption) (extprocv3.ExternalProcessor_ProcessClient, error) {
	return m.ExternalProcessorClient.Process(metadata.AppendToOutgoingContext(ctx, LogMark, "1"), o...)
}

// Without a body there is nothing to put back: the length of a response to HEAD stays. A proxy of the light lane that
// shows a body keeps it as it is.
func TestRestoredNamesWithoutBody(t *testing.T) {
	for name, head := range map[string]*ask{
		"marked":    rH(more, ":status: 200", "content-length: 7"),
		"ended":     rH(last, ":status: 200", "content-length: 7"),
		"light":     withModes(rH(more, ":status: 200", "content-length: 7"), fds, none),
		"gRPC mode": withModes(rH(more, ":status: 200"), fds, filterv3.ProcessingMode_GRPC),
	} {
		t.Run(name, func(t *testing.T) {
			first := qH(more, ":path: "+chatPath)
			first.ProtocolConfig.ResponseBodyMode = head.GetProtocolConfig().GetResponseBodyMode()
			if head.GetProtocolConfig() == nil {
				first.ProtocolConfig.ResponseBodyMode = fds
			}
			client := restoring().serve(t)
			if name == "marked" {
				client = marked{client}
			}
			_, removed := restoredAnswer(t, nil, converse(t, client, first, qB("<a>", last), head))
			if len(removed) > 0 {
				t.Errorf("%q are removed, want none", removed)
			}
		})
	}
}
