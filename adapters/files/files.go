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

	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
)

// Config says which files are followed, and how. Its functions are called one at a time and must not block for long.
type Config struct {
	Paths    []string      // of the files, which together make one value
	MaxBytes int64         // longest file that is read
	Every    time.Duration // between two looks; 0 = 1 s, negative = the files are read once
	Settle   time.Duration // how long changed contents must stay as they are before they count; 0 = as long as Every
	Notices  bool          // look also when the system gives notice of a change

	// Read returns the contents of a file; nil = those that the system has.
	Read func(path string, limit int64) ([]byte, error)

	// Told, if not nil, is told of each change once its contents have settled: nil when their value is in force, else
	// why the value before stays in force.
	Told func(error)
	// Looked, if not nil, is called after each look.
	Looked func()
	// Deaf, if not nil, is told why the system gives no notices, for instance because its limit of watches is reached,
	// and nil when it gives them again. Meanwhile only the regular looks find changes.
	Deaf func(error)
}

// Text is what a file says: Data, unless Err says why the file cannot be read.
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
	seen    digest // of the contents of the last look; while it differs from settled, the files are changing

	notices     notices
	stop, ended chan struct{} // nil = the follower does not run
}

// digest tells contents apart without keeping a copy of them, which may be secret.
type digest [sha256.Size]byte

// New reads the files and returns their follower, or an error if parse rejects them. parse makes a value of one Text
// for each path, in the order of the paths, and must keep none of their memory. Start follows the files.
func New[T any](cfg Config, parse func([]Text) (T, error)) (*Follower[T], error) {
	cfg.Every = cmp.Or(cfg.Every, time.Second)
	cfg.Settle = cmp.Or(cfg.Settle, cfg.Every)
	if cfg.Read == nil {
		cfg.Read = readFile
	}
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
	pause := f.cfg.Settle // the first look is soon, because New may have been a while ago
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
			f.guard(f.listen) // before the look, so that a change after the look gives notice
			f.guard(f.Look)
			if pause = f.cfg.Every; f.seen != f.settled {
				pause = f.cfg.Settle
			}
			timer.Reset(pause)
			due = time.Now().Add(pause)
			continue
		}
		if soon := time.Now().Add(f.cfg.Settle); soon.Before(due) { // many notices cause one look
			timer.Reset(f.cfg.Settle)
			due = soon
		}
	}
}

// guard tells of a panic, as of a reader of a value, instead of an error. The value before stays in force.
func (f *Follower[T]) guard(do func()) {
	guarded := func(do func()) error { return supervise.Recover("a look at a file", func() error { do(); return nil }) }
	if err := guarded(do); err != nil && f.cfg.Told != nil {
		_ = guarded(func() { f.cfg.Told(supervise.WithStack(err)) })
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

// Look reads the files once. Changed contents count when two looks in a row have seen them. It is for callers that do
// not call Start.
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

// read returns the contents of the files and their digest. The error of a file that cannot be read is part of the
// digest.
func (f *Follower[T]) read() ([]Text, digest) {
	texts := make([]Text, len(f.cfg.Paths))
	all := sha256.New()
	for i, path := range f.cfg.Paths {
		data, err := f.cfg.Read(path, f.cfg.MaxBytes)
		texts[i] = Text{path, data, err}
		_, _ = fmt.Fprintf(all, "%d %v ", len(data), err) // lengths keep the contents of two files apart
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
	if !info.Mode().IsRegular() { // reading a pipe could block for ever
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
