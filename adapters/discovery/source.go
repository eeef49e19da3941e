package discovery

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// source is a file and what was seen of it last.
type source struct {
	path    string
	seen    os.FileInfo // nil = it was not there
	watcher *fsnotify.Watcher
	watched map[string]bool
}

// read parses the file as it is now.
func (s *source) read() (entries []Entry, doubles Problems, err error) {
	s.seen = nil
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, nil, err
	}
	s.seen = info
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s: not a regular file", s.path)
	}
	file, err := os.Open(s.path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, nil, err
	}
	if entries, doubles, err = Parse(text); err != nil {
		return nil, nil, fmt.Errorf("%s:\n%w", s.path, err)
	}
	return entries, doubles, nil
}

// changed says whether another file stands there than was read last, or none.
func (s *source) changed() bool {
	info, err := os.Stat(s.path)
	if err != nil {
		// What cannot be looked at is read once more, to say why; then it is as it was.
		return s.seen != nil
	}
	return s.seen == nil || !os.SameFile(info, s.seen) || info.Size() != s.seen.Size() || info.Mode() != s.seen.Mode() || !info.ModTime().Equal(s.seen.ModTime())
}

// watch asks the system for word of the folder of the file, and of the folder that a link leads to. Nothing depends on it:
// the file is looked at again and again anyway, but with it a change is heard of sooner.
func (s *source) watch() error {
	if s.watcher == nil {
		w, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		s.watcher, s.watched = w, map[string]bool{}
	}
	folders := map[string]bool{filepath.Dir(s.path): true}
	if linked, err := filepath.EvalSymlinks(s.path); err == nil {
		folders[filepath.Dir(linked)] = true
	}
	var problems error
	for folder := range folders {
		if err := s.watcher.Add(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = errors.Join(problems, err)
		}
	}
	for folder := range s.watched {
		if !folders[folder] {
			_ = s.watcher.Remove(folder) // gone already, if it was removed
		}
	}
	s.watched = folders
	return problems
}

// events is where word of changes comes; it never comes without a watcher.
func (s *source) events() (<-chan fsnotify.Event, <-chan error) {
	if s.watcher == nil {
		return nil, nil
	}
	return s.watcher.Events, s.watcher.Errors
}

func (s *source) close() {
	if s.watcher != nil {
		_ = s.watcher.Close()
	}
}

// debounce turns many words of change into one: after a quiet time, or after the longest wait if it is never quiet.
type debounce struct {
	timer *time.Timer
	until time.Time // the longest wait; zero = nothing waits
}

const (
	quietTime   = 50 * time.Millisecond
	longestWait = 300 * time.Millisecond
)

func newDebounce() *debounce {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &debounce{timer: t}
}

func (d *debounce) heard(now time.Time) {
	if d.until.IsZero() {
		d.until = now.Add(longestWait)
	}
	d.timer.Reset(min(quietTime, d.until.Sub(now)))
}

func (d *debounce) over() { d.until = time.Time{} }
