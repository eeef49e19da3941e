package app

import (
	"testing"
	"time"
)

// What hooks of charts call pauses, and nothing else is taken for a pause.
func TestPausesOfHooks(t *testing.T) {
	const refused = -1
	for _, c := range []struct {
		args []string
		want time.Duration
	}{
		{[]string{"/bin/sh", "-c", "sleep 10"}, 10 * time.Second},
		{[]string{"sh", "-c", " sleep  0.5s "}, 500 * time.Millisecond},
		{[]string{"/bin/sleep", "3"}, 3 * time.Second},
		{[]string{"sleep", "0"}, 0},
		{[]string{"/bin/sh", "-c", "sleep 10; echo"}, refused},
		{[]string{"/bin/sh", "-c", "echo 10"}, refused},
		{[]string{"/bin/sh", "sleep 10"}, refused},
		{[]string{"/bin/sh"}, refused},
		{[]string{"/bin/sleep", "-1"}, refused},
		{[]string{"/bin/sleep", "NaN"}, refused},
		{[]string{"/bin/sleep", "1e300"}, refused},
		{[]string{"/bin/sleep"}, refused},
	} {
		length, called, ok := pause(c.args)
		if !called || ok != (c.want != refused) || ok && length != c.want {
			t.Errorf("%q: %v, called %v, ok %v; want %v", c.args, length, called, ok, c.want)
		}
	}
	for _, args := range [][]string{{"/signalbox", "-c", "sleep 10"}, {"signalbox", "sleep", "1"}, {"/bin/shell"}} {
		if _, called := sleepIfCalled(args); called {
			t.Errorf("%q: it is taken for a pause", args)
		}
	}
	if status, called := sleepIfCalled([]string{"sleep", "x"}); !called || status != noCommand {
		t.Errorf("sleep x: status %d, called %v; want %d, true", status, called, noCommand)
	}
}
