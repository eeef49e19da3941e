package envoy

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// executable writes a file that can be run.
func executable(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestFindTakesTheFirstThatThereIs(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	t.Setenv("ENVOY", "")
	t.Setenv("PATH", at("path"))
	executable(t, at("work", "keep"), "")
	t.Chdir(at("work"))
	self := at("source", "bin", "signalbox")
	path, err := Find(self)
	if err == nil || !strings.Contains(err.Error(), "$ENVOY") || !strings.Contains(err.Error(), "make envoy") {
		t.Errorf("with none: got %q, %v; want an error that says how to get one", path, err)
	}
	// From the last place to the first: each wins over those before it.
	for _, place := range []string{
		at("source", "bin", "envoy"), at("source", ".envoy", "envoy"), at("source", "bin", ".envoy", "envoy"),
		at("work", ".envoy", "envoy"), at("path", "envoy"),
	} {
		executable(t, place, "")
		if got, err := Find(self); got != place || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, place)
		}
	}
	own := at("own", "proxy")
	executable(t, own, "")
	t.Setenv("ENVOY", own)
	if got, err := Find(""); got != own || err != nil {
		t.Errorf("with $ENVOY: got %q, %v; want %q", got, err, own)
	}
	t.Setenv("ENVOY", at("absent"))
	if got, err := Find(self); err == nil || !strings.Contains(err.Error(), "$ENVOY") {
		t.Errorf("with an $ENVOY that is not there: got %q, %v; want an error about $ENVOY", got, err)
	}
}

func TestVersionIsWhatTheBinarySays(t *testing.T) {
	for said, want := range map[string]string{
		"/p/envoy  version: 9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL": "1.40.0",
		"envoy  version: 0/1.41.0-dev/Clean/RELEASE/BoringSSL":                                       "1.41.0",
		"nginx version: nginx/1.24": "", "": "",
	} {
		path := filepath.Join(t.TempDir(), "envoy")
		executable(t, path, "#!/bin/sh\necho '"+said+"'\n")
		got, err := Version(t.Context(), path)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", said, got, err, want)
		}
	}
	_, err := Version(t.Context(), "/bin/false")
	if err == nil || !strings.Contains(err.Error(), "/bin/false --version: exit status 1") {
		t.Errorf("of /bin/false: %v", err)
	}
}

func TestLinesKeepTheLastOnes(t *testing.T) {
	var each []string
	l := lines{each: func(s string) { each = append(each, s) }}
	long := strings.Repeat("x", lineBytes+5)
	for _, piece := range []string{"a", "b\r\nc\n\n", "d", long + "\n", "no end"} {
		if n, err := l.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Errorf("Write(%q): %d, %v", piece, n, err)
		}
	}
	l.flush()
	want := []string{"ab", "c", ("d" + long)[:lineBytes], "no end"}
	if !slices.Equal(each, want) || !slices.Equal(l.tail(), want) {
		t.Errorf("got %q and %q, want %q", each, l.tail(), want)
	}
	for range keptLines + 3 {
		_, _ = l.Write([]byte("again\n"))
	}
	if last := l.tail(); len(last) != keptLines || last[0] != "again" {
		t.Errorf("%d lines are kept, the first is %q", len(last), last[0])
	}
}

func TestProcessServesDrainsAndEnds(t *testing.T) {
	t.Setenv("RUNNING", "3")
	cfg := fake(t, "serves")
	p := started(t, cfg)
	ctx := soon(t)
	url, err := p.Ready(ctx)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatalf("it is ready at %s, and does not listen there: %v", url, err)
	}
	conn.Close()
	if err := p.Refuse(ctx); err != nil {
		t.Fatal(err)
	}
	if left := p.Drain(ctx); left != 0 || p.Gone() {
		t.Errorf("%d requests left, gone: %t", left, p.Gone())
	}
	p.End()
	if how := p.How(); how != "exit status 0" || !slices.Equal(p.LastLines(), []string{"ended as asked"}) {
		t.Errorf("ended with %s, saying %q", how, p.LastLines())
	}
	if left := p.Drain(ctx); left != 0 {
		t.Errorf("%d requests run in a process that is gone", left)
	}
	if _, err := p.Ready(ctx); !errors.Is(err, errGone) {
		t.Errorf("Ready once it is gone: %v", err)
	}
}

