package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
)

// event is what a follower tells the loop of Run.
type event struct {
	follower *follower
	kind     eventKind
	verb     string            // list or watch, of answered; of failed also find and following
	objects  []*object         // all of a list, or the one that changed
	texts    []json.RawMessage // of objects, if they are whole
	found    resource          // of a kind that was found
	there    map[string]bool   // resources of a group that are installed
	err      error             // of a failure, or of a look
}

type eventKind uint8

const (
	listed   eventKind = 1 + iota // the objects are all that there are
	stored                        // the object is new or changed
	removed                       // the object is gone
	failed                        // a list or a watch failed; what was told before stays
	answered                      // a list or a watch was answered
	found                         // the kind is that of a resource
	looked                        // which resources of a group are installed
)

// follower keeps one list and watch going, by a reflector, and tells the loop of Run what comes.
type follower struct {
	source *source
	events chan<- event
	cancel context.CancelFunc
}

// mostPause is the longest time between two tries: under the two seconds in which what comes into being is to be known.
const mostPause = 1900 * time.Millisecond

// backoff is the time between two tries of a reflector, jitter included. It is short for all resources: an objective
// whose definition or right comes back counts as soon as a pod does. What may never be installed is asked for less
// often.
func backoff(r resource) *wait.Backoff {
	longest := time.Second
	if r.optional {
		longest = mostPause * 2 / 3
	}
	return &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 10, Cap: longest, Jitter: 0.5}
}

// follow starts a follower. It runs until it is stopped.
func (d *Discovery) follow(ctx context.Context, r resource, s selection) *follower {
	f := &follower{source: d.client.source(r, s), events: d.events}
	// What goes wrong reaches the log by events, once, and not by klog at each try.
	quiet := logr.Discard()
	ctx, f.cancel = context.WithCancel(klog.NewContext(ctx, quiet))
	reflect := func(ctx context.Context) {
		cache.NewReflectorWithOptions(&listWatch{f}, r.one(), &teller{f, ctx}, cache.ReflectorOptions{
			Logger: &quiet, Name: r.String(), TypeDescription: r.String(), Backoff: backoff(r),
		}).RunWithContext(ctx)
	}
	d.running.Go(func() {
		supervise.KeepRunning(ctx, following+" "+r.String(), reflect, func(err error) {
			f.tell(ctx, event{kind: failed, verb: following, err: err})
		})
	})
	return f
}

// following is what a reflector does, apart from its calls.
const following = "following"

// stop ends the follower without waiting for it. What it has told may still be on its way.
func (f *follower) stop() {
	if f != nil {
		f.cancel()
	}
}

func (f *follower) tell(ctx context.Context, w event) {
	w.follower = f
	select {
	case f.events <- w:
	case <-ctx.Done():
	}
}

// note tells how a list or a watch went, and returns its error, if any.
func (f *follower) note(ctx context.Context, verb string, err error) error {
	if err != nil {
		f.tell(ctx, event{kind: failed, verb: verb, err: fmt.Errorf("%s %s: %w", verb, f.source.of, err)})
		return err
	}
	f.tell(ctx, event{kind: answered, verb: verb})
	return nil
}

// listWatch is the source of a reflector. It notes how each call went.
type listWatch struct{ f *follower }

// ListWithContext lists the objects of the source.
func (l *listWatch) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	all, err := l.f.source.list(ctx, o, func(err error) {
		_ = l.f.note(ctx, "list", err) // it goes on
	})
	return all, l.f.note(ctx, "list", err)
}

// WatchWithContext watches the objects of the source.
func (l *listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := l.f.source.watch(ctx, o, func(err error) {
		_ = l.f.note(ctx, "watch", err) // the reflector gets the event too
	})
	if l.f.note(ctx, "watch", err) != nil {
		return nil, err
	}
	return w, nil
}

// List is ListWithContext without a context; the reflector does not call it.
func (l *listWatch) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

// Watch is WatchWithContext without a context; the reflector does not call it.
func (l *listWatch) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

