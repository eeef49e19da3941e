package extproc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

// events is a scripted UsageScanner: it keeps the bytes, and counts the tokens of the usage event.
type events struct{ text *strings.Builder }

func (e events) Write(p []byte) { e.text.Write(p) }

func (e events) Usage() (u messages.Usage) {
	if _, rest, ok := strings.Cut(e.text.String(), `"usage":`); ok {
		_, _ = fmt.Sscanf(rest, "[%d,%d,%d]", &u.PromptTokens, &u.CachedTokens, &u.OutputTokens)
	}
	return u
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
	} {
		t.Run(tc.name, func(t *testing.T) {
			var seen strings.Builder
			r := newRig(setup{usage: func(contentType string) UsageScanner {
				if contentType != "text/event-stream" {
					t.Errorf("content type %q, want text/event-stream", contentType)
				}
				return events{&seen}
			}})
			client := r.serve(t)
			c := open(t, client)
			c.send(asked(append([]*ask{rH(more, ":status: "+tc.status, "content-type: text/event-stream")}, tc.response...)...)...)
			var got strings.Builder
			for _, m := range c.finish() {
				got.Write(m.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody())
			}
			if got.String() != text || seen.Len() != tc.scanned {
				t.Errorf("%d bytes came back as %q, %d scanned, want %d", len(text), got.String(), seen.Len(), tc.scanned)
			}
			if told, want := r.only(t).lines()[2], fmt.Sprintf("ended %d %s", len(text), tc.usage); told != want {
				t.Errorf("told %q, want %q", told, want)
			}
		})
	}
}
