package extproc

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/signalbox-epp/signalbox/engine/rewrites"
	"github.com/signalbox-epp/signalbox/messages"
)

// angled is a Parser of bodies that have their model between < and >.
type angled struct{}

func (angled) span(body []byte) (from, to int) {
	return bytes.IndexByte(body, '<') + 1, bytes.IndexByte(body, '>')
}

func (a angled) Parse(_, _, _ string, body []byte, into *messages.Request) error {
	if from, to := a.span(body); from > 0 && to >= from {
		into.Model, into.Form.API = string(body[from:to]), messages.ChatAPI
	}
	return nil
}

// SetPriority sets what stands between # and #.
func (angled) SetPriority(_, _, encoding string, body []byte, priority int) (from, to int, text []byte) {
	from, to = bytes.IndexByte(body, '#')+1, bytes.LastIndexByte(body, '#')
	if from <= 0 || encoding != "" {
		return 0, 0, nil
	}
	return from, to, strconv.AppendInt(nil, int64(priority), 10)
}

func (a angled) Rename(_, _, encoding string, body []byte, model string) (from, to int, text []byte) {
	if encoding != "" {
		return 0, 0, nil
	}
	from, to = a.span(body)
	return from, to, []byte(model)
}

// sent returns the body that the proxy sends on, by these answers to one that came whole, and what they set
// content-length to; "" = nothing.
func sent(t *testing.T, came string, answers []*answer) (body, length string) {
	t.Helper()
	held := true
	for _, m := range answers {
		c := m.GetRequestBody().GetResponse()
		if c == nil {
			c = m.GetRequestHeaders().GetResponse()
		}
		if set := headers(t, c.GetHeaderMutation())["content-length"]; set != "" {
			length = set
		}
		switch mutation := c.GetBodyMutation().GetMutation().(type) {
		case *extprocv3.BodyMutation_Body:
			return string(mutation.Body), length
		case *extprocv3.BodyMutation_StreamedResponse:
			held = false
			body += string(mutation.StreamedResponse.GetBody())
		}
	}
	if held {
		return came, length
	}
	return body, length
}

func TestRewrittenBodies(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	table := rewrites.NewTable([]rewrites.Rewrite{{Name: "r", Rules: []rewrites.Rule{
		{Models: []string{"a"}, Targets: []rewrites.Target{{Model: "longer-name", Weight: 1}}},
		{Models: []string{"shorter-name"}, Targets: []rewrites.Target{{Model: "b", Weight: 1}}},
	}}})
	tests := map[string]struct {
		model, target string // target "" = not rewritten
		rest          string // of the body
	}{
		"a longer name":          {"a", "longer-name", ""},
		"in a long body":         {"a", "longer-name", long},
		"a shorter name":         {"shorter-name", "b", ""},
		"shorter in a long body": {"shorter-name", "b", long},
		"another model":          {"c", "", long},
	}
	for name, tc := range tests {
		for mode, request := range map[string]modes{"full duplex": fds, "buffered": whole, "partial": partial} {
			t.Run(name+", "+mode, func(t *testing.T) {
				r := newRig(setup{})
				r.inForce.Parser, r.inForce.Rewrites = angled{}, table
				body := "{<" + tc.model + ">" + tc.rest + "}"
				want, length := body, ""
				if tc.target != "" {
					want = "{<" + tc.target + ">" + tc.rest + "}"
					length = strconv.Itoa(len(want))
				}
				head := withModes(qH(more, ":path: "+chatPath, "content-length: "+strconv.Itoa(len(body))), request,
					none)
				got, gotLength := sent(t, body, converse(t, r.serve(t), head, qB(body, last)))
				if got != want || gotLength != length {
					t.Errorf("got %.60s, %d bytes, content-length %q, want %.60s, %d bytes, content-length %q",
						got, len(got), gotLength, want, len(want), length)
				}
				decided := 0.0
				if tc.target != "" {
					decided = 1
				}
				counter := r.srv.cfg.Metrics.decisions.counter.WithLabelValues("r", tc.model, tc.target)
				if got := testutil.ToFloat64(counter); got != decided {
					t.Errorf("the decision is counted %v times, want %v", got, decided)
				}
				req, wantModel := r.only(t).arrived.Request, tc.model
				var rewrite messages.Rewrite
				if tc.target != "" {
					wantModel, rewrite = tc.target, messages.Rewrite{Made: true, From: tc.model}
				}
				if req.Model != wantModel || req.Rewrite != rewrite || req.BodyBytes != int64(len(body)) {
					t.Errorf("its cycle has model %q, rewrite %+v, %d bytes, want %q, %+v, %d", req.Model, req.Rewrite,
						req.BodyBytes, wantModel, rewrite, len(body))
				}
			})
		}
	}
}