func TestDrainEndsWithItsContext(t *testing.T) {
	t.Setenv("RUNNING", "2")
	t.Setenv("ENDLESS", "yes")
	p := started(t, fake(t, "serves"))
	if _, err := p.Ready(soon(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if left := p.Drain(ctx); left != 2 {
		t.Errorf("%d requests left, want 2", left)
	}
}

func TestEndKillsADeafProcess(t *testing.T) {
	p := started(t, fake(t, "deaf"))
	if _, err := p.Ready(soon(t)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if p.End(); p.How() != "signal: killed" || time.Since(began) < endWithin {
		t.Errorf("ended with %s after %v", p.How(), time.Since(began))
	}
}

func TestKillAll(t *testing.T) {
	one, another := started(t, fake(t, "deaf")), started(t, fake(t, "deaf"))
	KillAll()
	for _, p := range []*Process{one, another} {
		next(t, p.Ended())
		if p.How() != "signal: killed" {
			t.Errorf("ended with %s", p.How())
		}
	}
}

func TestProcessHasAGroupOfItsOwn(t *testing.T) {
	p := started(t, fake(t, "serves"))
	if group, err := syscall.Getpgid(p.ID()); group != p.ID() || err != nil {
		t.Errorf("group %d of process %d, %v", group, p.ID(), err)
	}
}

func TestKeeperStartsAgain(t *testing.T) {
	events := make(chan Event, 16)
	k := Keep(fake(t, "serves"), func(e Event) { events <- e })
	first := next(t, events)
	if first.URL == "" {
		t.Fatalf("first: %+v", first)
	}
	if err := syscall.Kill(first.Process, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := next(t, events); e != (Event{Process: first.Process, How: "signal: killed", Pause: firstPause}) {
		t.Errorf("its end: %+v", e)
	}
	second := next(t, events)
	if second.URL == "" || second.Process == first.Process {
		t.Errorf("second: %+v", second)
	}
	p := k.Settle()
	if p == nil || p.ID() != second.Process || p.Gone() {
		t.Fatalf("settled with %v", p)
	}
	p.End()
	if len(events) > 0 {
		t.Errorf("then %+v", <-events)
	}
}

func TestKeeperGivesUp(t *testing.T) {
	events := make(chan Event, 16)
	k := Keep(fake(t, "dies"), func(e Event) { events <- e })
	err := next(t, k.Failed())
	for _, part := range []string{
		"envoy ended 5 times within 5s of its start", "exit status 3", "\n  [a line]\n  listener: cannot bind",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want %q in it", err, part)
		}
	}
	for pause := firstPause; len(events) > 0; pause *= 2 {
		if e := <-events; e.How != "exit status 3" || e.Pause != pause {
			t.Errorf("got %+v, want a pause of %v", e, pause)
		}
	}
	if p := k.Settle(); p != nil {
		t.Errorf("it has process %d", p.ID())
	}
	k = Keep(Config{Binary: "/no/envoy"}, func(Event) {})
	if err := next(t, k.Failed()); !strings.Contains(err.Error(), "/no/envoy") {
		t.Errorf("of a binary that is not there: %v", err)
	}
	k.Settle()
}

func TestKeeperSettlesInAPause(t *testing.T) {
	events := make(chan Event, 16)
	k := Keep(fake(t, "dies"), func(e Event) { events <- e })
	next(t, events)
	if p := k.Settle(); p != nil { // the next one was just started
		p.Kill()
	}
	if n := len(events); n > 1 {
		t.Errorf("%d events after it was settled", n)
	}
}

func TestListenerURL(t *testing.T) {
	if _, err := listenerURL(`{"listener_statuses":[]}`); err == nil {
		t.Error("no listener: got no error")
	}
	url, err := listenerURL(
		`{"listener_statuses":[{"local_address":{"socket_address":{"address":"::1","port_value":81}}}]}`)
	if url != "http://[::1]:81" || err != nil {
		t.Errorf("listener: got %q, %v", url, err)
	}
}
