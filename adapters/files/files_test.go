package files

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// scene is a set of files in a folder of its own, whose value is their texts together. A text that begins with "bad"
// is refused.
type scene struct {
	t      *testing.T
	folder string
	told   chan error
	deaf   chan error
	*Follower[string]
}

const limit = 64 // bytes of a file

func newScene(t *testing.T) *scene {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	return &scene{t: t, folder: t.TempDir(), told: make(chan error, 100), deaf: make(chan error, 100)}
}

// follow reads these files. Without Every the test looks.
func (s *scene) follow(cfg Config, names ...string) {
	s.t.Helper()
	for _, name := range names {
		cfg.Paths = append(cfg.Paths, filepath.Join(s.folder, name))
	}
	cfg.MaxBytes, cfg.Told, cfg.Deaf = limit, func(err error) { s.told <- err }, func(err error) { s.deaf <- err }
	f, err := New(cfg, together)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Follower = f
	f.Start()
	s.t.Cleanup(f.Close)
}

func together(texts []Text) (string, error) {
	all := make([]string, len(texts))
	for i, text := range texts {
		if text.Err != nil {
			return "", text.Err
		}
		if string(text.Data) == "bomb" {
			panic("the test")
		}
		if strings.HasPrefix(string(text.Data), "bad") {
			return "", errors.New(string(text.Data))
		}
		all[i] = string(text.Data)
	}
	return strings.Join(all, " "), nil
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) write(name, text string) {
	s.t.Helper()
	s.must(os.WriteFile(filepath.Join(s.folder, name), []byte(text), 0o600))
}

// comes waits for the next change to be told of, and wants this value in force and this error.
func (s *scene) comes(value, problem string) {
	s.t.Helper()
	select {
	case err := <-s.told:
		if got := s.Value(); got != value || (err == nil) != (problem == "") {
			s.t.Errorf("told %v with %q in force, want %q with %q", err, got, problem, value)
		}
		if err != nil && !strings.Contains(err.Error(), problem) {
			s.t.Errorf("told %v, want %q", err, problem)
		}
	case <-time.After(10 * time.Second):
		s.t.Fatalf("nothing was told of within 10 s, want %q", value)
	}
}

// Contents count when two looks in a row see them, whether they are good or bad; and what is settled is told once.
func TestContentsCountWhenTwoLooksSeeThem(t *testing.T) {
	large := strings.Repeat("x", limit)
	for name, steps := range map[string][]struct {
		text, value string
		told        int
	}{
		"grows": {{"ne", "old", 0}, {"new", "old", 0}, {"new", "new", 1}, {"new", "new", 1}},
		"empty": {{"", "old", 0}, {"", "", 1}},
		"is bad": {
			{"bad", "old", 0}, {"bad", "old", 1}, {"bad", "old", 1}, {"badly", "old", 1}, {"badly", "old", 2},
			{"old", "old", 2}, {"old", "old", 3},
		},
		"is there again before it counts": {
			{"new", "old", 0}, {"old", "old", 0}, {"old", "old", 0}, {"new", "old", 0}, {"new", "new", 1},
		},
		"never stands still":                {{"1", "old", 0}, {"2", "old", 0}, {"1", "old", 0}, {"2", "old", 0}},
		"is too large":                      {{large + "x", "old", 0}, {large + "x", "old", 1}},
		"is too large otherwise, told once": {{large + "x", "old", 0}, {large + "yy", "old", 1}},
		"is as large as it may be":          {{large, "old", 0}, {large, large, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.write("f", "old")
			s.follow(Config{Every: -1}, "f")
			for i, step := range steps {
				s.write("f", step.text)
				s.Look()
				if s.Value() != step.value || len(s.told) != step.told {
					t.Fatalf("step %d: %q in force, told %d times, want %q and %d", i, s.Value(), len(s.told),
						step.value, step.told)
				}
			}
		})
	}
}

// Whoever replaces one file after the other is in the midst of it for a moment: files count together.
func TestFilesCountTogether(t *testing.T) {
	s := newScene(t)
	s.write("a", "a1")
	s.write("b", "b1")
	s.follow(Config{Every: -1}, "a", "b")
	s.write("a", "a2")
	s.Look()
	s.write("b", "b2")
	s.Look()
	if s.Value() != "a1 b1" {
		t.Errorf("%q is in force, seen once", s.Value())
	}
	s.Look()
	s.comes("a2 b2", "")
	s.write("a", "a2b")
	s.write("b", "2")
	s.Look()
	s.Look()
	s.comes("a2b 2", "")
}

