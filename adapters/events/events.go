// Package events writes Events of Kubernetes on an InferencePool, for people who look at that with kubectl.
//
// It owns what was said of the pool lately, and how often something may be said. It never touches the pool itself, and
// never holds up who has something to say: what cannot be written is counted and left out.
package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
)

// Reason says what an Event is about: a closed set, which is a label of metrics too.
type Reason uint8

const (
	// NoReadyEndpoints is for a pool of which no pod is Ready.
	NoReadyEndpoints Reason = iota
	// EndpointsReady is for a pool that has endpoints again.
	EndpointsReady
	// InvalidObject is for an object of the pool that cannot be read.
	InvalidObject
	reasons
)

func (r Reason) String() string {
	return [reasons]string{"NoReadyEndpoints", "EndpointsReady", "InvalidObject"}[r]
}

// isState reports whether it is of a state of the pool, which the next one of these ends.
func (r Reason) isState() bool { return r != InvalidObject }

// severity returns the type of an Event as Kubernetes has it.
func (r Reason) severity() string {
	if r == EndpointsReady {
		return core.EventTypeNormal
	}
	return core.EventTypeWarning
}

const (
	// burst is how many Events may be written one after the other; then one in each every.
	burst, every = 10, time.Minute
	// repeatAfter is how long the same is not said again, unless it is a state of the pool that has lasted for settled.
	repeatAfter = 10 * time.Minute
	// settled is how long a state lasts that is said although it was said before, and how often such a one is looked
	// for.
	settled = time.Minute
	// mostSaid bounds what is remembered of what was said.
	mostSaid = 64
	// mostWaiting is how many Events may wait to be written.
	mostWaiting = 16
	// answerWithin is how long the API server may take for one call.
	answerWithin = 5 * time.Second
	// mostText is how many bytes the text of an Event has at most, by the API.
	mostText = 1024
)

// Config says on which pool Events are written, and by whom.
type Config struct {
	Cluster                *rest.Config // how the API server is reached
	Namespace, Pool, Group string       // the InferencePool
	Identity               string       // of this process

	// Problem, if not nil, is told when Events cannot be written, and nil when they can again. It must not block.
	Problem func(error)
}

// Events writes Events.
type Events struct {
	cfg     Config
	client  *rest.RESTClient
	waiting chan note
	limit   limit
	counts  *prometheus.CounterVec
	failing bool  // belongs to the goroutine of Run
	states  state // likewise
	ctx     context.Context
	cancel  context.CancelFunc
	begun   atomic.Bool   // Run was called, or cannot be any more
	ended   chan struct{} // closed when Run has returned
}

// note is an Event that is to be written.
type note struct {
	reason Reason
	text   string
	at     time.Time
}

// state is that of the pool: people take it from the Event that was written last.
type state struct {
	shown bool   // an Event says it
	last  Reason // what it says, if shown
	since time.Time
	due   *note // the newest one, which no Event says; nil = there is none
}

// known reports whether people see that state already: numbers in its text make no other state of it.
func (s *state) known(n note, now time.Time) bool {
	return n.reason.isState() && s.shown && s.last == n.reason && now.Sub(s.since) < repeatAfter
}

// unwritten notes a state that was not written.
func (s *state) unwritten(n note) {
	switch {
	case !n.reason.isState():
	case s.shown && s.last == n.reason:
		s.due = nil // it is what people see
	default:
		s.due = &n
	}
}

func (s *state) written(n note) {
	if n.reason.isState() {
		*s = state{shown: true, last: n.reason, since: n.at}
	}
}

// Open checks a configuration. It asks the API server nothing.
func Open(cfg Config) (*Events, error) {
	c := rest.CopyConfig(cfg.Cluster)
	c.QPS = -1 // limit bounds the calls
	c.WarningHandler = rest.NoWarnings{}
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.UserAgent = cmp.Or(c.UserAgent, "signalbox")
	scheme := runtime.NewScheme() // of refusals alone: a typed client makes the program 1.6 MB larger
	metav1.AddToGroupVersion(scheme, core.SchemeGroupVersion)
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.GroupVersion, c.APIPath = &core.SchemeGroupVersion, "/api"
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	e := &Events{
		cfg: cfg, client: client, waiting: make(chan note, mostWaiting), limit: limit{left: burst},
		ended: make(chan struct{}),
		counts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "signalbox_events_total",
			Help: "Events of Kubernetes on the pool, by reason, and by what became of them: written, dropped because " +
				"they are too many or there is no pool, forbidden, or failed.",
		}, []string{"reason", "result"}),
	}
	for r := range reasons {
		e.counts.WithLabelValues(r.String(), "written")
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e, nil
}

// Collectors returns the metrics of the Events.
func (e *Events) Collectors() []prometheus.Collector { return []prometheus.Collector{e.counts} }

// Say has an Event written, unless it is one too many. It does not block.
func (e *Events) Say(r Reason, text string) {
	select {
	case e.waiting <- note{r, clip.Bytes(text, mostText), time.Now()}:
	default:
		e.count(r, "dropped")
	}
}

// Run writes Events until ctx is done or Close is called. It runs once.
func (e *Events) Run(ctx context.Context) {
	if !e.begun.CompareAndSwap(false, true) {
		return
	}
	defer close(e.ended)
	defer context.AfterFunc(ctx, e.cancel)()
	supervise.KeepRunning(e.ctx, "writing Events", e.loop, func(err error) { e.note(supervise.WithStack(err)) })
}

