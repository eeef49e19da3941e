package extproc

import (
	"slices"
	"strings"
	"testing"
)

var upgrading = []string{":path: /v1/realtime", "connection: keep-alive, Upgrade", "upgrade: WebSocket"}

// A request that upgrades to WebSocket is picked for at its headers, and its frames pass. Another one is not.
func TestUpgrades(t *testing.T) {
	frames := []*ask{qB("frame", more), qB("another", more), qB("", last)}
	passed := []string{onePick, `qB "frame"`, `qB "another"`, `qB "" eos`}
	gathered := []string{onePick, `qB "frameanother" eos`}
	for name, tc := range map[string]struct {
		mode  modes
		lines []string
		then  []*ask
		want  []string
		model string
	}{
		"full duplex": {fds, upgrading, frames, passed, ""},
		"streamed":    {streamed, upgrading, frames, []string{onePick, "qB -", "qB -", "qB -"}, ""},
		"buffered":    {whole, upgrading, nil, []string{onePick}, ""},
		"with a model": {
			fds, append([]string{":path: /v1/realtime?intent=x&model=a%2Fb"}, upgrading[1:]...), nil, passed[:1], "a/b",
		},
		"without a connection that upgrades": {fds, []string{upgrading[0], upgrading[2]}, frames, gathered, ""},
		"to another protocol": {
			fds, []string{upgrading[0], upgrading[1], "upgrade: h2c"}, frames, gathered, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			all := append([]*ask{withModes(qH(more, tc.lines...), tc.mode, fds)}, tc.then...)
			if got := converseLines(t, open(t, r.serve(t)), all...); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if got := r.only(t).arrived.Request; got.Model != tc.model || got.Path != "/v1/realtime" {
				t.Errorf("model %q at %q, want %q", got.Model, got.Path, tc.model)
			}
		})
	}
}

// Frames of an upgraded response pass, and none of them is read.
func TestFramesOfAResponse(t *testing.T) {
	r := newRig(setup{})
	const frame = "data: {\"error\":{\"code\":503}}\n\n"
	c := open(t, r.serve(t))
	got := converseLines(t, c, withModes(qH(more, upgrading...), fds, fds),
		rH(more, ":status: 101", "upgrade: websocket"), qB("frame", more), rB(frame, more), rB("", last))
	if len(got) != 5 || got[2] != `qB "frame"` {
		t.Errorf("got %q, want both directions to pass", got)
	}
	if lines := r.only(t).lines(); strings.Contains(strings.Join(lines, "\n"), "503") {
		t.Errorf("the cycle was told %q, want no error", lines)
	}
}
