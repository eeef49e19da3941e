package extproc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

// events is a scripted Scanner: it keeps the bytes, counts the tokens of the usage event, and reads the status of an
// error event.
type events struct{ text *strings.Builder }

func (e events) Write(p []byte) { e.text.Write(p) }

func (e events) Usage() (u messages.Usage) {
	if _, rest, ok := strings.Cut(e.text.String(), `"usage":`); ok {
		_, _ = fmt.Sscanf(rest, "[%d,%d,%d]", &u.PromptTokens, &u.CachedTokens, &u.OutputTokens)
	}
	return u
}

func (events) Began() bool { return true }
func (events) Events() int { return 0 }

func (e events) ID() []byte {
	_, rest, _ := strings.Cut(e.text.String(), `"id":"`)
	id, _, ok := strings.Cut(rest, `"`)
	if !ok {
		return nil
	}
	return []byte(id)
}

func (e events) ErrorStatus() (status int) {
	if _, rest, ok := strings.Cut(e.text.String(), `"error":`); ok {
		_, _ = fmt.Sscanf(rest, "%d,", &status)
	}
	return status
}

// Events may be cut anywhere: the bytes come back as they came, and the scanner sees them all.
func TestUsage(t *testing.T) {
	text := "data: {\"x\":1}\r\n\r\ndata: {\"usage\":[7,3,9]}\r\n\r\n: no final newline"
	for _, tc := range []struct {
		name, status string
		response     []*ask
		usage        string
		scanned      int
	}{
		{"one chunk", "200", []*ask{rB(text, last)}, "7/3/9", len(text)},
		{"byte by byte", "200", split(text, rB), "7/3/9", len(text)},
		{"ended by trailers", "200", []*ask{rB(text, more), rT()}, "7/3/9", len(text)},
		{"an error is not scanned", "500", []*ask{rB(text, last)}, "0/0/0", 0},
		{"the client leaves before the end", "200", []*ask{rB(text, more)}, "7/3/9", len(text)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var seen strings.Builder
			r := newRig(setup{scan: func(_ messages.API, contentType string) Scanner {
				if contentType != "text/event-stream" {
					t.Errorf("content type %q, want text/event-stream", contentType)
				}
				return events{&seen}
			}})
			client := r.serve(t)
			c := open(t, client)
			c.send(asked(append([]*ask{rH(more, ":status: "+tc.status, "content-type: text/event-stream")},
				tc.response...)...)...)
			var got strings.Builder
			for _, m := range c.finish() {
				got.Write(m.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody())
			}
			if got.String() != text || seen.Len() != tc.scanned {
				t.Errorf("%d bytes came back as %q, %d scanned, want %d", len(text), got.String(), seen.Len(),
					tc.scanned)
			}
			told := r.only(t).lines()
			if end := told[len(told)-1]; !slices.Contains(told, fmt.Sprintf("ended %d %s", len(text), tc.usage)) &&
				(!strings.HasSuffix(end, tc.usage) || !strings.HasPrefix(end, "gone completed=false")) {
				t.Errorf("told %q, want %s", told, tc.usage)
			}
		})
	}
}

// What the model server makes of the client's id is not told: the request is found by that. Another id is told as soon
// as it is known.
func TestResponseID(t *testing.T) {
	for name, c := range map[string]struct {
		clientID string
		response []*ask
		want     []string
	}{
		"its own": {"mine", []*ask{rB(`{"id":"resp_1"`, more), rB("}", last)},
			[]string{"first resp_1", "ended 15 0/0/0 resp_1"}},
		"its own at the end": {"mine", []*ask{rB(`{`, more), rB(`"id":"resp_1"}`, last)},
			[]string{"first", "ended 15 0/0/0 resp_1"}},
		"its own, no other": {"", []*ask{rB(`{"id":"cmpl-1"}`, last)},
			[]string{"first cmpl-1", "ended 15 0/0/0 cmpl-1"}},
		"made of the other's": {"mine", []*ask{rB(`{"id":"chatcmpl-mine"}`, last)},
			[]string{"first", "ended 22 0/0/0"}},
		"ends like it": {"e", []*ask{rB(`{"id":"chatcmpl-mine"}`, last)},
			[]string{"first chatcmpl-mine", "ended 22 0/0/0 chatcmpl-mine"}},
		"none": {"mine", []*ask{rB(`{}`, last)}, []string{"first", "ended 2 0/0/0"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{scan: func(messages.API, string) Scanner { return events{new(strings.Builder)} }})
			s := open(t, r.serve(t))
			head := []*ask{qH(more), qB("{}", last), rH(more, ":status: 200")}
			if c.clientID != "" {
				head[0] = qH(more, "x-request-id: "+c.clientID)
			}
			s.send(append(head, c.response...)...)
			s.finish()
			told := r.only(t).lines()
			if got := told[1 : len(told)-1]; !slices.Equal(got, c.want) {
				t.Errorf("told %q, want %q", got, c.want)
			}
		})
	}
}

