package files

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// notices has the system report changes in the folders of the files, and in those that symbolic links lead to. It
// watches folders and not files, because a file that is replaced takes its watch along. Nothing depends on a notice:
// it only makes a look come sooner.
type notices struct {
	open    func() (*fsnotify.Watcher, error)
	watcher *fsnotify.Watcher // nil = the system gave none yet
	folders map[string]bool   // folders that are watched or missing; all are added again at each look
	problem string            // why there are no notices, as it was reported last; "" = there are
}

func newWatcher() (*fsnotify.Watcher, error) { return fsnotify.NewWatcher() }

// watch has the system report changes of these files, wherever their links lead now. changed says that err is not the
// problem of the last call, or that the problem is over.
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
			_ = n.watcher.Remove(folder) // fails if the folder was removed, and then there is no watch either
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

// channels returns the channels of notices and of their problems. Both are nil while there is no watcher.
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
