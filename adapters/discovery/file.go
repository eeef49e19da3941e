package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/adapters/files"
	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
	"github.com/signalbox-epp/signalbox/messages"
)

// Config says how a file is followed. The zero value of a field means its default.
type Config struct {
	Path         string        // of the file; required
	Text         []byte        // what the file says, which then only has its name from Path; nil = it is read
	Resolver     Resolver      // of host names; that of the system by default
	ResolveEvery time.Duration // time between two lookups of a host name; 30 s by default
	// Answers reports whether a server takes a connection; by default one is opened. It is called where a name has
	// addresses of IPv4 and of IPv6, to choose between the two.
	Answers   func(context.Context, netip.AddrPort) bool
	LookEvery time.Duration // time between two looks at the file, for a change without a notice; 500 ms by default
	Fixed     bool          // the file is read at the start only; host names are still looked up again

	// Problem, if not nil, is told of a bad file, of names that do not resolve, and of a system that gives no notices
	// of changes: of each once, and nil when no problem is left. It must not block.
	Problem func(error)
	// Warnings, if not nil, is told of what is doubtful in a file, whenever that differs from the last time. It must
	// not block.
	Warnings func(Warnings)
	// Told, if not nil, is told of each set that the pool took. It must not block.
	Told func(Change)
}

// settle is how long the contents of a changed file must stay the same before they count, because the file may be half
// written.
const settle = 50 * time.Millisecond

// namesWait is how long a changed set waits for names that were never looked up before. Then the pool is told the set
// without them.
const namesWait = 500 * time.Millisecond

// File tells a pool the endpoints of a file. All fields but life and bad belong to the goroutine of Run.
type File struct {
	cfg   Config
	pool  messages.Port[messages.PoolMsg] // given to Run
	files *files.Follower[listing]
	words chan word // from the goroutine of files
	names *names

	entries  []Entry // of the last good file
	next     pending
	told     told
	problems map[string]string // text of each problem, by what it is about: a host, or one of the constants below
	warnings Warnings          // those that were reported last

	bad  atomic.Pointer[string] // why the file is not in force; nil = it is
	life *Life
}

// What problems are about, apart from hosts.
const (
	aboutFile    = ""
	aboutNotices = "notices of changes" // no host has this name
)

// listing is what a file says.
type listing struct {
	entries  []Entry
	warnings Warnings
	began    time.Time // when it was read
}

// word is what the follower of the file reports. With aboutFile and no error, a new listing is in force. Otherwise err
// is the problem of about, and nil says that the problem is over.
type word struct {
	about string
	err   error
}

// pending reports whether the pool has yet to be told of a set.
type pending struct {
	dirty bool      // the set may differ from what was told
	found time.Time // when the change was found; it means something only while dirty
}

// told is the set that the pool took last.
type told struct {
	set     []messages.EndpointSpec
	version uint64 // counts the sets; 0 = it took none
	found   time.Time
}

// Open reads the file once. If the file is missing or bad, the error names every problem with its line. Run tells a
// pool what was read.
func Open(cfg Config) (*File, error) {
	if cfg.Path == "" {
		return nil, errors.New("file discovery: no path")
	}
	path, err := filepath.Abs(cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("file discovery: %w", err)
	}
	if cfg.Text != nil {
		path, cfg.Fixed = cfg.Path, true
	}
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	if cfg.Answers == nil {
		cfg.Answers = connects
	}
	cfg.ResolveEvery = cmp.Or(cfg.ResolveEvery, 30*time.Second)
	cfg.LookEvery = cmp.Or(cfg.LookEvery, 500*time.Millisecond)
	f := &File{cfg: cfg, words: make(chan word), names: newNames(&cfg), problems: map[string]string{}, life: NewLife()}
	if f.files, err = f.follower(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("file discovery: there is no file %s; a file without endpoints says endpoints: []", path)
	}
	if err != nil {
		return nil, fmt.Errorf("file discovery: %w", err)
	}
	read := f.files.Value()
	f.entries = read.entries
	f.noteWarnings(read.warnings)
	return f, nil
}

