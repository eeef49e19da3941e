package extproc

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/signalbox-epp/signalbox/messages"
)

// A request whose model cannot be changed goes on as it is. That is counted, and stands in its record.
func TestRewritesThatAreNotMadeAreCounted(t *testing.T) {
	const header = "x-llm-d-model-name-rewrite: b"
	body := qB("<a>", last)
	for name, c := range map[string]struct {
		ask  []*ask
		want messages.RewriteLeft
	}{
		"made":                  {[]*ask{qH(more, ":path: /p", header), body}, messages.NothingLeft},
		"the model is the same": {[]*ask{qH(more, ":path: /p", header), qB("<b>", last)}, messages.NothingLeft},
		"no other model":        {[]*ask{qH(more, ":path: /p"), qB("other", last)}, messages.NothingLeft},
		"no body":               {[]*ask{qH(last, ":path: /p", header)}, messages.NothingLeft},
		"a call of gRPC": {[]*ask{qH(more, ":path: /p", header, "content-type: application/grpc"), body},
			messages.LeftGRPC},
		"read by no parser": {[]*ask{qH(more, ":path: /p", header), qB("other", last)}, messages.LeftUnread},
		"mode NONE":         {[]*ask{withModes(qH(more, ":path: /p", header), none, fds)}, messages.LeftUnseen},
		"mode STREAMED": {[]*ask{withModes(qH(more, ":path: /p", header), streamed, fds)},
			messages.LeftUnseen},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			r.inForce.Parser = angled{}
			converse(t, r.serve(t), c.ask...)
			if left := r.only(t).arrived.Request.Rewrite.Left; left != c.want {
				t.Errorf("the request has %q, want %q", left, c.want)
			}
			for _, cause := range messages.RewriteLefts() {
				want := 0.0
				if cause == c.want {
					want = 1
				}
				if got := testutil.ToFloat64(r.srv.cfg.Metrics.decisions.left[cause]); got != want {
					t.Errorf("%s counts %v, want %v", cause, got, want)
				}
			}
		})
	}
}

// So are responses that keep the name of the model that served.
func TestNamesThatAreNotRestoredAreCounted(t *testing.T) {
	head := []string{":status: 200", "content-type: application/json"}
	for name, c := range map[string]struct {
		model, want string
		modes       modes
		head        []string
	}{
		"restored":         {"a", "", fds, head},
		"not rewritten":    {"longer-name", "", fds, append(head, "content-encoding: gzip")},
		"encoded":          {"a", nameEncoded, fds, append(head, "content-encoding: gzip")},
		"names no model":   {"a", "", fds, []string{":status: 200", "content-type: text/plain"}},
		"an error":         {"a", "", none, []string{":status: 404", "content-type: application/json"}},
		"of another proxy": {"a", nameUnseen, none, head},
	} {
		t.Run(name, func(t *testing.T) {
			r := restoring()
			first := withModes(qH(more, ":path: "+chatPath), fds, c.modes)
			converse(t, r.serve(t), first, qB("<"+c.model+">", last), rH(more, c.head...))
			for _, cause := range []string{nameEncoded, nameInGRPC, nameUnseen} {
				want := 0.0
				if cause == c.want {
					want = 1
				}
				got := testutil.ToFloat64(r.srv.cfg.Metrics.decisions.unrestored.WithLabelValues(cause))
				if got != want {
					t.Errorf("%s counts %v, want %v", cause, got, want)
				}
			}
		})
	}
}