// An error that an event tells of is told once, and before the first token if it is in there.
func TestErrorInTheBody(t *testing.T) {
	failed := `data: {"error":503,}` + "\n\n"
	for name, c := range map[string]struct {
		response []*ask
		want     []string
	}{
		"first": {[]*ask{rB(failed, more), rB("data: [DONE]", last)}, []string{"error 503", "first"}},
		"in the middle": {[]*ask{rB("data: 1\n\n", more), rB(failed, more), rB("data: [DONE]", last)},
			[]string{"first", "error 503"}},
		"cut": {[]*ask{rB(failed[:10], more), rB(failed[10:], more), rB("data: [DONE]", last)},
			[]string{"first", "error 503"}},
		"ended by it": {[]*ask{rB(failed, last)}, []string{"error 503", "first"}},
		"none":        {[]*ask{rB("data: 1\n\n", last)}, []string{"first"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{scan: func(messages.API, string) Scanner { return events{new(strings.Builder)} }})
			s := open(t, r.serve(t))
			s.send(asked(append([]*ask{rH(more, ":status: 200")}, c.response...)...)...)
			s.finish()
			told := r.only(t).lines()
			// between the response's begin, and its end and the stream's
			if got := told[1 : len(told)-2]; !slices.Equal(got, c.want) {
				t.Errorf("told %q, want %q", got, c.want)
			}
		})
	}
}

// late is a scanner of a body whose output begins behind other events.
type late struct{ events }

func (l late) Began() bool { return strings.Contains(l.text.String(), "output") }

// The first token is told with the first bytes that may have output, and never if none has.
func TestFirstTokenIsOutput(t *testing.T) {
	for name, c := range map[string]struct {
		response []*ask
		want     []string
	}{
		"behind other events": {[]*ask{rB("created\n\n", more), rB("outp", more), rB("ut", more), rB("more", last)},
			[]string{"first", "ended 19 0/0/0"}},
		"never": {[]*ask{rB("created\n\n", more), rB("ended", last)}, []string{"ended 14 0/0/0"}},
		"error": {[]*ask{rB("created\n\n", more), rB(`"error":503,`, last)}, []string{"error 503", "ended 21 0/0/0"}},
	} {
		t.Run(name, func(t *testing.T) {
			var api messages.API
			r := newRig(setup{scan: func(of messages.API, _ string) Scanner {
				api = of
				return late{events{new(strings.Builder)}}
			}})
			r.inForce.Parser = formed{}
			s := open(t, r.serve(t))
			s.send(asked(append([]*ask{rH(more, ":status: 200")}, c.response...)...)...)
			s.finish()
			told := r.only(t).lines()
			if got := told[1 : len(told)-1]; !slices.Equal(got, c.want) || api != messages.MessagesAPI {
				t.Errorf("told %q, want %q; scanned as API %v", got, c.want, api)
			}
		})
	}
}

// formed is a parser of messages.
type formed struct{}

func (formed) SetPriority(string, string, string, []byte, int) (from, to int, text []byte) {
	return 0, 0, nil
}

func (formed) Rename(string, string, string, []byte, string) (from, to int, text []byte) {
	return 0, 0, nil
}

func (formed) Parse(_, _, _ string, _ []byte, into *messages.Request) error {
	into.Form.API = messages.MessagesAPI
	return nil
}