func TestFilesMustBeGoodAtTheStart(t *testing.T) {
	s := newScene(t)
	s.write("bad", "bad indeed")
	s.write("large", strings.Repeat("x", limit+1))
	for name, want := range map[string]string{
		"bad": "bad indeed", "none": "no such file", ".": "not a regular file", "large": "larger than 64 bytes",
	} {
		_, err := New(Config{Paths: []string{filepath.Join(s.folder, name)}, MaxBytes: limit}, together)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

// replacements are the ways in which people and programs put another text into a file.
func replacements(s *scene) map[string]func(text string) {
	version := 0
	return map[string]func(string){
		"in place": func(text string) { s.write("f", text) },
		"by rename": func(text string) {
			s.write("f.new", text)
			s.must(os.Rename(filepath.Join(s.folder, "f.new"), filepath.Join(s.folder, "f")))
		},
		"removed first": func(text string) {
			s.must(os.Remove(filepath.Join(s.folder, "f")))
			s.write("f", text)
		},
		"with its folder": func(text string) {
			s.must(os.RemoveAll(s.folder))
			s.must(os.Mkdir(s.folder, 0o700))
			s.write("f", text)
		},
		"in another folder of that name": func(text string) {
			s.must(os.Rename(s.folder, s.folder+".old"))
			s.must(os.Mkdir(s.folder, 0o700))
			s.write("f", text)
			s.must(os.RemoveAll(s.folder + ".old"))
		},
		"by a link, as Kubernetes mounts a ConfigMap": func(text string) {
			version++
			name := "..v" + string(rune('0'+version))
			s.must(os.Mkdir(filepath.Join(s.folder, name), 0o700))
			s.write(filepath.Join(name, "f"), text)
			s.must(os.Symlink(name, filepath.Join(s.folder, "..data_tmp")))
			s.must(os.Rename(filepath.Join(s.folder, "..data_tmp"), filepath.Join(s.folder, "..data")))
			if version == 1 {
				_ = os.Remove(filepath.Join(s.folder, "f"))
				s.must(os.Symlink(filepath.Join("..data", "f"), filepath.Join(s.folder, "f")))
			}
		},
	}
}

func TestReplacedFilesAreFound(t *testing.T) {
	for _, cfg := range []Config{
		{Every: 5 * time.Millisecond}, {Every: 100 * time.Millisecond, Settle: 5 * time.Millisecond, Notices: true},
	} {
		for name := range replacements(nil) {
			how := "by looks: "
			if cfg.Notices {
				how = "with notices: "
			}
			t.Run(how+name, func(t *testing.T) {
				s := newScene(t)
				replace := replacements(s)[name]
				s.write("f", "first")
				s.follow(cfg, "f")
				replace("second")
				s.settles("second")
				replace("third")
				s.settles("third")
			})
		}
	}
}

// settles waits until this value is in force. Meanwhile the file may be found missing.
func (s *scene) settles(value string) {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Second); s.Value() != value; {
		if time.Now().After(end) {
			s.t.Fatalf("%q is in force after 10 s, want %q", s.Value(), value)
		}
		<-s.told
	}
}

// A file whose reader panics is one that cannot be read.
func TestPanicOfTheReaderIsTold(t *testing.T) {
	s := newScene(t)
	s.write("f", "first")
	s.follow(Config{Every: 5 * time.Millisecond}, "f")
	s.write("f", "bomb")
	if err := <-s.told; err == nil || !strings.Contains(err.Error(), "has panicked: the test") || s.Value() != "first" {
		t.Errorf("told %v, %q is in force; want the panic, and the first", err, s.Value())
	}
	s.write("f", "second")
	s.settles("second")
}

// Without a look, notices alone find what is replaced, also once the folder of a link's target is another one.
func TestNoticesComeBeforeLooks(t *testing.T) {
	for _, name := range []string{"in place", "by rename", "by a link, as Kubernetes mounts a ConfigMap"} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			replace := replacements(s)[name]
			replace("first")
			s.follow(Config{Every: time.Hour, Settle: 5 * time.Millisecond, Notices: true}, "f")
			for _, text := range []string{"second", "third", "fourth"} {
				replace(text)
				s.settles(text)
			}
			if len(s.deaf) > 0 {
				t.Errorf("deaf: %v", <-s.deaf)
			}
		})
	}
}

// A folder that is not there yet is watched once it is.
func TestFolderThatReturnsIsWatchedAgain(t *testing.T) {
	s := newScene(t)
	s.write("f", "first")
	s.follow(Config{Every: 20 * time.Millisecond, Settle: 5 * time.Millisecond, Notices: true}, "f")
	s.must(os.RemoveAll(s.folder))
	s.comes("first", "no such file")
	s.must(os.Mkdir(s.folder, 0o700))
	s.write("f", "second")
	s.comes("second", "")
	if watched := s.notices.watcher.WatchList(); !slices.Equal(watched, []string{s.folder}) {
		t.Errorf("watched: %v, want %s", watched, s.folder)
	}
}

func TestFilesThatAreReadOnceAreNotFollowed(t *testing.T) {
	s := newScene(t)
	s.write("f", "first")
	s.follow(Config{Every: -1, Settle: time.Millisecond, Notices: true}, "f")
	s.write("f", "second")
	select {
	case err := <-s.told:
		t.Errorf("told %v with %q in force", err, s.Value())
	case <-time.After(50 * time.Millisecond):
	}
}

func TestLookedIsCalledAfterEachLook(t *testing.T) {
	s, values := newScene(t), []string(nil)
	s.write("f", "1")
	s.follow(Config{Every: -1, Looked: func() { values = append(values, s.Value()) }}, "f")
	s.Look()
	s.write("f", "2")
	s.Look()
	s.Look()
	if want := []string{"1", "1", "2"}; !slices.Equal(values, want) {
		t.Errorf("saw %q, want %q", values, want)
	}
}
