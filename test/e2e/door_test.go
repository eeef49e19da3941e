package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// TestEnvoyBodiesTakeTheRoomOfOthers fills the memory for bodies with those of a low band, 1 MiB each: its next one is
// refused, an eighth is left to others, and then those of a higher band take the room of the low ones.
func TestEnvoyBodiesTakeTheRoomOfOthers(t *testing.T) {
	for _, bootstrap := range []string{overrideHost, overrideHostFull} {
		t.Run(bootstrap[strings.LastIndexByte(bootstrap, '/')+1:], func(t *testing.T) {
			const limit = 16 << 20
			g := newGatedBy(t, longGatedText, bootstrap, "--max-body-bytes", strconv.Itoa(2<<20), "--max-held-bytes",
				strconv.Itoa(limit))
			g.sends("first")
			g.sends("second")
			g.server.works(t, 2)
			body := mebibyte(t)
			const low = 14 // of 1 MiB: the last eighth is not theirs
			for i := range low {
				g.sendsBody(fmt.Sprint("low ", i), body, "x-llm-d-inference-objective", "batch")
				g.waits(i + 1)
			}
			g.sendsBody("one too many", body, "x-llm-d-inference-objective", "batch")
			g.got("one too many", http.StatusTooManyRequests, "rejected-saturated")
			for i := range 2 {
				g.sendsBody(fmt.Sprint("normal ", i), body)
				g.waits(low + i + 1)
			}
			if held := g.picker.metric("signalbox_held_body_bytes"); held != limit {
				t.Errorf("%v bytes are held, want all %d", held, limit)
			}
			for i := range 3 {
				g.sendsBody(fmt.Sprint("high ", i), body, "x-llm-d-inference-objective", "urgent")
				g.got(fmt.Sprint("low ", low-1-i), http.StatusTooManyRequests, "evicted-priority")
				g.waits(low + 2)
			}
			g.server.release(-1)
			for prompt := range g.answers {
				switch prompt {
				case "one too many", "low 13", "low 12", "low 11":
				default:
					g.got(prompt, http.StatusOK, "")
				}
			}
			g.picker.idle(t)
			if held := g.picker.metric("signalbox_held_body_bytes"); held != 0 {
				t.Errorf("%v bytes are held in the end", held)
			}
		})
	}
}

// mebibyte is a body of 1 MiB.
func mebibyte(t *testing.T) string {
	t.Helper()
	const size = 1 << 20
	body := chatBody(model, strings.Repeat("x", size-len(chatBody(model, "", 2, false))), 2, false)
	if len(body) != size {
		t.Fatalf("a body of %d bytes, want %d", len(body), size)
	}
	return body
}
