package telemetry

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	sinkBytes    = 1 << 20         // limit of all lines that wait to be written
	sinkPatience = 2 * time.Second // limit of a flush: a dead reader must not hold up the end of the process
	pieceBytes   = 64 << 10        // most that is written at a time
)

var errNotFlushed = errors.New("log: the reader took nothing in time; lines were left unwritten")

// Sink takes log lines into a buffer of limited size, which one goroutine writes out, so that logging never waits for
// the reader. A line that finds the buffer full is dropped and counted; a notice of how many were lost takes the place
// of such lines.
//
// zap's BufferedWriteSyncer would not do: a line that finds its buffer full waits for the reader, and so does its end.
type Sink struct {
	out    io.Writer
	limit  int
	notice func(lost uint64) []byte // the line that says how many were lost

	mu       sync.Mutex
	buf      []byte // lines to be written
	writing  int    // bytes that the goroutine has taken and not written
	accepted uint64 // bytes that came in, since the start
	written  uint64 // those of them that the goroutine is done with, also if the writer refused them; <= accepted
	lost     uint64 // lines since the last notice
	dropped  uint64 // lines since the start
	closed   bool
	progress chan struct{} // closed when written grows, then replaced

	wake chan struct{}
	done chan struct{}
}

// NewSink returns a sink that writes whole lines to out until Close.
func NewSink(out io.Writer, limit int, notice func(lost uint64) []byte) *Sink {
	s := &Sink{
		out: out, limit: limit, notice: notice,
		progress: make(chan struct{}), wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go s.drain()
	return s
}

// Write takes a line, or drops it. It never blocks and never fails.
func (s *Sink) Write(line []byte) (int, error) {
	s.mu.Lock()
	if s.closed || len(s.buf)+s.writing+len(line) > s.limit {
		s.lost++
		s.dropped++
	} else {
		s.buf = append(s.buf, line...)
		s.accepted += uint64(len(line))
	}
	s.mu.Unlock()
	s.nudge()
	return len(line), nil
}

func (s *Sink) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Sync waits until everything that was logged before it is written, two seconds at most.
func (s *Sink) Sync() error { return s.flush(sinkPatience) }

func (s *Sink) flush(patience time.Duration) error {
	s.nudge()
	late := time.NewTimer(patience)
	defer late.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	until := s.accepted
	if s.lost > 0 {
		until++ // the notice of lost lines follows, and is at least a byte long
	}
	for s.written < until {
		progress := s.progress
		s.mu.Unlock()
		select {
		case <-progress:
			s.mu.Lock()
		case <-late.C:
			s.mu.Lock()
			return errNotFlushed
		}
	}
	return nil
}

// Close flushes and ends the goroutine. Lines that come later are dropped. If the reader holds the goroutine up, Close
// returns an error and leaves it behind.
func (s *Sink) Close() error {
	err := s.flush(sinkPatience)
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.nudge()
	if err != nil {
		return err
	}
	late := time.NewTimer(sinkPatience)
	defer late.Stop()
	select {
	case <-s.done:
		return nil
	case <-late.C:
		return errNotFlushed
	}
}

// Dropped returns how many lines were dropped since the start.
func (s *Sink) Dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// Metric returns the counter of lines that were dropped.
func (s *Sink) Metric() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "signalbox_log_lines_dropped_total",
		Help: "Log lines that were dropped because their reader is too slow, or gone.",
	}, func() float64 { return float64(s.Dropped()) })
}

// drain writes the buffer out whenever it is woken, until the sink is closed and empty.
func (s *Sink) drain() {
	defer close(s.done)
	var batch []byte
	for range s.wake {
		closed := false
		for more := true; more; {
			batch, closed = s.take(batch)
			more = len(batch) > 0
			for rest := batch; len(rest) > 0; {
				rest = s.piece(rest)
			}
		}
		if closed {
			return
		}
	}
}

// take swaps the buffer for an empty one. A notice of lost lines is put at its end, because they came after every line
// in it.
func (s *Sink) take(empty []byte) (batch []byte, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch, s.buf = s.buf, empty[:0]
	if s.lost > 0 {
		line := s.notice(s.lost)
		batch = append(batch, line...)
		s.accepted += uint64(len(line))
		s.lost = 0
	}
	s.writing = len(batch)
	return batch, s.closed
}

// piece writes the first lines of batch and returns the rest. Lines that the writer refuses count as dropped.
func (s *Sink) piece(batch []byte) []byte {
	n := len(batch)
	if n > pieceBytes {
		n = bytes.LastIndexByte(batch[:pieceBytes], '\n') + 1
		if n == 0 { // one long line
			n = pieceBytes
		}
	}
	took, err := s.out.Write(batch[:n])
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.dropped += uint64(bytes.Count(batch[min(took, n):n], []byte{'\n'}))
	}
	s.writing -= n
	s.written += uint64(n)
	close(s.progress)
	s.progress = make(chan struct{})
	return batch[n:]
}
