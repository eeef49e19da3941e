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
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/signalbox-epp/signalbox/messages"
)

// Config is how a file is followed. The zero value of a field means its default.
type Config struct {
	Path         string        // of the file; required
	Resolver     Resolver      // of host names; the system's by default
	ResolveEvery time.Duration // host names are looked up again; 30 s by default
	// Answers says whether a server takes a connection; by default one is opened. It is asked where a name has addresses of IPv4 and of
	// IPv6, to choose between the two.
	Answers   func(context.Context, netip.AddrPort) bool
	LookEvery time.Duration // the file is looked at for a change that no notice told of; 500 ms by default
	Fixed     bool          // the file is read at start only; names are still looked up again

	// Problem, if not nil, hears of a bad file and of names that do not resolve, each once, and nil when none is left.
	// It must not block.
	Problem func(error)
	// Doubles, if not nil, hears of entries that a file names twice, whenever they are others. It must not block.
	Doubles func(Problems)
	// Told, if not nil, hears of each set that the pool took. It must not block.
	Told func(Change)
}

// namesWait is how long a changed set waits for names that were never looked up before; then it is told without them.
const namesWait = 500 * time.Millisecond

// File tells a pool the endpoints of a file.
type File struct {
	cfg    Config
	pool   messages.Port[messages.PoolMsg]
	source source
	names  *names

	entries  []Entry
	dirty    bool      // the set may differ from what was told
	found    time.Time // when the set that may differ was there
	told     []messages.EndpointSpec
	version  uint64            // of what the pool took last
	toldFrom time.Time         // when that was there
	problems map[string]string // by what they are about: a host, or "" for the file
	doubles  string            // what was said of them last

	mu     sync.Mutex
	ran    chan struct{} // closed when Run has returned; nil before Run
	ctx    context.Context
	cancel context.CancelFunc
}

// Open reads the file once. A bad file is an error that names every problem with its line; so is none. Run
// tells the pool.
func Open(cfg Config, pool messages.Port[messages.PoolMsg]) (*File, error) {
	if cfg.Path == "" {
		return nil, errors.New("file discovery: no path")
	}
	path, err := filepath.Abs(cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("file discovery: %w", err)
	}
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	if cfg.Answers == nil {
		cfg.Answers = connects
	}
	cfg.ResolveEvery = cmp.Or(cfg.ResolveEvery, 30*time.Second)
	cfg.LookEvery = cmp.Or(cfg.LookEvery, 500*time.Millisecond)
	f := &File{cfg: cfg, pool: pool, source: source{path: path}, names: newNames(&cfg), problems: map[string]string{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	entries, doubles, err := f.source.read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("file discovery: there is no file %s; a file without endpoints says endpoints: []", path)
	}
	if err != nil {
		return nil, fmt.Errorf("file discovery: %w", err)
	}
	f.entries = entries
	f.noteDoubles(doubles)
	return f, nil
}

// Run tells the pool the set, and again whenever it changes, until ctx is done or Close is called. It runs once.
func (f *File) Run(ctx context.Context) {
	f.mu.Lock()
	if f.ran != nil {
		f.mu.Unlock()
		return
	}
	ran := make(chan struct{})
	f.ran = ran
	f.mu.Unlock()
	defer close(ran)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	if !f.cfg.Fixed {
		f.report("", f.source.watch())
	}
	defer f.source.close()
	defer f.names.running.Wait()
	defer cancel()
	f.follow(ctx)
}

// Close ends Run and waits for it.
func (f *File) Close() {
	f.cancel()
	f.mu.Lock()
	ran := f.ran
	if ran == nil { // it shall not begin any more
		f.ran = make(chan struct{})
		close(f.ran)
	}
	f.mu.Unlock()
	if ran != nil {
		<-ran
	}
}

// follow is the loop of Run; all state but mu and ran belongs to it.
func (f *File) follow(ctx context.Context) {
	look, resolve := time.NewTicker(f.cfg.LookEvery), time.NewTicker(f.cfg.ResolveEvery)
	defer look.Stop()
	defer resolve.Stop()
	change, wait := newDebounce(), time.NewTimer(namesWait)
	defer change.timer.Stop()
	defer wait.Stop()
	waited := false
	f.names.want(ctx, f.entries)
	f.changed(time.Now())
	f.tell(waited)
	for {
		events, errs := f.source.events()
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			if f.concerns(e) || f.source.changed() {
				change.heard(time.Now())
			}
		case err := <-errs:
			if err != nil { // words were lost
				change.heard(time.Now())
			}
		case <-look.C:
			if !f.cfg.Fixed && f.source.changed() {
				change.heard(time.Now())
			}
		case <-change.timer.C:
			change.over()
			f.reload(ctx)
			waited = false
			wait.Reset(namesWait)
		case <-resolve.C:
			f.names.again(ctx)
			f.tellAgain()
		case <-wait.C:
			waited = true
			if f.dirty {
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

// concerns says whether an event is about the file itself.
func (f *File) concerns(e fsnotify.Event) bool {
	return e.Op != fsnotify.Chmod && filepath.Base(e.Name) == filepath.Base(f.source.path)
}

// reload reads the file. A bad one leaves the set as it is.
func (f *File) reload(ctx context.Context) {
	began := time.Now()
	entries, doubles, err := f.source.read()
	if err != nil {
		f.report("", fmt.Errorf("the last good set stays in force: %w", err))
		_ = f.source.watch() // looking is enough
		return
	}
	f.report("", f.source.watch())
	f.noteDoubles(doubles)
	f.changed(began)
	f.entries = entries
	f.names.want(ctx, entries)
	for host := range f.problems {
		if host != "" && f.names.known[host] == nil {
			f.report(host, nil)
		}
	}
}

// changed notes that the set may differ, from this time on. Of what the pool refused the first time counts.
func (f *File) changed(at time.Time) {
	if !f.dirty || !f.names.complete() {
		f.found = at
	}
	f.dirty = true
}

// tell tells the pool the set if it differs from what it took last. Names that were never looked up hold it back, unless
// they were waited for. A pool that refuses is told again: every turn of the loop comes here.
func (f *File) tell(waited bool) {
	if !f.dirty || !waited && !f.names.complete() {
		return
	}
	set := f.set()
	if f.version > 0 && reflect.DeepEqual(set, f.told) {
		f.dirty = false
		return
	}
	if f.pool.Post(messages.EndpointsDiscovered{Version: f.version + 1, Found: f.found, Endpoints: messages.ListOf(set...)}) {
		f.version++
		if f.cfg.Told != nil {
			f.cfg.Told(difference(f.told, set))
		}
		f.told, f.toldFrom, f.dirty = set, f.found, false
	}
}

// tellAgain repeats what the pool took last. A pool that has it drops it; one that lost it in a panic gets it back.
func (f *File) tellAgain() {
	if f.version > 0 {
		f.pool.Post(messages.EndpointsDiscovered{Version: f.version, Found: f.toldFrom, Endpoints: messages.ListOf(f.told...)})
	}
}

// set is every address of every entry.
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

// report says what is wrong, once; nil = nothing any more.
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
	if f.cfg.Problem != nil && (!known || about == "" && before != err.Error()) {
		f.cfg.Problem(err)
	}
}
