package extproc

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/signalbox-epp/signalbox/engine/rewrites"
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
			r.countsLeft(t, c.ask, c.want)
		})
	}
}

// A rule may be for a model that is not shown, which counts likewise.
func TestRulesForBodiesThatAreNotShownAreCounted(t *testing.T) {
	const header = "x-llm-d-model-name-rewrite: b"
	head := func(headers ...string) *ask { return qH(more, append([]string{":path: /p"}, headers...)...) }
	exact := []rewrites.Rule{{Models: []string{"a"}, Targets: []rewrites.Target{{Model: "c", Weight: 1}}}}
	all := []rewrites.Rule{{Targets: []rewrites.Target{{Model: "c", Weight: 1}}}}
	for name, c := range map[string]struct {
		rules []rewrites.Rule
		ask   []*ask
		want  messages.RewriteLeft
	}{
		"shown, of the rule":    {exact, []*ask{head(), qB("<a>", last)}, messages.NothingLeft},
		"shown, of no rule":     {exact, []*ask{head(), qB("<x>", last)}, messages.NothingLeft},
		"shown, empty":          {exact, []*ask{head(), qB("", last)}, messages.NothingLeft},
		"no body":               {exact, []*ask{withModes(qH(last, ":path: /p"), streamed, fds)}, messages.NothingLeft},
		"mode NONE":             {exact, []*ask{withModes(head(), none, fds)}, messages.LeftUnseen},
		"mode STREAMED":         {exact, []*ask{withModes(head(), streamed, fds)}, messages.LeftUnseen},
		"mode GRPC, no call":    {exact, []*ask{withModes(head(), framed, fds)}, messages.LeftUnseen},
		"mode STREAMED, header": {exact, []*ask{withModes(head(header), streamed, fds)}, messages.LeftUnseen},
		"mode STREAMED, all":    {all, []*ask{withModes(head(), streamed, fds)}, messages.LeftUnseen},
		"mode NONE, no rules":   {nil, []*ask{withModes(head(), none, fds)}, messages.NothingLeft},
		"mode GRPC, no rules":   {nil, []*ask{withModes(head(), framed, fds)}, messages.NothingLeft},
		"mode GRPC": {exact, []*ask{withModes(head("content-type: application/grpc"), framed, fds)},
			messages.LeftGRPC},
		"a call of gRPC that names none": {exact, []*ask{head("content-type: application/grpc"), qB("<>", last)},
			messages.LeftGRPC},
		"a call of gRPC of no rule": {exact, []*ask{head("content-type: application/grpc"), qB("<x>", last)},
			messages.NothingLeft},
		"a call of gRPC without a message": {exact, []*ask{head("content-type: application/grpc"), qB("", last)},
			messages.NothingLeft},
		"a call of gRPC, no rules": {nil, []*ask{head("content-type: application/grpc"), qB("<>", last)},
			messages.NothingLeft},
		"mode STREAMED, then its body": {exact, []*ask{withModes(head(), streamed, fds), qB("<a>", last)},
			messages.LeftUnseen},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			r.inForce.Parser = angled{}
			r.inForce.Rewrites = rewrites.NewTable([]rewrites.Rewrite{{Name: "r", Rules: c.rules}})
			r.countsLeft(t, c.ask, c.want)
		})
	}
}

// countsLeft sends a request, and tests that its rewrite is left for this cause, and counted once under it alone.
func (r *rig) countsLeft(t *testing.T, request []*ask, cause messages.RewriteLeft) {
	t.Helper()
	converse(t, r.serve(t), request...)
	if left := r.only(t).arrived.Request.Rewrite.Left; left != cause {
		t.Errorf("the request has %q, want %q", left, cause)
	}
	for _, c := range messages.RewriteLefts() {
		want := 0.0
		if c == cause {
			want = 1
		}
		if got := testutil.ToFloat64(r.srv.cfg.Metrics.decisions.left[c]); got != want {
			t.Errorf("%s counts %v, want %v", c, got, want)
		}
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