func (e *Events) loop(ctx context.Context) {
	look := time.NewTicker(settled)
	defer look.Stop()
	for {
		select {
		case n := <-e.waiting:
			e.take(n)
		case now := <-look.C:
			e.settle(now)
		case <-ctx.Done():
			return
		}
	}
}

// Close ends Run, and waits for it.
func (e *Events) Close() {
	e.cancel()
	if e.begun.CompareAndSwap(false, true) { // Run cannot begin any more
		close(e.ended)
	}
	<-e.ended
}

func (e *Events) count(r Reason, result string) { e.counts.WithLabelValues(r.String(), result).Inc() }

// take writes an Event, or leaves it out.
func (e *Events) take(n note) {
	if now := time.Now(); e.states.known(n, now) || !e.limit.allow(n, now) {
		e.count(n.reason, "dropped")
		e.states.unwritten(n)
		return
	}
	e.put(n)
}

// settle writes the state of the pool if it has lasted, and the last Event says another one: it was left out because
// the pool had changed too often, or could not be written.
func (e *Events) settle(now time.Time) {
	if n := e.states.due; n != nil && now.Sub(n.at) >= settled {
		e.limit.unsay(*n)
		if e.limit.allow(*n, now) {
			e.put(*n)
		}
	}
}

// put writes an Event, and notes what became of it.
func (e *Events) put(n note) {
	switch err := e.write(n); {
	case errors.Is(err, errNoPool):
		e.count(n.reason, "dropped")
		e.limit.unsay(n)
		e.states = state{} // the next pool of the name has no Events
	case err == nil:
		e.count(n.reason, "written")
		e.states.written(n)
		e.note(nil)
	case e.ctx.Err() != nil: // the process ends
	default:
		result := "failed"
		if apierrors.IsForbidden(err) {
			result = "forbidden"
		}
		e.count(n.reason, result)
		e.limit.unsay(n)
		e.states.unwritten(n)
		e.note(err)
	}
}

// note tells of a failure once, and of its end.
func (e *Events) note(err error) {
	if e.failing != (err != nil) && e.cfg.Problem != nil {
		e.cfg.Problem(err)
	}
	e.failing = err != nil
}

// write writes an Event on the pool as it is now. Without a pool there is nothing to write it on.
func (e *Events) write(n note) error {
	ctx, cancel := context.WithTimeout(e.ctx, answerWithin)
	defer cancel()
	pool, err := e.pool(ctx)
	if apierrors.IsNotFound(err) {
		return errNoPool
	}
	if err != nil {
		return fmt.Errorf("get inferencepools.%s: %w", e.cfg.Group, err)
	}
	at := metav1.NewTime(n.at)
	text, err := json.Marshal(&core.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{GenerateName: e.cfg.Pool + ".", Namespace: e.cfg.Namespace},
		InvolvedObject: pool,
		Reason:         n.reason.String(), Message: n.text, Type: n.reason.severity(),
		Source:         core.EventSource{Component: component},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		ReportingController: component, ReportingInstance: e.cfg.Identity,
	})
	if err == nil {
		err = e.client.Post().Namespace(e.cfg.Namespace).Resource("events").Body(text).MaxRetries(0).Do(ctx).Error()
	}
	if err != nil {
		return fmt.Errorf("create events: %w", err)
	}
	return nil
}

var errNoPool = errors.New("there is no pool")

// component is who Events are by.
const component = "signalbox"

// pool asks for the InferencePool, which has a UID of its own each time that it is made.
func (e *Events) pool(ctx context.Context) (ref core.ObjectReference, _ error) {
	path := "/apis/" + e.cfg.Group + "/v1/namespaces/" + e.cfg.Namespace + "/inferencepools/" + e.cfg.Pool
	text, err := e.client.Get().AbsPath(path).MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return ref, err
	}
	var pool metav1.PartialObjectMetadata
	if err := json.Unmarshal(text, &pool); err != nil {
		return ref, err
	}
	return core.ObjectReference{
		APIVersion: e.cfg.Group + "/v1", Kind: "InferencePool", Namespace: e.cfg.Namespace, Name: e.cfg.Pool,
		UID: pool.UID, ResourceVersion: pool.ResourceVersion,
	}, nil
}

// limit says how often something may be said: burst Events at once, one more in each every, and the same not again
// before repeatAfter is over.
type limit struct {
	left   int       // 0 <= left <= burst
	filled time.Time // when left grew last; zero = nothing was said yet
	said   map[said]time.Time
}

type said struct {
	reason Reason
	text   string
}

// unsay takes back that something was said, which may be tried again.
func (l *limit) unsay(n note) { delete(l.said, said{n.reason, n.text}) }

// allow reports whether an Event may be written now, and takes it that it is.
func (l *limit) allow(n note, now time.Time) bool {
	if l.filled.IsZero() {
		l.filled, l.said = now, map[said]time.Time{}
	}
	grown := int(now.Sub(l.filled) / every)
	l.filled = l.filled.Add(time.Duration(grown) * every)
	l.left = min(burst, l.left+grown)
	what := said{n.reason, n.text}
	if at, known := l.said[what]; known && now.Sub(at) < repeatAfter || l.left == 0 {
		return false
	}
	for s, at := range l.said {
		if now.Sub(at) >= repeatAfter {
			delete(l.said, s)
		}
	}
	if len(l.said) < mostSaid {
		l.said[what] = now
	}
	l.left--
	return true
}