// A body that cannot be rewritten must not reach a server under its old name.
func TestBodiesThatCannotBeRewritten(t *testing.T) {
	table := rewrites.NewTable([]rewrites.Rewrite{{Name: "r", Rules: []rewrites.Rule{
		{Targets: []rewrites.Target{{Model: "b", Weight: 1}}},
	}}})
	for name, tc := range map[string]struct {
		headers []string
		body    string
		want    string // the last answer
	}{
		"encoded":            {[]string{":path: /p", "content-encoding: gzip"}, "<a>", "400 invalid-request"},
		"read by no parser":  {[]string{":path: /p"}, "other", `qB "other" eos`},
		"encoded, also such": {[]string{":path: /p", "content-encoding: gzip"}, "other", `qB "other" eos`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			r.inForce.Parser, r.inForce.Rewrites = angled{}, table
			got := transcript(t, converse(t, r.serve(t), qH(more, tc.headers...), qB(tc.body, last)))
			if got[len(got)-1] != tc.want {
				t.Errorf("got %q, want %s last", got, tc.want)
			}
		})
	}
}

// TestModelsOfHeaders: a header names the model that serves, unless a rule of the configuration is for the model that
// the body names.
func TestModelsOfHeaders(t *testing.T) {
	const newName, oldName = "x-llm-d-model-name-rewrite: ", "x-gateway-model-name-rewrite: "
	table := rewrites.NewTable([]rewrites.Rewrite{{Name: "r", Rules: []rewrites.Rule{
		{Models: []string{"ruled"}, Targets: []rewrites.Target{{Model: "by-rule", Weight: 1}}},
	}}})
	long := strings.Repeat("x", 1024)
	for name, tc := range map[string]struct {
		headers []string
		model   string // of the body
		want    string // "" = the body's
	}{
		"none":              {nil, "a", ""},
		"D68 new name":      {[]string{newName + "b"}, "a", "b"},
		"old name":          {[]string{oldName + "b"}, "a", "b"},
		"new beats old":     {[]string{oldName + "c", newName + "b"}, "a", "b"},
		"new beats later":   {[]string{newName + "b", oldName + "c"}, "a", "b"},
		"first line":        {[]string{newName + "b", newName + "c"}, "a", "b"},
		"empty":             {[]string{newName, oldName + "b"}, "a", "b"},
		"the same":          {[]string{newName + "a"}, "a", ""},
		"a rule goes first": {[]string{newName + "b"}, "ruled", "by-rule"},
		"no model":          {[]string{newName + "b"}, "", "b"},
		"long":              {[]string{newName + long}, "a", long},
		"too long":          {[]string{newName + long + "x"}, "a", ""},
		"control character": {[]string{newName + "b\r\n--"}, "a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			r.inForce.Parser, r.inForce.Rewrites = angled{}, table
			body := "{<" + tc.model + ">}"
			wantBody, wantModel, rewrite := body, tc.model, messages.Rewrite{}
			if tc.want != "" {
				wantBody, wantModel = "{<"+tc.want+">}", tc.want
				rewrite = messages.Rewrite{Made: true, From: tc.model}
			}
			head := qH(more, append([]string{":path: " + chatPath}, tc.headers...)...)
			if got, _ := sent(t, body, converse(t, r.serve(t), head, qB(body, last))); got != wantBody {
				t.Errorf("the server gets %.60s, want %.60s", got, wantBody)
			}
			if req := r.only(t).arrived.Request; req.Model != wantModel || req.Rewrite != rewrite {
				t.Errorf("its cycle has model %.60s, rewrite %+v, want %.60s, %+v", req.Model, req.Rewrite, wantModel,
					rewrite)
			}
		})
	}
}

// A header without effect on a body that was not read, and refused for one that cannot be changed.
func TestModelsOfHeadersForOtherBodies(t *testing.T) {
	const header = "x-llm-d-model-name-rewrite: b"
	for name, tc := range map[string]struct {
		headers    []string
		body, want string
	}{
		"read by no parser": {[]string{":path: /p", header}, "other", `qB "other" eos`},
		"encoded":           {[]string{":path: /p", header, "content-encoding: gzip"}, "<a>", "400 invalid-request"},
		"encoded, the same": {[]string{":path: /p", header, "content-encoding: gzip"}, "<b>", `qB "<b>" eos`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			r.inForce.Parser = angled{}
			got := transcript(t, converse(t, r.serve(t), qH(more, tc.headers...), qB(tc.body, last)))
			if got[len(got)-1] != tc.want {
				t.Errorf("got %q, want %s last", got, tc.want)
			}
		})
	}
}
