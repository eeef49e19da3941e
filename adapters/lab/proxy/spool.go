package proxy

import (
	"errors"
	"io"
	"sync"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

var (
	errSuperseded = errors.New("body is read by a later attempt")
	errClosed     = errors.New("body reader is closed")
)

// spool holds body chunks between the goroutine that receives answers and the one that writes them on. It keeps up to
// keep bytes so that a further attempt can read the body again, and makes the writer wait while more than limit bytes
// are unread.
type spool struct {
	mu   sync.Mutex
	cond sync.Cond

	chunks   [][]byte // nil where dropped
	total    int64
	keep     int64
	limit    int64
	lifted   bool // the writer no longer waits
	dropped  bool // a chunk is gone: no further attempt
	ended    bool
	trailers exchange.Headers
	err      error
	reader   *spoolReader
}

func newSpool(keep, limit int64) *spool {
	s := &spool{keep: keep, limit: limit}
	s.cond.L = &s.mu
	return s
}

// push takes ownership of chunk. It is dropped when nothing will read it.
func (s *spool) push(chunk []byte) {
	if len(chunk) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && !s.lifted && s.unread() > s.limit {
		s.cond.Wait()
	}
	if s.err != nil || s.ended {
		return
	}
	s.total += int64(len(chunk))
	if s.total > s.keep {
		s.dropRead()
	}
	if s.dropped && s.reader != nil && s.reader.closed {
		chunk = nil
	}
	s.chunks = append(s.chunks, chunk)
	s.cond.Broadcast()
}

func (s *spool) unread() int64 {
	if s.reader == nil {
		return s.total
	}
	if s.reader.closed {
		return 0
	}
	return s.total - s.reader.taken
}

// dropRead lets go of what the reader has taken. Without a reader nothing was taken,
// so everything can still be read once.
func (s *spool) dropRead() {
	if s.reader == nil || s.reader.next == 0 {
		return
	}
	s.dropped = true
	for i := s.reader.next - 1; i >= 0 && s.chunks[i] != nil; i-- {
		s.chunks[i] = nil
	}
}

// end says that nothing more follows but these trailers.
func (s *spool) end(trailers exchange.Headers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended, s.trailers = true, trailers
	}
	s.cond.Broadcast()
}

// fail makes readers and writers return; the first error stays.
func (s *spool) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.cond.Broadcast()
}

// lift stops making the writer wait.
func (s *spool) lift() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lifted = true
	s.cond.Broadcast()
}

// rewind returns a reader from the first byte and puts any earlier reader out of action.
// It returns nil when bytes are gone.
func (s *spool) rewind() *spoolReader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		return nil
	}
	s.reader = &spoolReader{spool: s}
	s.cond.Broadcast()
	return s.reader
}

// spoolReader reads a spool once. It is an io.ReadCloser.
type spoolReader struct {
	spool  *spool
	next   int   // chunk to take next
	taken  int64 // bytes of the chunks taken
	rest   []byte
	closed bool
	onEnd  func(trailers exchange.Headers) // called in Read just before io.EOF
}

// take returns the next chunk, io.EOF at the end. more reports whether a further chunk or the end is there already.
func (r *spoolReader) take() (chunk []byte, more bool, err error) {
	s := r.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	for r.next == len(s.chunks) && !s.ended && s.err == nil && s.reader == r && !r.closed {
		s.cond.Wait()
	}
	switch {
	case r.closed:
		return nil, false, errClosed
	case s.reader != r:
		return nil, false, errSuperseded
	case s.err != nil:
		return nil, false, s.err
	case r.next == len(s.chunks):
		return nil, false, io.EOF
	}
	chunk = s.chunks[r.next]
	r.next++
	r.taken += int64(len(chunk))
	if s.total > s.keep {
		s.dropRead()
	}
	s.cond.Broadcast()
	return chunk, r.next < len(s.chunks) || s.ended, nil
}

func (r *spoolReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		chunk, _, err := r.take()
		if err != nil {
			if errors.Is(err, io.EOF) && r.onEnd != nil {
				r.onEnd(r.spool.trailers)
			}
			return 0, err
		}
		r.rest = chunk
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close lets the writer go on; what it writes is kept only for a further attempt.
func (r *spoolReader) Close() error {
	s := r.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	r.closed = true
	s.cond.Broadcast()
	return nil
}
