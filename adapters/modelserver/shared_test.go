package modelserver

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
	"github.com/signalbox-epp/signalbox/messages"
)

// hints has a document of the whole pool, whose attribute a/b is the cost of each endpoint.
func hints(at Further) Pages {
	at.Source, at.Document = "hints", true
	at.Extract = []Extraction{{Attribute: "a/b", Producer: "mine", Field: "{endpoint}.cost"}}
	return Pages{Attributes: everything, Further: []Further{at}}
}

// ask returns what an endpoint is told of the document.
func (s *scene) ask(name string) messages.ScrapeFinished {
	s.t.Helper()
	s.fetcher.FetchMetrics(messages.EndpointSpec{Name: name, Address: "127.0.0.1:1"}, "hints", 1, s.ear)
	m, ok := s.told().(messages.ScrapeFinished)
	if !ok || m.Source != "hints" || m.Number != 1 {
		s.t.Fatalf("told %+v, want the end of the scrape", m)
	}
	return m
}

func cost(m messages.ScrapeFinished) float64 {
	if m.Failure != "" || m.Reading.Numbers.Len() != 1 {
		return -1
	}
	return m.Reading.Numbers.At(0).Value
}

// A document of the whole pool is read once an interval, however many endpoints ask for it, and each gets its own.
func TestDocumentOfThePoolIsReadOnceAnInterval(t *testing.T) {
	const long, every = time.Hour, 300 * time.Millisecond
	var reads atomic.Int32
	s := newScene(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		reads.Add(1)
		say(`{"a": {"cost": 1}, "b": {"cost": 2}}`)(w, r)
	})
	pages := hints(Further{URL: s.server.URL + "/hints", Every: long})
	s.fetcher.Read(pages)
	if a := s.ask("a"); cost(a) != 1 || a.Shared || a.Age != 0 || a.PageBytes != 0 {
		t.Errorf("got %+v, want a page that was read for this endpoint", a)
	}
	if b := s.ask("b"); cost(b) != 2 || !b.Shared || b.Age <= 0 || b.Age >= long {
		t.Errorf("got %+v, want what was read for the other endpoint, with its age", b)
	}
	if c := s.ask("c"); c.Failure != "" || c.Reading.Numbers.Len() != 0 {
		t.Errorf("got %+v for an endpoint that the document does not have, want nothing", c)
	}
	s.fetcher.Read(pages) // what was read stays
	if s.ask("a"); reads.Load() != 1 {
		t.Errorf("read %d times, want once", reads.Load())
	}
	pages = hints(pages.Further[0])
	pages.Further[0].Every = every
	s.fetcher.Read(pages)
	s.ask("b")
	before := reads.Load()
	machine, began := lateness.Begin(), time.Now()
	for s.ask("b").Shared {
	}
	machine.Within(t, "read when the interval is over", time.Since(began), 2*every)
	if n := reads.Load() - before; n != 1 {
		t.Errorf("read %d times, want another reading when the interval is over", n)
	}
	pages = hints(pages.Further[0])
	pages.Further[0].Extract[0].Field = "a.cost"
	s.fetcher.Read(pages) // as another configuration wants it
	if b := s.ask("b"); cost(b) != 1 || b.Shared {
		t.Errorf("got %+v, want another reading for another configuration", b)
	}
}

// Endpoints that ask while the document is read wait for that reading, and a failure is theirs, too.
func TestReadingOfADocumentOfThePoolIsShared(t *testing.T) {
	var reads atomic.Int32
	free, asked := make(chan struct{}), make(chan bool, 10)
	s := newScene(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		reads.Add(1)
		asked <- true
		<-free
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	s.fetcher.Read(hints(Further{URL: s.server.URL, Every: time.Minute}))
	of := messages.EndpointSpec{Name: "a", Address: "127.0.0.1:1"}
	for range 5 {
		s.fetcher.FetchMetrics(of, "hints", 1, s.ear)
	}
	<-asked
	close(free)
	own := 0
	for range 5 {
		m, _ := s.told().(messages.ScrapeFinished)
		if !m.Shared {
			own++
		}
		if m.Failure != "status 503" {
			t.Errorf("got %+v, want the failure of the one reading", m)
		}
	}
	if own != 1 || reads.Load() != 1 {
		t.Errorf("%d fetches read the document, and the server was asked %d times, want 1 each", own, reads.Load())
	}
}

func TestDocumentOfThePoolInAFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "hints.json")
	s := newScene(t, Config{PageBytes: 100}, say(""))
	s.fetcher.Read(hints(Further{File: name, Every: time.Nanosecond}))
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fails := func(part string) {
		t.Helper()
		if m := s.ask("a"); !strings.Contains(m.Failure, part) || m.Reading.Numbers.Len() != 0 {
			t.Errorf("got %+v, want the failure %q", m, part)
		}
	}
	fails("no such file")
	write(`{"a": {"cost": 3}}`)
	if m := s.ask("a"); cost(m) != 3 {
		t.Errorf("got %+v, want the cost 3", m)
	}
	write(`{"a": {"cost": 4}}`)
	if m := s.ask("a"); cost(m) != 4 {
		t.Errorf("got %+v, want the cost that was written since", m)
	}
	write(`{"a": {"co`)
	fails("document: unexpected end")
	write(strings.Repeat(" ", 101))
	fails("more than 100 bytes")
	for _, err := range []error{os.Remove(name), syscall.Mkfifo(name, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	fails("is not a regular file") // and nobody writes to the pipe
}