// follower reads the file and returns its follower. Once the follower is started, it reports changes to the loop of
// Run.
func (f *File) follower(path string) (*files.Follower[listing], error) {
	tell := func(about string) func(error) {
		return func(err error) {
			select {
			case f.words <- word{about, err}:
			case <-f.life.Done():
			}
		}
	}
	cfg := files.Config{
		Paths: []string{path}, MaxBytes: strictyaml.MaxBytes, Every: f.cfg.LookEvery, Settle: settle, Notices: true,
		Told: tell(aboutFile), Deaf: tell(aboutNotices),
	}
	if f.cfg.Fixed {
		cfg.Every = -1
	}
	if f.cfg.Text != nil {
		cfg.Read = func(string, int64) ([]byte, error) { return f.cfg.Text, nil }
	}
	return files.New(cfg, func(texts []files.Text) (listing, error) {
		read, text := listing{began: time.Now()}, texts[0]
		if text.Err != nil {
			return read, text.Err
		}
		var err error
		if read.entries, read.warnings, err = Parse(text.Data); err != nil {
			return read, fmt.Errorf("%s:\n%w", text.Path, err)
		}
		return read, nil
	})
}

// Run tells the pool the set of endpoints, and again whenever the set changes, until ctx is done or Close is called.
// It runs once; a second call returns at once.
func (f *File) Run(ctx context.Context, pool messages.Port[messages.PoolMsg]) {
	f.life.Run(ctx, func(ctx context.Context) {
		f.pool = pool
		f.files.Start()
		defer f.files.Close()
		defer f.names.running.Wait()
		supervise.KeepRunning(ctx, "following "+f.cfg.Path, f.follow, func(err error) {
			if f.cfg.Problem != nil {
				f.cfg.Problem(supervise.WithStack(err))
			}
		})
	})
}

// Close ends Run and waits for it.
func (f *File) Close() { f.life.Close() }

// follow is the loop of Run.
func (f *File) follow(ctx context.Context) {
	again, resolve := time.NewTicker(f.cfg.LookEvery), time.NewTicker(f.cfg.ResolveEvery)
	defer again.Stop()
	defer resolve.Stop()
	wait := time.NewTimer(namesWait)
	defer wait.Stop()
	waited := false
	f.names.want(ctx, f.entries)
	f.changed(time.Now())
	f.tell(waited)
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-f.words:
			if w.about == aboutFile && w.err == nil {
				f.reload(ctx)
				waited = false
				wait.Reset(namesWait)
			} else {
				f.reportWord(w)
			}
		case <-again.C: // wakes the loop, so that a pool that refused is told again
		case <-resolve.C:
			f.names.again(ctx)
			f.tellAgain()
		case <-wait.C:
			waited = true
			if f.next.dirty {
				f.changed(time.Now())
			}
		case found := <-f.names.found:
			f.changed(time.Now())
			err := f.names.take(ctx, found)
			if err != nil {
				err = fmt.Errorf("%w; endpoints in the set: %d", err, len(f.set()))
			}
			f.report(found.host, err)
		}
		f.tell(waited)
	}
}

// reportWord reports a problem of the file, which leaves the set as it is, or of the notices of its changes.
func (f *File) reportWord(w word) {
	switch {
	case w.err == nil:
		f.report(w.about, nil)
	case w.about == aboutFile:
		f.noteFile(w.err)
		f.report(w.about, fmt.Errorf("the last good set stays in force: %w", w.err))
	default:
		f.report(w.about, fmt.Errorf("the file is looked at every %v, for the system gives no notice of changes: %w",
			f.cfg.LookEvery, w.err))
	}
}

