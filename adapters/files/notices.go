package files

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// notices are what the system tells of changes: in the folders of the files, and in those that links lead to. Folders
// are watched and not files, for a file that is replaced takes its watch along. Nothing depends on a notice: each
// makes a look come sooner.
type notices struct {
	open    func() (*fsnotify.Watcher, error)
	watcher *fsnotify.Watcher // nil = the system gave none yet
	folders map[string]bool   // that are watched, or are missing; each is asked for again, for it may have come back
	problem string            // why there are none, as it was told last; "" = there are
}

func newWatcher() (*fsnotify.Watcher, error) { return fsnotify.NewWatcher() }

// watch asks the system for notices of these files as their links lead now. It reports whether they can be had again,
// or cannot for another reason, and gives the reason.
func (n *notices) watch(paths []string) (changed bool, err error) {
	text := ""
	if err = n.ask(folders(paths)); err != nil {
		text = err.Error()
	}
	changed = text != n.problem
	n.problem = text
	return changed, err
}

func (n *notices) ask(wanted map[string]bool) error {
	if n.watcher == nil {
		w, err := n.open()
		if err != nil {
			return err
		}
		n.watcher = w
	}
	var problems error
	for folder := range wanted {
		if err := n.watcher.Add(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = errors.Join(problems, err)
		}
	}
	for folder := range n.folders {
		if !wanted[folder] {
			_ = n.watcher.Remove(folder) // it is gone already if it was removed
		}
	}
	n.folders = wanted
	return problems
}

func folders(paths []string) map[string]bool {
	all := make(map[string]bool, 2*len(paths))
	for _, path := range paths {
		all[filepath.Dir(path)] = true
		if linked, err := filepath.EvalSymlinks(path); err == nil {
			all[filepath.Dir(linked)] = true
		}
	}
	return all
}

// channels are where notices and problems with them come; none comes without a watcher.
func (n *notices) channels() (<-chan fsnotify.Event, <-chan error) {
	if n.watcher == nil {
		return nil, nil
	}
	return n.watcher.Events, n.watcher.Errors
}

func (n *notices) close() {
	if n.watcher != nil {
		_ = n.watcher.Close()
	}
}