// IsWatchListSemanticsUnSupported makes the reflector list before it watches, which every API server understands.
func (l *listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// teller is the store of a reflector: it keeps nothing and tells everything.
type teller struct {
	f   *follower
	ctx context.Context
}

// Add tells of a new object.
func (t *teller) Add(o any) error { return t.one(stored, o) }

// Update tells of a changed object.
func (t *teller) Update(o any) error { return t.one(stored, o) }

// Delete tells of an object that is gone.
func (t *teller) Delete(o any) error { return t.one(removed, o) }

func (t *teller) one(kind eventKind, o any) error {
	w := event{kind: kind}
	if err := w.add(o); err != nil {
		return fmt.Errorf("%s: %w", t.f.source.of, err)
	}
	t.f.tell(t.ctx, w)
	return nil
}

// add adds an object.
func (w *event) add(o any) error {
	switch x := o.(type) {
	case *object:
		w.objects = append(w.objects, x)
	case *whole:
		w.objects, w.texts = append(w.objects, &x.object), append(w.texts, x.text)
	default:
		return fmt.Errorf("got a %T, want an object", o)
	}
	return nil
}

// Replace tells of all objects that there are.
func (t *teller) Replace(list []any, _ string) error {
	w := event{kind: listed, objects: make([]*object, 0, len(list))}
	for _, o := range list {
		if err := w.add(o); err != nil {
			return fmt.Errorf("%s: %w", t.f.source.of, err)
		}
	}
	t.f.tell(t.ctx, w)
	return nil
}

// Resync has nothing to do.
func (t *teller) Resync() error { return nil }

// A panic ends neither the process nor what is known. Whatever runs here is begun anew, on a goroutine of this package.
// What client-go runs on one of its own, which decodes what watches bring, gets decoders that do not panic.

// isPanic reports whether an error is of a panic. That of a watch is the text alone.
func isPanic(err error) bool {
	var of *supervise.Panic
	text := err.Error()
	return errors.As(err, &of) || strings.Contains(text, undecodable) && strings.Contains(text, supervise.HasPanicked)
}

// beside runs a function beside the loop of Run, as supervise.KeepRunning does.
func (d *Discovery) beside(ctx context.Context, what string, do func(context.Context)) {
	d.running.Go(func() { supervise.KeepRunning(ctx, what, do, d.panicked) })
}

// panicked counts a panic and says it with its stack.
func (d *Discovery) panicked(err error) {
	d.metrics.errors.WithLabelValues("", "panic").Inc()
	if d.cfg.Problem != nil {
		d.cfg.Problem(supervise.WithStack(err))
	}
}

// guarded gives decoders whose panics are errors.
type guarded struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes returns those of the serializer, with guarded decoders of the events of watches.
func (g guarded) SupportedMediaTypes() []runtime.SerializerInfo {
	all := slices.Clone(g.NegotiatedSerializer.SupportedMediaTypes())
	for i := range all {
		if of := all[i].StreamSerializer; of != nil {
			stream := *of
			stream.Serializer = guardedSerializer{of.Serializer, guardedDecoder{of.Serializer}}
			all[i].StreamSerializer = &stream
		}
	}
	return all
}

// DecoderToVersion returns the decoder of the serializer, guarded.
func (g guarded) DecoderToVersion(d runtime.Decoder, v runtime.GroupVersioner) runtime.Decoder {
	return guardedDecoder{g.NegotiatedSerializer.DecoderToVersion(d, v)}
}

// guardedSerializer is a serializer whose decoder is guarded.
type guardedSerializer struct {
	runtime.Encoder
	runtime.Decoder
}

// guardedDecoder is a decoder whose panics are errors.
type guardedDecoder struct{ of runtime.Decoder }

// Decode decodes an object.
func (g guardedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (
	o runtime.Object, kind *schema.GroupVersionKind, err error,
) {
	err = supervise.Recover("decoding", func() (err error) {
		o, kind, err = g.of.Decode(data, defaults, into)
		return err
	})
	return o, kind, err
}
