package discovery

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
	"github.com/signalbox-epp/signalbox/messages"
)

// scene is a file that is followed, and the pool that hears of it.
type scene struct {
	t        *testing.T
	path     string
	file     *File
	sets     chan messages.EndpointsDiscovered
	problems chan error
	refuse   chan struct{} // each item is one refusal of the pool
	version  uint64

	newest  uint64 // version that Tell took last; what is not newer is a repeat, which a pool drops
	repeats chan messages.EndpointsDiscovered
}

func (s *scene) Post(m messages.PoolMsg) bool {
	select {
	case <-s.refuse:
		return false
	default:
	}
	set := m.(messages.EndpointsDiscovered)
	if set.Version > s.newest {
		s.newest = set.Version
		s.sets <- set
		return true
	}
	select {
	case s.repeats <- set:
	default: // no test looks at so many
	}
	return true
}

func TestSetIsRepeatedForAPoolThatLostIt(t *testing.T) {
	s := newScene(t)
	s.write(endpointsAt("10.0.0.1"))
	s.run(Config{ResolveEvery: 5 * time.Millisecond})
	first := s.tells("10.0.0.1:8000")
	select {
	case again := <-s.repeats:
		values := cmp.AllowUnexported(messages.List[messages.EndpointSpec]{}, messages.Map[string, string]{})
		if diff := cmp.Diff(first, again, values); diff != "" {
			t.Errorf("repeated with a difference: %s", diff)
		}
	case <-time.After(patience):
		t.Error("the set was not repeated")
	}
}

func newScene(t *testing.T) *scene {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	return &scene{
		t: t, path: filepath.Join(t.TempDir(), "endpoints.yaml"), sets: make(chan messages.EndpointsDiscovered, 100),
		problems: make(chan error, 100), repeats: make(chan messages.EndpointsDiscovered, 1),
		refuse: make(chan struct{}, 100),
	}
}

func (s *scene) run(cfg Config) {
	s.t.Helper()
	cfg.Path, cfg.Problem = s.path, func(err error) { s.problems <- err }
	f, err := Open(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.file = f
	go f.Run(s.t.Context(), s)
	s.t.Cleanup(f.Close)
}

func (s *scene) write(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// rename puts a file in place the way editors and configuration tools do.
func (s *scene) rename(text string) {
	s.t.Helper()
	if err := errors.Join(os.WriteFile(s.path+".new", []byte(text), 0o644),
		os.Rename(s.path+".new", s.path)); err != nil {
		s.t.Fatal(err)
	}
}

// patience is how long anything is waited for: far longer than it takes, for a busy machine.
const patience = 20 * time.Second

// tells waits for a set with these addresses, and checks that it comes within a second, in which a change is in force.
func (s *scene) tells(want ...string) (m messages.EndpointsDiscovered) {
	s.t.Helper()
	machine, began := lateness.Begin(), time.Now()
	select {
	case m = <-s.sets:
	case <-time.After(patience):
		machine.End()
		s.t.Fatalf("nothing told, want %v", want)
	}
	machine.Within(s.t, "a set is told", time.Since(began), time.Second)
	got := make([]string, 0, len(want))
	for _, e := range m.Endpoints.All() {
		got = append(got, string(e.Address))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") || m.Version != s.version+1 {
		s.t.Errorf("version %d: %v, want version %d: %v", m.Version, got, s.version+1, want)
	}
	s.version = m.Version
	return m
}

func (s *scene) reports(want string) {
	s.t.Helper()
	select {
	case err := <-s.problems:
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			s.t.Errorf("reported %v, want %q", err, want)
		}
	case <-time.After(patience):
		s.t.Fatalf("nothing reported, want %q", want)
	}
}

// endpointsAt is a file with one entry for each address, all with port 8000.
func endpointsAt(addresses ...string) string {
	var b strings.Builder
	b.WriteString("endpoints:\n")
	for i, a := range addresses {
		fmt.Fprintf(&b, "- {name: e%d, address: %q, port: 8000}\n", i, a)
	}
	return b.String()
}

const hour = time.Hour

func TestSetIsToldAtStartAndAfterEachChange(t *testing.T) {
	s := newScene(t)
	s.write("endpoints:\n- {name: a, namespace: n, address: 10.0.0.1, port: 8000, labels: {role: decode}}\n")
	s.run(Config{LookEvery: hour}) // by the watch alone
	m := s.tells("10.0.0.1:8000")
	want := messages.EndpointSpec{
		Name: "a", Namespace: "n", Address: "10.0.0.1:8000",
		Labels: messages.MapOf(map[string]string{"role": "decode"}),
	}
	if !reflect.DeepEqual(m.Endpoints.At(0), want) {
		t.Errorf("got %+v, want %+v", m.Endpoints.At(0), want)
	}
	s.write(endpointsAt("10.0.0.2", "2001:db8::1"))
	s.tells("10.0.0.2:8000", "[2001:db8::1]:8000")
	s.rename(endpointsAt("10.0.0.3"))
	s.tells("10.0.0.3:8000")
	s.write("# the same\n" + endpointsAt("10.0.0.3"))
	s.write("endpoints: []")
	s.tells() // and nothing for the one before
}

func TestFileIsLookedAtWithoutAWatch(t *testing.T) {
	s := newScene(t)
	s.write(endpointsAt("10.0.0.1"))
	folder := t.TempDir()
	first := filepath.Join(folder, "v1", "e.yaml")
	other := filepath.Join(folder, "v2", "e.yaml")
	for path, address := range map[string]string{first: "10.0.0.1", other: "10.0.0.2"} {
		text := []byte(endpointsAt(address))
		if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	current := filepath.Join(folder, "current") // a link in the middle of the path, which no watch hears of
	s.path = filepath.Join(current, "e.yaml")
	if err := os.Symlink("v1", current); err != nil {
		t.Fatal(err)
	}
	s.run(Config{})
	s.tells("10.0.0.1:8000")
	if err := errors.Join(os.Symlink("v2", current+".new"), os.Rename(current+".new", current)); err != nil {
		t.Fatal(err)
	}
	s.tells("10.0.0.2:8000")
}

// Kubernetes mounts a ConfigMap as links: the file leads to ..data, and ..data to a folder with the time in its name.
func TestLinkSwapOfAKubernetesMount(t *testing.T) {
	s := newScene(t)
	folder := filepath.Dir(s.path)
	mount := func(version, text string) {
		t.Helper()
		dir := filepath.Join(folder, version)
		data := filepath.Join(folder, "..data")
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "endpoints.yaml"), []byte(text),
			0o644),
			os.Symlink(version, data+"_tmp"), os.Rename(data+"_tmp", data)); err != nil {
			t.Fatal(err)
		}
	}
	mount("..2026_1", endpointsAt("10.0.0.1"))
	if err := os.Symlink("..data/endpoints.yaml", s.path); err != nil {
		t.Fatal(err)
	}
	s.run(Config{LookEvery: hour})
	s.tells("10.0.0.1:8000")
	mount("..2026_2", endpointsAt("10.0.0.2"))
	s.tells("10.0.0.2:8000")
	if err := os.RemoveAll(filepath.Join(folder, "..2026_1")); err != nil {
		t.Fatal(err)
	}
	mount("..2026_3", endpointsAt("10.0.0.3"))
	s.tells("10.0.0.3:8000")
}

