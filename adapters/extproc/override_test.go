package extproc

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/messages"
)

// weighty is a Parser of requests whose answers teach.
type weighty struct{ form messages.AnswerForm }

func (w weighty) Parse(_, _, _ string, _ []byte, into *messages.Request) error {
	into.Usage, into.Form = true, w.form
	return nil
}

func (weighty) SetPriority(string, string, string, []byte, int) (from, to int, text []byte) {
	return 0, 0, nil
}

func (weighty) Rename(string, string, string, []byte, string) (from, to int, text []byte) {
	return 0, 0, nil
}

var teaching = weighty{messages.AnswerForm{API: messages.ChatAPI, Choices: 1}}

// ask20 is the twentieth request of a server, in these modes, with this response; it writes down whether the proxy is
// asked for the body.
func ask20(t *testing.T, r *rig, request, response modes, rest ...*ask) (asked bool, answers []string) {
	t.Helper()
	r.inForce.Parser = teaching
	r.srv.last.Store(overrideEvery - 1)
	all := converse(t, r.serve(t), with(withModes(qH(more), request, response),
		append([]*ask{qB("{}", last)}, rest...)...)...)
	for _, m := range all {
		if o := m.GetModeOverride(); o != nil {
			asked = true
			if o.GetRequestBodyMode() != request || o.GetResponseBodyMode() != streamed ||
				m.GetResponseHeaders() == nil {
				t.Errorf("asked by %v, want response body mode STREAMED, and nothing else changed, in answer to the "+
					"response's headers", m)
			}
		}
	}
	return asked, transcript(t, all)
}

// TestOneInTwentyIsAskedFor: the body of a response that would bypass us, where the proxy can show it and the answer
// will teach.
func TestOneInTwentyIsAskedFor(t *testing.T) {
	r := newRig(setup{})
	asked, got := ask20(t, r, whole, none, rH(more), rB("ab", more), rB("c", last))
	if diff := cmp.Diff([]string{"qH -", "qB pick 10.0.0.1:8000 logged", "rH", "rB -", "rB -"}, got); diff != "" ||
		!asked {
		t.Errorf("asked %t, answers, want -, got +:\n%s", asked, diff)
	}
	if diff := cmp.Diff([]string{"started 200 passes", "first", "ended 3 0/0/0", gone(true, 5)},
		r.only(t).lines()); diff != "" {
		t.Errorf("told, want -, got +:\n%s", diff)
	}
	if n := r.series(t, "signalbox_mode_overrides_total", "shown"); n != 1 {
		t.Errorf("%v counted as shown, want 1", n)
	}
}

// TestAProxyThatIgnoresIt: an override that the proxy does not take changes nothing for the request, and after three of
// them none is asked for.
func TestAProxyThatIgnoresIt(t *testing.T) {
	r := newRig(setup{})
	r.inForce.Parser = teaching
	client := r.serve(t)
	for i := range 2 * ignoredInRow {
		r.srv.last.Store(uint64(overrideEvery*(i+1) - 1))
		asked := false
		for _, m := range converse(t, client, withModes(qH(more), whole, none), qB("{}", last), rH(more)) {
			asked = asked || m.GetModeOverride() != nil
		}
		if want := i < ignoredInRow; asked != want {
			t.Errorf("response %d: asked for %t, want %t", i, asked, want)
		}
	}
	for _, c := range r.started() {
		if diff := cmp.Diff([]string{"started 200 passes", gone(true, 3) + " logged"}, c.lines()); diff != "" {
			t.Errorf("told, want -, got +:\n%s", diff)
		}
	}
	if n := r.series(t, "signalbox_mode_overrides_total", "ignored"); n != ignoredInRow {
		t.Errorf("%v counted as ignored, want %d", n, ignoredInRow)
	}
	now := time.Now().Add(overrideAgain)
	r.srv.deps.Now = func() time.Time { return now }
	if r.srv.overrides.pause(0, now) {
		t.Error("it is never asked again")
	}
}

func TestNotAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		request, response modes
		rest              []*ask
	}{
		"a full-duplex request body":      {fds, none, []*ask{rH(more)}},
		"a request body that is not read": {streamed, none, []*ask{rH(more)}},
		"a response without a body":       {whole, none, []*ask{rH(last)}},
		"an error":                        {whole, none, []*ask{rH(more, ":status: 503")}},
		"a body that is shown anyway":     {whole, streamed, []*ask{rH(more), rB("a", last)}},
	} {
		t.Run(name, func(t *testing.T) {
			if asked, answers := ask20(t, newRig(setup{}), c.request, c.response, c.rest...); asked {
				t.Errorf("asked for: %s", strings.Join(answers, ", "))
			}
		})
	}
}

// TestShownResponseIsSeen: until its end, what the proxy shows because it was asked for can be cut, and ends with its
// stream.
func TestShownResponseIsSeen(t *testing.T) {
	var revoked bool
	r := newRig(setup{onTell: func(c *cycle, m messages.CycleMsg) {
		if _, ok := m.(messages.FirstTokenSeen); ok && revoked {
			c.arrived.Stream.Tell(messages.ServingRevoked{Reason: messages.ResponseIdle})
		}
	}})
	r.inForce.Parser = teaching
	l := &link{log: messages.LogSeen}
	r.srv.deps.Connection = func(context.Context) Connection { return l }
	for _, revoked = range []bool{false, true} {
		r.srv.last.Store(overrideEvery - 1)
		ctx, leave := context.WithCancel(t.Context())
		p := newTape(ctx, withModes(qH(more), whole, none), qB("{}", last), rH(more), rB("ab", more))
		time.AfterFunc(time.Second/4, leave)
		if err := r.srv.Process(p); err != nil {
			t.Fatal(err)
		}
		want := []string{"qH -", "qB pick 10.0.0.1:8000 logged", "rH", "rB -"}
		if revoked {
			want = append(want, "504 response-idle")
		}
		if diff := cmp.Diff(want, transcript(t, p.sent)); diff != "" {
			t.Errorf("revoked %t: answers, want -, got +:\n%s", revoked, diff)
		}
	}
	list := r.started()[0].list()
	if end := list[len(list)-1].(messages.StreamGone); end.Logged || end.Completed || end.Log != messages.LogUnknown ||
		l.asked != 0 {
		t.Errorf("told %+v, asked %d times for a log, want a stream that tells all by itself", end, l.asked)
	}
}

// TestOneDeafProxySilencesNoOther: what one connection's proxy ignores is still asked of another's, and what is known
// of connections that ended is forgotten in time.
func TestOneDeafProxySilencesNoOther(t *testing.T) {
	deaf, hears := &link{id: 1, log: messages.LogSeen}, &link{id: 2, log: messages.LogSeen}
	r := over(nil)
	r.inForce.Parser = teaching
	now := time.Now()
	r.srv.deps.Now = func() time.Time { return now }
	asks := func(l *link, frames ...*ask) (asked bool) {
		r.srv.last.Store(overrideEvery - 1)
		r.srv.deps.Connection = func(context.Context) Connection { return l }
		p := halfClosed(t.Context(), with(withModes(qH(more), whole, none),
			append([]*ask{qB("{}", last), rH(more)}, frames...)...)...)
		if err := r.srv.Process(p); err != nil {
			t.Fatal(err)
		}
		for _, m := range p.sent {
			asked = asked || m.GetModeOverride() != nil
		}
		return asked
	}
	for i := range 2 * ignoredInRow {
		if got, want := asks(deaf), i < ignoredInRow; got != want {
			t.Errorf("the deaf proxy is asked for response %d: %t, want %t", i, got, want)
		}
		if !asks(hears, rB("a", last)) {
			t.Errorf("the proxy that hears is not asked for response %d", i)
		}
	}
	now = now.Add(overrideAgain)
	if !asks(&link{id: 3, log: messages.LogSeen}) || len(r.srv.overrides.ignored) != 1 {
		t.Errorf("known of the deaf: %v, want the newest alone", r.srv.overrides.ignored)
	}
	if !asks(deaf) {
		t.Error("the deaf proxy is never asked again")
	}
}
