package files

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// Config says which files are followed, and how. Its functions are called one at a time and must not block for long.
type Config struct {
	Paths    []string      // of files that make one value together
	MaxBytes int64         // of one file
	Every    time.Duration // between two looks; 0 = 1 s, negative = the files are read once
	Settle   time.Duration // how long changed contents must stay as they are before they count; 0 = as long as Every
	Notices  bool          // look, too, when the system gives notice of a change

	// Told, if not nil, hears of each change once its contents have settled: nil when their value is in force, else
	// why the value before stays in force.
	Told func(error)
	// Looked, if not nil, is called after each look.
	Looked func()
	// Deaf, if not nil, hears why the system gives no notices, as when its limit of watches is reached, and nil when
	// it gives them again. Until then looks alone find changes.
	Deaf func(error)
}

// Text is what stands in a file: Data, unless Err says why it cannot be read.
type Text struct {
	Path string
	Data []byte
	Err  error
}

// Follower keeps the value of the last good contents of a set of files.
//
//	          other contents              the same contents again: they are parsed, and told of
//	settled ─────────────────► changing ───────────────────────────────────────────────────────► settled
//	   ▲                        │    ▲ │
//	   └────────────────────────┘    └─┘ other contents
//	    those that were settled
type Follower[T any] struct {
	cfg   Config
	parse func([]Text) (T, error)
	value atomic.Pointer[T] // never nil

	settled digest // of the contents that were parsed last, good or bad
	seen    digest // of those of the last look; the files are changing while it is not settled

	notices     notices
	stop, ended chan struct{} // nil = the follower does not run
}

// digest tells contents apart, and is no copy of a secret.
type digest [sha256.Size]byte

// New reads the files, which must be good. parse makes a value of one text for each path, in their order, and must
// keep none of their memory. Start follows the files.
func New[T any](cfg Config, parse func([]Text) (T, error)) (*Follower[T], error) {
	cfg.Every = cmp.Or(cfg.Every, time.Second)
	cfg.Settle = cmp.Or(cfg.Settle, cfg.Every)
	f := &Follower[T]{cfg: cfg, parse: parse, notices: notices{open: newWatcher}}
	texts, contents := f.read()
	value, err := parse(texts)
	if err != nil {
		return nil, err
	}
	f.value.Store(&value)
	f.settled, f.seen = contents, contents
	return f, nil
}

// Value returns the value in force. Any goroutine may ask for it.
func (f *Follower[T]) Value() T { return *f.value.Load() }

// Start follows the files on a goroutine of its own, until Close. It does nothing where Every is negative or there is
// no file.
func (f *Follower[T]) Start() {
	if f.cfg.Every < 0 || len(f.cfg.Paths) == 0 || f.stop != nil {
		return
	}
	f.stop, f.ended = make(chan struct{}), make(chan struct{})
	go f.run()
}

// Close ends the looks, and waits for one that is under way. The value stays in force.
func (f *Follower[T]) Close() {
	if f.stop == nil {
		return
	}
	close(f.stop)
	<-f.ended
	f.stop = nil
}

func (f *Follower[T]) run() {
	defer close(f.ended)
	defer f.notices.close()
	f.listen()
	pause := f.cfg.Settle // New may have been a while ago
	timer := time.NewTimer(pause)
	defer timer.Stop()
	due := time.Now().Add(pause)
	for {
		changes, problems := f.notices.channels()
		select {
		case <-f.stop:
			return
		case <-changes:
		case <-problems: // notices were lost
		case <-timer.C:
			f.listen() // before the look: what changes after it gives notice
			f.Look()
			if pause = f.cfg.Every; f.seen != f.settled {
				pause = f.cfg.Settle
			}
			timer.Reset(pause)
			due = time.Now().Add(pause)
			continue
		}
		if soon := time.Now().Add(f.cfg.Settle); soon.Before(due) { // one look for many notices
			timer.Reset(f.cfg.Settle)
			due = soon
		}
	}
}

func (f *Follower[T]) listen() {
	if !f.cfg.Notices {
		return
	}
	if changed, err := f.notices.watch(f.cfg.Paths); changed && f.cfg.Deaf != nil {
		f.cfg.Deaf(err)
	}
}

// Look reads the files once: contents that are not settled count when two looks in a row see them. It is for callers
// that do not call Start.
func (f *Follower[T]) Look() {
	texts, contents := f.read()
	switch contents {
	case f.seen:
		if contents != f.settled {
			f.settle(texts, contents)
		}
	default:
		f.seen = contents
	}
	if f.cfg.Looked != nil {
		f.cfg.Looked()
	}
}

func (f *Follower[T]) settle(texts []Text, contents digest) {
	f.settled = contents
	value, err := f.parse(texts)
	if err == nil {
		f.value.Store(&value)
	}
	if f.cfg.Told != nil {
		f.cfg.Told(err)
	}
}

// read returns what stands in the files. Where one cannot be read, the digest is that of the error too.
func (f *Follower[T]) read() ([]Text, digest) {
	texts := make([]Text, len(f.cfg.Paths))
	all := sha256.New()
	for i, path := range f.cfg.Paths {
		data, err := readFile(path, f.cfg.MaxBytes)
		texts[i] = Text{path, data, err}
		_, _ = fmt.Fprintf(all, "%d %v ", len(data), err) // no two sets look alike
		_, _ = all.Write(data)
	}
	return texts, digest(all.Sum(nil))
}

func readFile(name string, limit int64) ([]byte, error) {
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
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, limit)
	}
	return text, nil
}