func TestBadFileKeepsTheLastGoodSet(t *testing.T) {
	s := newScene(t)
	s.write(endpointsAt("10.0.0.1"))
	s.run(Config{})
	s.tells("10.0.0.1:8000")
	s.rename("endpoints:\n- {name: a, address: 10.0.0.1}\n")
	s.reports("line 2: endpoints[0].port: missing")
	s.rename("endpoints:\n- {name: a, address: 10.0.0.1 }\n") // the same problem is reported once
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	s.reports("no such file")
	s.rename(endpointsAt("10.0.0.1"))
	s.reports("")
	s.rename(endpointsAt("10.0.0.2"))
	s.tells("10.0.0.2:8000")
}

// A file that is written slowly is told once it is whole, though after each line it is a good one.
func TestHalfAFileIsNotTold(t *testing.T) {
	s := newScene(t)
	s.write(endpointsAt("10.0.0.1"))
	s.run(Config{Fixed: true}) // the test looks
	s.tells("10.0.0.1:8000")
	text := endpointsAt("10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")
	for at, char := range text {
		if char == '\n' {
			s.write(text[:at+1])
			s.file.files.Look()
		}
	}
	s.file.files.Look()
	s.tells("10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.4:8000", "10.0.0.5:8000")
}

// Where the system gives no notice of changes, that is said, and the file is looked at all the same.
func TestMissingNoticesAreReported(t *testing.T) {
	s := newScene(t)
	s.write(endpointsAt("10.0.0.1"))
	s.run(Config{})
	s.tells("10.0.0.1:8000")
	s.file.words <- word{aboutNotices, errors.New("too many open files")}
	s.reports("the file is looked at every 500ms, for the system gives no notice of changes: too many open files")
	s.rename(endpointsAt("10.0.0.2"))
	s.tells("10.0.0.2:8000")
	s.file.words <- word{aboutNotices, nil}
	s.reports("")
}

func TestStart(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no path":    {Config{}, "no path"},
		"no file":    {Config{Path: filepath.Join(t.TempDir(), "none.yaml")}, "there is no file /"},
		"a folder":   {Config{Path: t.TempDir()}, "not a regular file"},
		"a bad file": {Config{Path: "parse_test.go"}, "line "},
	} {
		if _, err := Open(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestFileMayBeEmptyAtFirst(t *testing.T) {
	s := newScene(t)
	s.write("endpoints: []\n")
	s.run(Config{})
	s.tells()
	s.rename(endpointsAt("10.0.0.1"))
	s.tells("10.0.0.1:8000")
}

func TestFixedFileIsReadOnce(t *testing.T) {
	s := newScene(t)
	s.write(endpointsAt("10.0.0.1"))
	s.run(Config{Fixed: true, LookEvery: time.Millisecond, ResolveEvery: time.Millisecond})
	s.tells("10.0.0.1:8000")
	s.write(endpointsAt("10.0.0.2"))
	select {
	case m := <-s.sets:
		t.Errorf("told %+v", m)
	case <-time.After(400 * time.Millisecond):
	}
}

func TestPoolThatRefusesIsToldAgain(t *testing.T) {
	s := newScene(t)
	s.write(endpointsAt("10.0.0.1"))
	s.refuse <- struct{}{}
	s.refuse <- struct{}{}
	s.run(Config{LookEvery: 10 * time.Millisecond})
	s.tells("10.0.0.1:8000")
}

func TestCloseBeforeRun(t *testing.T) {
	s := newScene(t)
	s.write(endpointsAt("10.0.0.1"))
	f, err := Open(Config{Path: s.path})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	f.Run(t.Context(), s)
	f.Close()
	if len(s.sets) != 0 {
		t.Error("a closed one told a set")
	}
}
