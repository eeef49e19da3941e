package secrets

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/files"
)

const (
	lookEvery = time.Second
	fileBytes = 1 << 20 // longest file that is read
)

// Watch says how files are followed. The zero value follows them and reports nothing.
type Watch struct {
	Every time.Duration // between two looks; 0 = 1 s, negative = the files are read once

	// Tell, if not nil, is told of each change once two looks agree on it: nil when the files as they stand have come
	// into force, else why those that were read before stay in force. It must not block.
	Tell func(error)

	// Validity, if not nil, is told of certificates in force that have expired, or are not valid yet: before NewPort
	// returns, and whenever that changes. nil = they are valid again. It must not block.
	Validity func(error)
}

// source is a file that is followed.
type source struct {
	path string
	flag string // that names it, and begins every problem of it; "" = none does
}

// fault returns a problem of the source.
func (s source) fault(err error) error {
	if s.flag == "" {
		return err
	}
	return fmt.Errorf("%s: %w", s.flag, err)
}

// follow reads the files, which must be good. looked is called after each later look; nil = nothing is. The caller
// starts and closes the follower.
//
// It asks for no notices of changes: whoever writes a key in place has the time between two looks for it anyway.
func follow[T any](
	sources []source, parse func([][]byte) (T, error), looked func(), w Watch,
) (*files.Follower[T], error) {
	cfg := files.Config{MaxBytes: fileBytes, Every: cmp.Or(w.Every, lookEvery), Told: w.Tell, Looked: looked}
	for _, s := range sources {
		cfg.Paths = append(cfg.Paths, filepath.Clean(s.path))
	}
	return files.New(cfg, func(texts []files.Text) (value T, err error) {
		all := make([][]byte, len(texts))
		var problems []error
		for i, text := range texts {
			all[i] = text.Data
			if text.Err != nil {
				problems = append(problems, sources[i].fault(text.Err))
			}
		}
		if err := errors.Join(problems...); err != nil {
			return value, err
		}
		return parse(all)
	})
}
