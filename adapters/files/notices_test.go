package files

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// The system gives a user so many watchers and no more. Looks then find what changes, and it is said once.
func TestWithoutNoticesLooksFindChanges(t *testing.T) {
	s := newScene(t)
	s.write("f", "first")
	var limited atomic.Bool
	limited.Store(true)
	f, err := New(Config{
		Paths: []string{filepath.Join(s.folder, "f")}, MaxBytes: limit, Every: 10 * time.Millisecond, Notices: true,
		Told: func(err error) { s.told <- err }, Deaf: func(err error) { s.deaf <- err },
	}, together)
	s.must(err)
	s.Follower = f
	f.notices.open = func() (*fsnotify.Watcher, error) {
		if limited.Load() {
			return nil, syscall.EMFILE
		}
		return newWatcher()
	}
	f.Start()
	t.Cleanup(f.Close)
	if err := <-s.deaf; !errors.Is(err, syscall.EMFILE) {
		t.Errorf("told %v, want %v", err, syscall.EMFILE)
	}
	s.write("f", "second")
	s.comes("second", "")
	limited.Store(false)
	if err := <-s.deaf; err != nil {
		t.Errorf("told %v, want that notices come again", err)
	}
	s.write("f", "third")
	s.comes("third", "")
	if len(s.deaf) > 0 {
		t.Errorf("told %v too", <-s.deaf)
	}
}