// reload puts the new listing of the file in force.
func (f *File) reload(ctx context.Context) {
	read := f.files.Value()
	f.noteFile(nil)
	f.report(aboutFile, nil)
	f.noteWarnings(read.warnings)
	f.changed(read.began)
	f.entries = read.entries
	f.names.want(ctx, read.entries)
	for about := range f.problems {
		if about != aboutFile && about != aboutNotices && f.names.known[about] == nil {
			f.report(about, nil)
		}
	}
}

// changed notes that the set may differ from what the pool has. If the pool has refused the change, the time at which
// it was first found stays.
func (f *File) changed(at time.Time) {
	if !f.next.dirty || !f.names.complete() {
		f.next.found = at
	}
	f.next.dirty = true
}

// tell tells the pool the set if it differs from the one that the pool took last. Names that were never looked up hold
// it back, unless waited says that they had their time. If the pool refuses, the next turn of the loop tries again.
func (f *File) tell(waited bool) {
	if !f.next.dirty || !waited && !f.names.complete() {
		return
	}
	set := f.set()
	if f.told.version > 0 && reflect.DeepEqual(set, f.told.set) {
		f.next.dirty = false
		return
	}
	next := told{set: set, version: f.told.version + 1, found: f.next.found}
	if f.pool.Post(next.message()) {
		if f.cfg.Told != nil {
			f.cfg.Told(Difference(f.told.set, set))
		}
		f.told, f.next.dirty = next, false
	}
}

func (t *told) message() messages.EndpointsDiscovered {
	return messages.EndpointsDiscovered{Version: t.version, Found: t.found, Endpoints: messages.ListOf(t.set...)}
}

// tellAgain repeats the set that the pool took last. A pool that has it ignores it; a pool that lost it in a restart
// gets it back.
func (f *File) tellAgain() {
	if f.told.version > 0 {
		f.pool.Post(f.told.message())
	}
}

// set returns an endpoint for every address of every entry.
func (f *File) set() []messages.EndpointSpec {
	set := make([]messages.EndpointSpec, 0, len(f.entries))
	for _, e := range f.entries {
		addresses := []netip.Addr{e.IP}
		if e.Host != "" {
			addresses = f.names.known[e.Host].at(e.Port)
		}
		for _, a := range addresses {
			set = append(set, messages.EndpointSpec{
				Name: e.Name, Namespace: e.Namespace, Labels: messages.MapOf(e.Labels),
				Address: messages.Address(netip.AddrPortFrom(a, e.Port).String()),
			})
		}
	}
	return set
}

// Concern returns why what the file holds is not in force; "" = it is.
func (f *File) Concern() string {
	if bad := f.bad.Load(); bad != nil {
		return "the endpoints of before stay in force, for what the file holds now is bad: " + *bad
	}
	return ""
}

// Collectors returns the metrics of the file.
func (f *File) Collectors() []prometheus.Collector {
	return []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "signalbox_endpoints_file_last_read_successful",
		Help: "1 if what was read of the endpoints file last is in force, 0 if it was refused.",
	}, func() float64 {
		if f.bad.Load() != nil {
			return 0
		}
		return 1
	})}
}

// noteFile notes whether what the file holds is in force.
func (f *File) noteFile(err error) {
	if err == nil {
		f.bad.Store(nil)
		return
	}
	first, _, _ := strings.Cut(strings.ReplaceAll(err.Error(), ":\n", ": "), "\n") // readiness has a line for it
	f.bad.Store(&first)
}

// report reports a problem, once; err is nil when the problem is over.
func (f *File) report(about string, err error) {
	before, known := f.problems[about]
	if err == nil {
		delete(f.problems, about)
		if known && len(f.problems) == 0 && f.cfg.Problem != nil {
			f.cfg.Problem(nil)
		}
		return
	}
	f.problems[about] = err.Error()
	// The text of a lookup's error may differ each time; that of a file means another problem.
	if f.cfg.Problem != nil && (!known || about == aboutFile && before != err.Error()) {
		f.cfg.Problem(err)
	}
}
