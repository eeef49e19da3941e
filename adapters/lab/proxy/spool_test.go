package proxy

import (
	"errors"
	"io"
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

func TestSpoolReadsAgainUntilBytesAreDropped(t *testing.T) {
	s := newSpool(4, 100)
	s.push([]byte("ab"))
	first := s.rewind()
	if chunk, more, err := first.take(); string(chunk) != "ab" || more || err != nil {
		t.Fatalf("take: %q %v %v", chunk, more, err)
	}
	second := s.rewind()
	if _, _, err := first.take(); !errors.Is(err, errSuperseded) {
		t.Errorf("earlier reader: got %v, want %v", err, errSuperseded)
	}
	s.push([]byte("cd"))
	s.end(exchange.Headers{{Name: "x", Value: "y"}})
	ends := 0
	second.onEnd = func(h exchange.Headers) { ends += len(h) }
	if all, err := io.ReadAll(second); string(all) != "abcd" || err != nil || ends != 1 {
		t.Errorf("second reader: %q %v, %d trailers", all, err, ends)
	}

	s = newSpool(4, 100)
	reader := s.rewind()
	s.push([]byte("abc"))
	_, _, _ = reader.take()
	s.push([]byte("def"))
	if s.rewind() != nil {
		t.Error("6 bytes can be read again, only 4 are kept")
	}
	s.end(nil)
	if all, err := io.ReadAll(reader); string(all) != "def" || err != nil {
		t.Errorf("reader after the drop: %q %v", all, err)
	}
}

func TestSpoolMakesTheWriterWait(t *testing.T) {
	s := newSpool(0, 1)
	reader := s.rewind()
	s.push([]byte("ab"))
	pushed := make(chan struct{})
	go func() {
		s.push([]byte("cd"))
		close(pushed)
	}()
	if chunk, _, _ := reader.take(); string(chunk) != "ab" {
		t.Errorf("first chunk %q", chunk)
	}
	<-pushed
	s.push(nil) // an empty chunk has no effect
	s.fail(io.ErrUnexpectedEOF)
	s.push([]byte("ef")) // does not wait for a reader any more
	if _, _, err := reader.take(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("after fail: %v", err)
	}
}
