package extproc

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Every request leaves one record: its cycle's, or, if it never had one, that of the stream.
func TestRequestWithoutACycleLeavesARecord(t *testing.T) {
	head := func() *ask {
		return qH(more, ":path: /v1/completions", "x-request-id: mine", "x-llm-d-inference-fairness-id: f",
			"user-agent: OpenAI/Python 2.1.0")
	}
	observed := head()
	observed.ObservabilityMode = true
	broken := setup{parser: func(string, []byte) error { return errors.New("no") }}
	want := func(why messages.Reason, after time.Duration, bodyBytes int64) *messages.Record {
		return &messages.Record{
			Configuration: 1, Path: "/v1/completions", Agent: "OpenAI/Python 2.1.0",
			Request: 1, ClientID: "mine", Flow: messages.FlowKey{Fairness: "f"}, Reason: why, Status: Status(why),
			Ended: after, BodyBytes: bodyBytes,
		}
	}
	answered := want(messages.NoReason, time.Minute, 0)
	answered.Status, answered.ResponseBytes = 413, 4
	tests := map[string]struct {
		setup  setup
		frames []*ask
		drain  bool
		want   *messages.Record
	}{
		"served": {setup{}, []*ask{head(), qB("{}", last)}, false, nil},
		"refused by its cycle": {setup{script: fail(messages.PickFailed{Reason: messages.NoEndpoints})},
			[]*ask{head(), qB("{}", last)}, false, nil},
		"nothing came": {setup{}, nil, false, nil},
		"observed":     {setup{}, []*ask{observed}, false, nil},
		"left in the body": {setup{}, []*ask{head(), qB("{", more)}, false,
			want(messages.ClientGone, time.Minute, 1)},
		"the body is late": {setup{config: func(c *Config) { c.BodyTimeout = time.Second }},
			[]*ask{head(), qB("{", more)}, false, want(messages.BodyTimeout, time.Minute, 1)},
		"the request is late": {setup{config: func(c *Config) { c.WholeRequest = time.Second }},
			[]*ask{head(), qB("{", more)}, false, want(messages.RequestTimeout, time.Minute, 1)},
		"too large": {setup{config: func(c *Config) { c.MaxBodyBytes = 1 }}, []*ask{head(), qB("{}", last)},
			false, want(messages.BodyTooLarge, 0, 0)},
		"too much held": {setup{config: func(c *Config) { c.MaxHeldBytes = 1 }}, []*ask{head(), qB("{}", last)},
			false, want(messages.Overloaded, 0, 0)},
		"broken":                {broken, []*ask{head(), qB("{}", last)}, false, want(messages.InvalidRequest, 0, 2)},
		"the loop is full":      {setup{full: true}, []*ask{head(), qB("{}", last)}, false, nil},
		"draining":              {setup{}, []*ask{head(), qB("{}", last)}, true, want(messages.ShuttingDown, 0, 2)},
		"another mode":          {setup{}, []*ask{withModes(head(), 99, fds)}, false, want(messages.Unsupported, 0, 0)},
		"answered by the proxy": {setup{}, []*ask{head(), rH(more, ":status: 413"), rB("long", last)}, false, answered},
		"the parser panics": {setup{parser: func(string, []byte) error { panic("boom") }},
			[]*ask{head(), qB("{}", last)}, false, want(messages.Internal, 0, 2)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(tc.setup)
				if tc.drain {
					r.srv.Drain()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := r.srv.Process(newTape(ctx, tc.frames...)); err != nil {
					t.Errorf("Process: %v", err)
				}
				var wanted []messages.Record
				if tc.want != nil {
					wanted = append(wanted, *tc.want)
				}
				for i := range r.refused {
					if r.refused[i].ArrivedAt.IsZero() {
						t.Error("the record has no time of arrival")
					}
					r.refused[i].ArrivedAt = time.Time{}
				}
				if !reflect.DeepEqual(wanted, r.refused) {
					t.Errorf("records %+v, want %+v", r.refused, wanted)
				}
				if n := len(r.started()) + len(r.refused); tc.want == nil && n > 1 {
					t.Errorf("%d records of one request", n)
				}
			})
		})
	}
}
