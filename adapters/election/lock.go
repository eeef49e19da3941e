package election

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock is the Lease, as the elector reads and writes it. It bounds each call, notes until when this process leads, and
// tells what goes wrong.
type lock struct {
	resourcelock.Interface
	cfg Config

	mu     sync.Mutex
	until  time.Time // when this process leads no more, unless it renews; zero = it does not lead
	failed failure   // zero = nothing is wrong
	seen   []byte    // the Lease as it was read last
}

// failure is a call that went wrong.
type failure struct {
	verb, text string
	reason     metav1.StatusReason // of the API server; "" = there was no answer
	stack      error               // of a panic, with its stack; nil = it is of a call
}

// Get reads the Lease.
func (l *lock) Get(ctx context.Context) (record *resourcelock.LeaderElectionRecord, raw []byte, err error) {
	err = l.call(ctx, "get", func(ctx context.Context) error {
		record, raw, err = l.Interface.Get(ctx)
		return err
	})
	if err == nil && l.sees(raw) {
		l.well() // another process renews the Lease, so there is nothing that this one must be able to do
	}
	return record, raw, err
}

// Create makes the Lease, held by this process.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	sent := time.Now()
	err := l.call(ctx, "create", func(ctx context.Context) error { return l.Interface.Create(ctx, r) })
	if err == nil {
		l.lead(sent)
	}
	return err
}

// Update renews the Lease, takes it, or gives it up.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == "" {
		l.yield() // before another one may take it
	}
	sent := time.Now()
	err := l.call(ctx, "update", func(ctx context.Context) error { return l.Interface.Update(ctx, r) })
	if err == nil && r.HolderIdentity != "" {
		l.lead(sent)
	}
	return err
}

// call bounds a call, and notes how it went.
func (l *lock) call(ctx context.Context, verb string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	err := do(ctx)
	switch {
	case err == nil || apierrors.IsNotFound(err) && verb == "get":
		l.over(verb)
	case errors.Is(err, context.Canceled), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		// the process ends, or another one was faster
	default:
		l.note(failure{verb: verb, text: fmt.Sprintf("%s leases.coordination.k8s.io %s: %v", verb, l.Describe(), err),
			reason: apierrors.ReasonForError(err)})
	}
	return err
}

// note has a failure, and tells it unless it is known by its reason.
func (l *lock) note(f failure) {
	l.mu.Lock()
	known := l.failed.verb != "" && l.failed.reason == f.reason
	l.failed = f
	l.mu.Unlock()
	if !known && l.cfg.Problem != nil {
		l.cfg.Problem(cmp.Or(f.stack, errors.New(f.text)))
	}
}

// over ends the failure of a verb, if there is one.
func (l *lock) over(verb string) {
	l.mu.Lock()
	failing := l.failed.verb == verb
	l.mu.Unlock()
	if failing {
		l.well()
	}
}

// well ends the failure, if there is one.
func (l *lock) well() {
	l.mu.Lock()
	failed := l.failed.verb != ""
	l.failed = failure{}
	l.mu.Unlock()
	if failed && l.cfg.Problem != nil {
		l.cfg.Problem(nil)
	}
}

// sees notes the Lease as it was read, and reports whether it changed.
func (l *lock) sees(raw []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := l.seen != nil && !bytes.Equal(l.seen, raw)
	l.seen = raw
	return changed
}

// lead has this process lead for a while from when it sent what was taken.
func (l *lock) lead(sent time.Time) {
	l.mu.Lock()
	l.until = sent.Add(leadsFor)
	l.mu.Unlock()
	l.well()
}

// yield has this process lead no more.
func (l *lock) yield() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = time.Time{}
}

func (l *lock) leads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until)
}

// problem returns what goes wrong; "" = nothing.
func (l *lock) problem() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed.text
}
