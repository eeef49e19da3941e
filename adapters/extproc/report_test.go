package extproc

import (
	"maps"
	"slices"
	"strings"
	"testing"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// reporting is a rig whose plugins tell the proxy the output tokens by the names a, b of another namespace, and c, and
// withhold one number. A body with a name between < and > has it restored.
func reporting(restored bool) *rig {
	s := setup{scan: func(messages.API, string) Scanner { return events{new(strings.Builder)} }}
	r := newRig(s)
	if restored {
		r = restoring()
		r.inForce.Scan = s.scan
	}
	r.inForce.Report = func(u *messages.Usage) []schedule.Report {
		n := float64(u.OutputTokens)
		return []schedule.Report{
			{Namespace: "envoy.lb", Key: "a", Value: n}, {Result: schedule.Withheld, Namespace: "envoy.lb", Key: "x"},
			{Namespace: "other", Key: "b", Value: n + 1}, {Namespace: "envoy.lb", Key: "c", Value: n + 2},
		}
	}
	return r
}

// The answer to the end of the body has the metadata, in each mode that shows the body, and no other answer has any.
func TestReports(t *testing.T) {
	const body = `{"usage":[7,3,9]}`
	large := body + strings.Repeat(" ", 100_000) // goes back in two
	for name, tc := range map[string]struct {
		response modes
		restored bool
		pieces   []*ask
		answers  int // to pieces
	}{
		"full duplex":           {fds, false, []*ask{rB(body, last)}, 1},
		"full duplex, in two":   {fds, false, []*ask{rB(body, more), rB("", last)}, 2},
		"full duplex, large":    {fds, false, []*ask{rB(large, last)}, 2},
		"full duplex, trailers": {fds, false, []*ask{rB(body, more), rT()}, 2},
		"full duplex, restored": {fds, true, []*ask{rB(body+"<longer-name>", last)}, 1},
		"restored, trailers":    {fds, true, []*ask{rB(body, more), rT()}, 2},
		"streamed":              {streamed, false, []*ask{rB(body, more), rB("", last)}, 2},
		"streamed, restored":    {streamed, true, []*ask{rB(body, last)}, 1},
		"buffered":              {whole, false, []*ask{rB(body, last)}, 1},
		"buffered, trailers":    {whole, false, []*ask{rB(body, more), rT()}, 2},
		"partial":               {partial, false, []*ask{rB(body, last)}, 1},
		"gRPC":                  {filterv3.ProcessingMode_GRPC, false, []*ask{rB(body, more), rT()}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r, want := reporting(tc.restored), map[string]map[string]any{
				"envoy.lb": {"a": 9.0, "c": 11.0}, "other": {"b": 10.0},
			}
			var answers []*answer
			for _, m := range converse(t, r.serve(t), append([]*ask{
				withModes(qH(more, ":path: "+chatPath), fds, tc.response), qB("<a>", last), rH(more),
			}, tc.pieces...)...) {
				switch m.GetResponse().(type) {
				case *extprocv3.ProcessingResponse_ResponseBody, *extprocv3.ProcessingResponse_ResponseTrailers:
					answers = append(answers, m)
				}
			}
			if len(answers) != tc.answers {
				t.Fatalf("%d answers, want %d", len(answers), tc.answers)
			}
			for i, m := range answers {
				got := m.GetDynamicMetadata().AsMap()
				if i < len(answers)-1 {
					if m.GetDynamicMetadata() != nil {
						t.Errorf("answer %d has metadata: %v", i, got)
					}
					continue
				}
				for namespace, fields := range want {
					if now, _ := got[namespace].(map[string]any); !maps.Equal(now, fields) || len(got) != len(want) {
						t.Errorf("got %v, want %v", got, want)
					}
				}
			}
			for result, want := range map[schedule.ReportResult]float64{schedule.Told: 3, schedule.Withheld: 1} {
				if n := testutil.ToFloat64(r.srv.cfg.Metrics.reports[result]); n != want {
					t.Errorf("%v of %v are counted, want %v", n, result, want)
				}
			}
		})
	}
}

// Nothing is told of an error, or of a body that is not shown.
func TestReportsNeedABody(t *testing.T) {
	for name, pieces := range map[string][]*ask{
		"an error": {rH(more, ":status: 500"), rB(`{"usage":[7,3,9]}`, last)},
		"no body":  {rH(last)},
	} {
		t.Run(name, func(t *testing.T) {
			all := converse(t, reporting(false).serve(t), asked(pieces...)...)
			if slices.ContainsFunc(all[1:], func(m *answer) bool { return m.GetDynamicMetadata() != nil }) {
				t.Errorf("got metadata in %v", all[1:])
			}
		})
	}
}
