// Package kube tells the pool which endpoints there are, from the pods of a Kubernetes namespace: those that an
// InferencePool selects, or those that a label selector of the command line selects.
//
// It owns the watches of the API server and what they found last. While the API server is away, forbids something or
// answers nonsense, the last known set stays in force. It never writes to the API server, and it asks for nothing
// outside of its namespace.
package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/signalbox-epp/signalbox/adapters/discovery"
	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
	"github.com/signalbox-epp/signalbox/messages"
)

// Config says which pods are followed. Either Pool is set or Target.
type Config struct {
	Cluster   *rest.Config // how the API server is reached
	Namespace string       // of the pool and of its pods
	Pool      Pool         // the object that selects pods; zero = Target does
	Target    Target
	Cache     string // file that keeps the last known set, for a start without the API server; "" = none

	// Problem, if not nil, is told of what goes wrong, of each thing once, and nil when nothing is wrong any more. It
	// must not block.
	Problem func(error)
	// Told, if not nil, is told of each set that the pool took. It must not block.
	Told func(discovery.Change)
	// Deprecated, if not nil, is told of what should be written otherwise, of each object once. It must not block.
	Deprecated func(string)

	extras  func(Extras) bool         // nil = nobody asks for them
	objects func(Kind, []byte, error) // nil = nobody asks for them
}

// Pool names an InferencePool.
type Pool struct{ Name, Group string }

// DefaultGroup is the API group of InferencePools.
const DefaultGroup = "inference.networking.k8s.io"

// Discovery tells a pool the pods that an InferencePool or a selector selects. All fields but cfg, client, missing,
// concern, extrasTold, metrics and life belong to the goroutine of Run.
type Discovery struct {
	cfg     Config
	client  *client
	events  chan event
	running sync.WaitGroup // of the followers
	views
	out      out
	problems problems
	missing  atomic.Pointer[string] // what is not known yet; "" = nothing
	concern  atomic.Pointer[string] // what is wrong with what endpoints come from; "" = nothing
	// extrasTold is whether the objectives and rewrites that there were at the start were told, as far as they can be
	// listed.
	extrasTold atomic.Bool
	metrics    *metrics
	life       *discovery.Life
}

// Open checks a configuration. It asks the API server nothing, which may come later than this process.
func Open(cfg Config) (*Discovery, error) {
	c, err := newClient(cfg.Cluster, cfg.Namespace)
	if err != nil {
		return nil, err
	}
	d := &Discovery{cfg: cfg, client: c, events: make(chan event), metrics: newMetrics(), life: discovery.NewLife()}
	d.out.cache, d.objects.wanted = make(chan *cacheForm, 1), make(chan []Kind, 1)
	d.problems = newProblems(cfg.Problem, d.metrics)
	if cfg.Pool.Name == "" {
		if err := cfg.Target.Check(); err != nil {
			return nil, err
		}
		d.pool = poolView{known: true, there: true, target: &cfg.Target}
	}
	d.noteMissing()
	return d, nil
}

// Collectors returns the metrics of the discovery.
func (d *Discovery) Collectors() []prometheus.Collector { return d.metrics.collectors() }

// Known returns what is not known yet; nil = the pool is there, its pods were listed, and the pool actor was told, as
// were objectives and rewrites to whom they are of use.
func (d *Discovery) Known() error {
	if text := *d.missing.Load(); text != "" {
		return errors.New(text)
	}
	if d.cfg.extras != nil && !d.extrasTold.Load() {
		return errors.New("objectives and rewrites of namespace " + d.cfg.Namespace + " are not known yet")
	}
	return nil
}

// Concern returns what is wrong with what endpoints come from, and for how long the API server has not said anything of
// them; "" = nothing. The last known set serves meanwhile.
func (d *Discovery) Concern() string {
	text := *d.concern.Load()
	if stale := d.metrics.staleFor(); text != "" && stale > 0 {
		text += fmt.Sprintf("; not followed for %v", stale.Round(time.Second))
	}
	return text
}

// Run tells the pool the set of endpoints, and again whenever the set changes, until ctx is done or Close is called.
// It runs once; a second call returns at once.
func (d *Discovery) Run(ctx context.Context, to messages.Port[messages.PoolMsg]) {
	d.life.Run(ctx, func(ctx context.Context) {
		d.out.to = to
		defer d.client.closeIdle()
		supervise.KeepRunning(ctx, "discovery", d.loopOnce, d.reset)
	})
}

// loopOnce runs the loop until ctx is done or it panics, and ends what runs beside it.
func (d *Discovery) loopOnce(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer d.running.Wait()
	defer cancel()
	d.loop(ctx)
}

