package app

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// What is checked at the start is what is served: the file is opened once, so that it cannot change in between.
func TestEndpointsFileIsOpenedOnceAtTheStart(t *testing.T) {
	file := t.TempDir() + "/endpoints.yaml"
	writeText(t, file, "endpoints:\n- {name: a, address: 127.0.0.1, port: 9}\n")
	opens := countOpens(t, file)
	s := running(t, "--endpoints", "", "--config-text",
		fmt.Sprintf("apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n"+
			"plugins:\n- {type: file-discovery, parameters: {path: %q, watchFile: false}}\ndataLayer: {discovery: "+
			"{endpoints: {pluginRef: file-discovery}}}\n", file))
	if n := len(s.tree.picker.Pool().Snapshot().Endpoints); n != 1 {
		t.Errorf("endpoints: %d, want 1", n)
	}
	if n := opens(); n != 1 {
		t.Errorf("the file was opened %d times, want once", n)
	}
}

// countOpens returns how often a file was opened since the call.
func countOpens(t *testing.T, file string) func() int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	// Two equal events in a row are told as one: the ends of reading keep the opens apart.
	if _, err := unix.InotifyAddWatch(fd, file, unix.IN_OPEN|unix.IN_CLOSE_NOWRITE); err != nil {
		t.Fatal(err)
	}
	return func() int {
		events := make([]byte, 64*unix.SizeofInotifyEvent) // those of a file, not of a folder, have no name behind them
		n, err := unix.Read(fd, events)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		opens := 0
		for at := 0; at < n; at += unix.SizeofInotifyEvent {
			if binary.NativeEndian.Uint32(events[at+4:])&unix.IN_OPEN != 0 { // after the number of the watch
				opens++
			}
		}
		return opens
	}
}
