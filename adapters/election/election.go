// Package election has one of several pickers lead: the one that holds a Lease of Kubernetes.
//
// It owns the claim to the Lease, and says whether this process leads. It never ends the process: one that lost the
// Lease tries to get it again for as long as it runs. It never looks at a clock of another machine.
package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
)

// The times follow from two bounds: a holder that died is replaced within 8 s, one that gave the Lease up within 1.5 s.
// Between two tries there are retry to 2.2 times retry. A standby sees a renewal at most one pause late, and its
// takeover comes at most one pause after lasts: 1.1 + 5 + 1.1 s.
const (
	// lasts is how long others leave the Lease alone after a renewal.
	lasts = 5 * time.Second
	// renewWithin is how long a holder tries to renew the Lease before it gives up.
	renewWithin = 3500 * time.Millisecond
	// retry is the time between two renewals, and the shortest one between two tries to get the Lease.
	retry = 500 * time.Millisecond
	// answerWithin is how long one call may take. A call that is late loses its connection, so that the next one does
	// not wait for a connection that was forgotten without a word.
	answerWithin = 1500 * time.Millisecond
	// leadsFor is how long this process leads after it sent a renewal that was taken. It is shorter than lasts, which
	// others count from when they see that renewal, so that no two lead at a time, however late answers come.
	leadsFor = lasts - 500*time.Millisecond
)

// Config says which Lease is claimed, and in whose name.
type Config struct {
	Cluster   *rest.Config // how the API server is reached
	Namespace string
	Lease     string
	Identity  string // of this process as others see it; different for each

	// Changed, if not nil, is told of each holder that is seen, "" for none, and whether it is this process. It must
	// not block.
	Changed func(holder string, leads bool)
	// Problem, if not nil, is told of what goes wrong, of each thing once, and nil when nothing is wrong any more. It
	// must not block.
	Problem func(error)
}

// Election claims a Lease.
type Election struct {
	cfg     Config
	elector *leaderelection.LeaderElector
	lock    *lock
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{} // closed when Run has returned
	began   atomic.Bool   // Run was called
}

// Open checks a configuration. It asks the API server nothing, which may come later than this process.
func Open(cfg Config) (*Election, error) {
	client := rest.CopyConfig(cfg.Cluster)
	client.QPS = -1 // the elector bounds the calls
	client.WarningHandler = rest.NoWarnings{}
	client.ContentType, client.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client.UserAgent = cmp.Or(client.UserAgent, "signalbox")
	// With HTTP/2 a call that is late would leave its connection to the calls after it.
	client.NextProtos = []string{"http/1.1"}
	leases, err := coordinationv1.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	return claim(cfg, &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: cfg.Lease}, Client: leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: cfg.Identity},
	})
}

// claim makes an election for a Lease.
func claim(cfg Config, lease resourcelock.Interface) (_ *Election, err error) {
	e := &Election{cfg: cfg, lock: &lock{Interface: lease, cfg: cfg}, ended: make(chan struct{})}
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, Name: cfg.Lease, LeaseDuration: lasts, RenewDeadline: renewWithin, RetryPeriod: retry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {}, // the lock knows before
			OnStoppedLeading: e.lock.yield,
			OnNewLeader:      e.changed,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	quiet := klog.NewContext(context.Background(), logr.Discard()) // what goes wrong is told by Problem, once
	e.ctx, e.cancel = context.WithCancel(quiet)
	return e, nil
}

// Run claims the Lease until ctx is done or Close is called, and then gives it up. It runs once.
func (e *Election) Run(ctx context.Context) {
	if !e.began.CompareAndSwap(false, true) {
		return
	}
	defer close(e.ended)
	stop := context.AfterFunc(ctx, e.cancel)
	defer stop()
	supervise.KeepRunning(e.ctx, "the elector", func(ctx context.Context) {
		for ctx.Err() == nil {
			e.elector.Run(ctx) // returns once the Lease is lost
		}
	}, e.panicked)
	e.lock.yield()
}

// panicked has this process lead no more, and says why.
func (e *Election) panicked(err error) {
	e.lock.yield()
	e.lock.note(failure{verb: "run", text: err.Error(), reason: "Panic", stack: supervise.WithStack(err)})
}

// Close gives the Lease up, if this process has it. The channel is closed once that is done, or the API server has not
// answered.
func (e *Election) Close() (ended <-chan struct{}) {
	e.cancel()
	if e.began.CompareAndSwap(false, true) { // Run cannot begin any more
		close(e.ended)
	}
	return e.ended
}

// Leads returns why this process does not lead; nil = it does.
func (e *Election) Leads() error {
	if e.lock.leads() {
		return nil
	}
	text := "not the leader"
	if holder := e.elector.GetLeader(); holder != "" && holder != e.cfg.Identity {
		text += ": " + holder + " leads"
	}
	if problem := e.lock.problem(); problem != "" {
		text += ": " + problem
	}
	return errors.New(text)
}

// changed is called on a goroutine of the elector's own.
func (e *Election) changed(holder string) {
	if e.cfg.Changed == nil {
		return
	}
	err := supervise.Recover("telling of the leader", func() error {
		e.cfg.Changed(holder, holder == e.cfg.Identity)
		return nil
	})
	if err != nil && e.cfg.Problem != nil {
		e.cfg.Problem(supervise.WithStack(err))
	}
}

// Collectors returns the metrics of the election. The name is that of the reference.
func (e *Election) Collectors() []prometheus.Collector {
	return []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "leader_election_master_status",
		Help:        "Whether this process leads: 1 if it does, 0 if it stands by.",
		ConstLabels: prometheus.Labels{"name": e.cfg.Lease},
	}, func() float64 {
		if e.lock.leads() {
			return 1
		}
		return 0
	})}
}
