package modelserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// shared is what was read last of a document of the whole pool. All endpoints ask for it, each at its own time, and get
// what one of them had read until the interval is over: it is read once an interval, however many they are. A failure
// is shared like a document, so that a server that hangs or refuses is asked no more often.
type shared struct {
	turn chan struct{} // holds an item while a goroutine reads the document or looks at the fields below
	by   Further       // that was read
	at   time.Time     // when the reading began; zero = it was never read
	c    contents
	err  error
}

func newShared() shared { return shared{turn: make(chan struct{}, 1)} }

// sharedReading is a document of the whole pool, as one endpoint gets it.
type sharedReading struct {
	contents
	at      time.Time     // when it began
	other   bool          // another endpoint's fetch read it, or it was pushed
	expires time.Duration // from now; 0 = its author did not say
}

// sharedDocument returns a document of the whole pool.
func (f *Fetcher) sharedDocument(p *Further, at *place) (sharedReading, error) {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Timeout)
	defer cancel()
	began, of := time.Now(), &at.shared
	if err := f.turn(ctx, of.turn); err != nil {
		return sharedReading{at: began}, err
	}
	defer func() { <-of.turn }()
	again := of.at.IsZero() || began.Sub(of.at) >= p.Every || !of.by.equal(*p)
	if again {
		of.by, of.at = *p, began
		of.c, of.err = contents{}, errors.New("reading it panicked")
		of.c, of.err = f.read(ctx, p, at.bytes)
	}
	return sharedReading{contents: of.c, at: of.at, other: !again}, of.err
}

// read reads a document of the whole pool.
func (f *Fetcher) read(ctx context.Context, p *Further, limit int64) (contents, error) {
	body := bodies.Get().(*[]byte)
	defer bodies.Put(body)
	var err error
	if p.File != "" {
		err = readFile(p.File, limit, body)
	} else {
		err = f.getFrom(ctx, p.URL, p.Page.trust(), limit, body)
	}
	if err != nil {
		return contents{}, err
	}
	return document(bytes.Clone(*body), p.Extract)
}

// readFile reads a file into body. A pipe or a device is refused, for it may have no end.
func readFile(name string, limit int64, body *[]byte) error {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // which waits for no writer of a pipe
	if err != nil {
		return err
	}
	defer file.Close()
	switch info, err := file.Stat(); {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", name)
	}
	return readAll(file, -1, limit, body)
}
