package secrets

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

const (
	lookEvery = time.Second
	fileBytes = 1 << 20 // of one file
)

// Watch is how files are followed. The zero value follows them and tells nobody.
type Watch struct {
	Every time.Duration // between two looks; 0 = 1 s, negative = the files are read once

	// Tell, if not nil, hears of each change once two looks agree on it: nil when the files as they stand have come into
	// force, else why those that were read before stay in force. It must not block.
	Tell func(error)

	// Doubt, if not nil, hears of certificates in force that have expired, or are not valid yet: before NewPort returns, and
	// whenever that changes. nil = they are valid again. It must not block.
	Doubt func(error)
}

// source is a file that is followed.
type source struct {
	path string
	flag string // that names it, and begins every problem of it; "" = none does
}

// fault is a problem of the source.
func (s source) fault(err error) error {
	if s.flag == "" {
		return err
	}
	return fmt.Errorf("%s: %w", s.flag, err)
}

// follower keeps the last good value of a set of files. It reads them at each look instead of waiting for word of a
// change: a volume of Kubernetes swaps a link two folders up, and a network drive tells nothing.
type follower[T any] struct {
	files []source
	parse func(texts [][]byte) (*T, error)
	judge func(*T) // looks at what is in force, at each look
	tell  func(error)
	good  atomic.Pointer[T]

	settled [sha256.Size]byte // what was taken or told of last
	seen    [sha256.Size]byte // what stood there at the last look

	end, ended chan struct{} // nil = the files are not followed
}

// follow reads the files, which must be good, and goes on reading them until close.
func follow[T any](files []source, parse func([][]byte) (*T, error), judge func(*T), w Watch) (*follower[T], error) {
	f := &follower[T]{files: files, parse: parse, judge: judge, tell: w.Tell}
	if f.tell == nil {
		f.tell = func(error) {}
	}
	value, sum, err := f.read()
	if err != nil {
		return nil, err
	}
	f.good.Store(value)
	f.judge(value)
	f.settled, f.seen = sum, sum
	if w.Every >= 0 && len(files) > 0 {
		f.end, f.ended = make(chan struct{}), make(chan struct{})
		every := w.Every
		if every == 0 {
			every = lookEvery
		}
		go f.run(every)
	}
	return f, nil
}

func (f *follower[T]) run(every time.Duration) {
	defer close(f.ended)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-f.end:
			return
		case <-ticker.C:
			f.look()
		}
	}
}

// close ends the looks. What was read last stays.
func (f *follower[T]) close() {
	if f.end == nil {
		return
	}
	close(f.end)
	<-f.ended
	f.end = nil
}

// look takes what is good, and tells of what is bad, when it looks the same a second time: whoever writes a file, or replaces
// one after the other, is in the midst of it for a moment, and half of a token is a token.
func (f *follower[T]) look() {
	value, sum, err := f.read()
	switch {
	case sum != f.seen:
		f.seen = sum
	case sum == f.settled: // nothing happened
	case err != nil:
		f.settled = sum
		f.tell(err)
	default:
		f.good.Store(value)
		f.settled = sum
		f.tell(nil)
	}
	f.judge(f.good.Load())
}

// read gives what the files hold, and a sum of it. Of files that cannot be read the sum is that of the error.
func (f *follower[T]) read() (*T, [sha256.Size]byte, error) {
	var texts [][]byte
	var problems []error
	var all bytes.Buffer
	for _, file := range f.files {
		text, err := readFile(file.path)
		if err != nil {
			problems = append(problems, file.fault(err))
		}
		texts = append(texts, text)
		fmt.Fprintf(&all, "%d %v ", len(text), err) // so that no two sets look alike
		all.Write(text)
	}
	sum := sha256.Sum256(all.Bytes())
	if err := errors.Join(problems...); err != nil {
		return nil, sum, err
	}
	value, err := f.parse(texts)
	return value, sum, err
}

func readFile(name string) ([]byte, error) {
	name = filepath.Clean(name)
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a pipe would hold us
		return nil, fmt.Errorf("%s: not a regular file", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, fileBytes+1))
	if err == nil && len(text) > fileBytes {
		err = fmt.Errorf("%s: larger than %d bytes", name, fileBytes)
	}
	return text, err
}