// reset has the loop begin anew after a panic, and says it. The set that the pool took last stays, and what is known of
// the InferencePool and of the objects beside it.
func (d *Discovery) reset(err error) {
	d.panicked(err)
	d.problems = newProblems(d.cfg.Problem, d.metrics)
	d.problems.set(aboutPanic, &problem{reason: aboutPanic, text: err.Error(), since: time.Now(), needed: true,
		stale: true})
	d.noteMissing()
	d.pool.follower, d.pods, d.out.dirty = nil, podView{}, false
	d.objects.by = nil
}

// aboutPanic is what the problem is about that the loop has panicked.
const aboutPanic = "panic"

// Close ends Run and waits for it.
func (d *Discovery) Close() { d.life.Close() }

const (
	// settle is how long changes are gathered into one set, because the pool looks at all endpoints for each set.
	settle = 5 * time.Millisecond
	// askAgain is how soon a pool that refused a set is told again.
	askAgain = 50 * time.Millisecond
	// repeatEvery is how often the set is told again, to a pool that lost it in a restart.
	repeatEvery = 30 * time.Second
)

// loop is the loop of Run.
func (d *Discovery) loop(ctx context.Context) {
	again, due, gather := time.NewTicker(repeatEvery), time.NewTimer(time.Hour), time.NewTicker(gatherFor)
	defer again.Stop()
	defer due.Stop()
	defer gather.Stop()
	waits := false // due is set
	schedule := func(after time.Duration) {
		if d.out.untold() && !waits {
			due.Reset(after)
			waits = true
		}
	}
	if d.out.version == 0 {
		d.startFromCache()
		schedule(askAgain)
	}
	d.begin(ctx)
	d.wantObjects(ctx, d.objects.asked) // after a panic
	d.noteMissing()
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-d.events:
			d.take(ctx, w)
			schedule(settle)
		case <-due.C:
			waits = false
			d.tell()
			schedule(askAgain)
		case <-again.C:
			d.out.repeat()
			d.renewCache()
		case kinds := <-d.objects.wanted:
			d.wantObjects(ctx, kinds)
		case <-d.objects.due(gather):
			d.tellObjects()
		}
		d.noteMissing()
	}
}

func (d *Discovery) begin(ctx context.Context) {
	if d.cfg.Cache != "" {
		d.beside(ctx, "writing the cache", d.writeCaches)
	}
	if d.cfg.Pool.Name == "" {
		d.extrasTold.Store(true)
		d.selectPods(ctx)
		return
	}
	d.pool.follower = d.follow(ctx, inferencePools(d.cfg.Pool.Group), selection{name: d.cfg.Pool.Name})
	d.followExtras(ctx)
}

// take takes what a follower tells. One that was stopped may still tell something, which does not count.
func (d *Discovery) take(ctx context.Context, w event) {
	if kind := d.objects.by[w.follower]; kind != nil {
		d.takeObject(ctx, w, kind)
		return
	}
	if group := d.extras.lookOf(w.follower); group >= 0 {
		d.takeLook(ctx, w, group)
		return
	}
	view := d.extras.by[w.follower]
	if view == nil && w.follower != d.pool.follower && w.follower != d.pods.follower {
		return
	}
	about := w.follower.source.of.call(w.verb)
	switch {
	case w.kind == failed && view != nil && reasonOf(w.err) == "not-found":
		d.notInstalled(ctx, w, view)
	case w.kind == failed:
		d.problems.note(about, w.follower.source.of, fmt.Errorf("%w; endpoints that stay in force: %d", w.err,
			len(d.out.set)))
		if view != nil {
			d.extraFailed(view, w.err)
		}
	case w.kind == answered:
		d.problems.end(about)
		if w.verb == "watch" { // which begins once what was listed is taken
			d.problems.end(w.follower.source.of.call(following))
		}
	case view != nil:
		d.takeExtra(w, view)
	case w.follower == d.pool.follower:
		d.takePool(ctx, w)
	default:
		d.takePods(w)
	}
}

// noteMissing notes what is not known yet, and what is wrong.
func (d *Discovery) noteMissing() {
	text := ""
	switch pool := fmt.Sprintf("InferencePool %s/%s", d.cfg.Namespace, d.cfg.Pool.Name); {
	case d.out.cached: // what it says holds for now, without objectives and rewrites if the API server does not answer
		if d.problems.callFails() || time.Since(d.extras.began) > extrasPatience {
			d.extrasTold.Store(true)
		}
	case !d.pool.known:
		text = pool + " is not known yet"
	case !d.pool.there:
		text = "there is no " + pool
	case d.pool.target == nil:
		text = pool + " is invalid"
	case !d.out.known:
		text = "the pods of namespace " + d.cfg.Namespace + " are not known yet"
	}
	first := d.problems.first()
	if text != "" && first != "" {
		text += ": " + first
	}
	note(&d.missing, text)
	note(&d.concern, first)
}

func note(to *atomic.Pointer[string], text string) {
	if before := to.Load(); before == nil || *before != text {
		to.Store(&text)
	}
}
