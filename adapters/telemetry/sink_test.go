package telemetry

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reader is a writer's other end: it takes what comes while it is open.
type reader struct {
	gate chan struct{} // closed = it reads
	fail error
	mu   sync.Mutex
	got  strings.Builder
}

func (r *reader) Write(p []byte) (int, error) {
	<-r.gate
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return 0, r.fail
	}
	return r.got.Write(p)
}

func (r *reader) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got.String()
}

func newReader() *reader { return &reader{gate: make(chan struct{})} }

func lostLines(n uint64) []byte { return fmt.Appendf(nil, "lost %d\n", n) }

func TestFullSinkDropsAndSaysHowMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader()
		s := NewSink(r, 8, lostLines)
		_, _ = s.Write([]byte("one\n"))
		synctest.Wait() // the goroutine holds it, and counts as long as it is not written
		for _, line := range []string{"two\n", "three\n", "four\n", "five\n"} {
			if n, err := s.Write([]byte(line)); n != len(line) || err != nil {
				t.Fatalf("Write = %d, %v: whoever logs shall not care", n, err)
			}
		}
		if n := s.Dropped(); n != 3 {
			t.Errorf("%d lines dropped, want 3", n)
		}
		close(r.gate)
		if err := s.Sync(); err != nil {
			t.Error(err)
		}
		_, _ = s.Write([]byte("six\n"))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got, want := r.text(), "one\ntwo\nlost 3\nsix\n"; got != want {
			t.Errorf("read %q, want %q", got, want)
		}
		_, _ = s.Write([]byte("seven\n"))
		if n := s.Dropped(); n != 4 {
			t.Errorf("%d lines dropped after the end, want 4", n)
		}
	})
}

func TestLineLargerThanTheSinkIsToldOf(t *testing.T) {
	r := newReader()
	close(r.gate)
	s := NewSink(r, 8, lostLines)
	_, _ = s.Write([]byte("more than eight bytes\n"))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got := r.text(); got != "lost 1\n" {
		t.Errorf("read %q", got)
	}
}

func TestDeadReaderHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader()
		s := NewSink(r, 1<<10, lostLines)
		for range 1 << 12 {
			_, _ = s.Write([]byte("a line\n"))
		}
		began := time.Now()
		if err := s.Sync(); !errors.Is(err, errNotFlushed) {
			t.Errorf("Sync = %v", err)
		}
		if err := s.Close(); !errors.Is(err, errNotFlushed) {
			t.Errorf("Close = %v", err)
		}
		if took := time.Since(began); took > 2*sinkPatience {
			t.Errorf("it took %v, want %v at most", took, 2*sinkPatience)
		}
		close(r.gate) // synctest fails if the goroutine stays
	})
}

func TestLinesStayWholeAndInOrder(t *testing.T) {
	r := newReader()
	close(r.gate)
	s := NewSink(r, 8<<20, lostLines)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 5000 {
				_, _ = s.Write(fmt.Appendf(nil, "%d %d %s\n", w, i, strings.Repeat("x", 50)))
			}
		})
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	next, n := [4]int{}, 0
	for line := range strings.Lines(r.text()) {
		var w, i int
		var rest string
		if _, err := fmt.Sscanf(line, "%d %d %s\n", &w, &i, &rest); err != nil || i != next[w] || len(rest) != 50 {
			t.Fatalf("line %q, want number %d of writer %d: %v", line, next[w], w, err)
		}
		next[w]++
		n++
	}
	if n != 4*5000 {
		t.Errorf("%d lines, want %d", n, 4*5000)
	}
}

func TestRefusedLinesAreCounted(t *testing.T) {
	r := newReader()
	r.fail = errors.New("broken pipe")
	close(r.gate)
	s := NewSink(r, 1<<10, lostLines)
	_, _ = s.Write([]byte("a\n"))
	_, _ = s.Write([]byte("b\n"))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := s.Dropped(); n != 2 {
		t.Errorf("%d lines dropped, want 2", n)
	}
}

func TestWritingALineAllocatesNothing(t *testing.T) {
	r := newReader()
	s := NewSink(r, 1<<20, lostLines)
	line := []byte("a line of a log\n")
	for s.Dropped() == 0 { // the buffer has its size now
		_, _ = s.Write(line)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = s.Write(line) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	close(r.gate)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