// A scanner is made only for a body that comes.
func TestUnseenBodyHasNoScanner(t *testing.T) {
	for name, c := range map[string]struct {
		asks []*ask
		want int
	}{
		"shown":     {asked(rH(more, ":status: 200"), rB("data: 1\n\n", last)), 1},
		"no body":   {asked(rH(last, ":status: 200")), 0},
		"not shown": {[]*ask{withModes(qH(more), fds, none), qB("{}", last), rH(more, ":status: 200")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			made := 0
			r := newRig(setup{scan: func(messages.API, string) Scanner {
				made++
				return events{new(strings.Builder)}
			}})
			s := open(t, r.serve(t))
			s.send(c.asks...)
			s.finish()
			if r.only(t); made != c.want {
				t.Errorf("%d scanners were made, want %d", made, c.want)
			}
		})
	}
}

// The cycle knows whether the body of its answer will be shown.
func TestRequestSaysWhetherItsAnswerIsShown(t *testing.T) {
	for mode, want := range map[modes]bool{none: false, streamed: true, fds: true} {
		r := newRig(setup{})
		converse(t, r.serve(t), withModes(qH(last), fds, mode), rH(last, ":status: 200"))
		if got := r.only(t).arrived.Request.Visible; got != want {
			t.Errorf("%v: shown %v, want %v", mode, got, want)
		}
	}
}

// The status of a response is that of the proxy, whatever the server calls one.
func TestStatusIsTheProxys(t *testing.T) {
	for name, tc := range map[string]struct {
		sent []string
		want int
	}{
		"an error": {[]string{":status: 500", "status: 200"}, 500},
		"no error": {[]string{":status: 200", "status: 500"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			converse(t, r.serve(t), qH(last), rH(last, tc.sent...))
			m, ok := r.only(t).list()[0].(messages.ResponseStarted)
			if !ok || m.Status != tc.want {
				t.Errorf("told %q, want status %d", r.only(t).lines(), tc.want)
			}
		})
	}
}

// The pace of a response is that of its events with output from the first token on, in whatever pieces they come. Those
// of one piece come at once.
func TestPaceOfEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		response []*ask
		late     uint32 // events that came after the one before
		atOnce   uint32 // with it
	}{
		"one piece":       {[]*ask{rB("a", last)}, 0, 0},
		"three":           {[]*ask{rB("a", more), rB("b", more), rB("c", last)}, 2, 0},
		"two in one":      {[]*ask{rB("a", more), rB("bc", more), rB("d", last)}, 2, 1},
		"two at first":    {[]*ask{rB("ab", more), rB("c", last)}, 1, 1},
		"no output":       {[]*ask{rB("a", more), rB(":", more), rB(":", more), rB("b", last)}, 1, 0},
		"cut":             {[]*ask{rB("a", more), rB("~", more), rB("b", last)}, 1, 0},
		"the first, cut":  {[]*ask{rB("~", more), rB("a", more), rB("b", last)}, 1, 0},
		"an empty end":    {[]*ask{rB("a", more), rB("b", more), rB("", last)}, 1, 0},
		"before a token":  {[]*ask{rB(":", more), rB(":", more), rB("a", more), rB("b", last)}, 1, 0},
		"trailers behind": {[]*ask{rB("a", more), rB("b", more), rT()}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{scan: func(messages.API, string) Scanner { return new(letters) }})
			converse(t, r.serve(t), append([]*ask{qH(last), rH(more, ":status: 200")}, tc.response...)...)
			for _, m := range r.only(t).list() {
				if end, ok := m.(messages.ResponseEnded); ok {
					var n uint32
					for _, of := range end.Pace.Events {
						n += of
					}
					if n != tc.late+tc.atOnce || (end.Pace.Sum > 0) != (tc.late > 0) || end.Pace.Events[0] < tc.atOnce {
						t.Errorf("%+v, want %d events, and %d at once", end.Pace, tc.late, tc.atOnce)
					}
					return
				}
			}
			t.Error("the end is not told")
		})
	}
}

// letters takes each letter for an event with output, and what is no colon for a part of one.
type letters struct {
	seen   bool
	events int
	doomed
}

func (l *letters) Write(p []byte) {
	for _, c := range p {
		l.seen = l.seen || c != ':'
		if c != ':' && c != '~' {
			l.events++
		}
	}
}

func (l *letters) Began() bool { return l.seen }
func (l *letters) Events() int { return l.events }
