package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
)

// Cluster returns how the API server is reached: by a kubeconfig file, else by those that $KUBECONFIG names, else by
// the service account of the pod in which the process runs.
func Cluster(kubeconfig string) (*rest.Config, error) {
	cfg, err := cluster(kubeconfig)
	if err != nil || cfg.BearerTokenFile == "" {
		return cfg, err
	}
	// By itself client-go reads the file once in a minute, even if the API server takes the token no more.
	file := newTokenFile(cfg.BearerTokenFile, cfg.BearerToken)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return tokenBearer{next, file} })
	cfg.BearerToken, cfg.BearerTokenFile = "", ""
	return cfg, nil
}

func cluster(kubeconfig string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	flag := "--kubeconfig"
	if kubeconfig == "" {
		flag = ""
		env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
		if env == "" {
			return inCluster()
		}
		rules.Precedence = strings.Split(env, string(os.PathListSeparator))
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).
		ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.TrimSpace(cmp.Or(flag, "$KUBECONFIG")+" "+kubeconfig), err)
	}
	return cfg, nil
}

func inCluster() (*rest.Config, error) {
	cfg, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("there is no cluster: want --kubeconfig, $KUBECONFIG, or a pod with a service account")
	}
	if err != nil {
		return nil, fmt.Errorf("the pod's service account: %w", err)
	}
	return cfg, nil
}

// tokenFile is the file of a token, which is written again before the token is void, and after.
type tokenFile struct {
	path string
	last atomic.Pointer[string] // the last token that was read; nil = none
}

// newTokenFile returns the file of a token, of which this was read.
func newTokenFile(path, read string) *tokenFile {
	f := &tokenFile{path: path}
	if read = strings.TrimSpace(read); read != "" {
		f.last.Store(&read)
	}
	return f
}

// token reads the token. While the file cannot be read the last one counts.
func (f *tokenFile) token() (string, error) {
	text, err := os.ReadFile(f.path)
	token := strings.TrimSpace(string(text))
	if err == nil && token == "" {
		err = fmt.Errorf("%s: it is empty", f.path)
	}
	if err == nil {
		f.last.Store(&token)
		return token, nil
	}
	if last := f.last.Load(); last != nil {
		return *last, nil
	}
	return "", fmt.Errorf("the token: %w", err)
}

// tokenBearer has each call carry the token of a file. It reads the file for each, for calls are few: one that is
// refused because its token is void would have the next one wait for longer than a new token may take to count.
type tokenBearer struct {
	next http.RoundTripper
	file *tokenFile
}

// RoundTrip makes the call.
func (b tokenBearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := b.file.token()
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return b.next.RoundTrip(r)
}

// WrappedRoundTripper returns what makes the calls, by which idle connections are closed.
func (b tokenBearer) WrappedRoundTripper() http.RoundTripper { return b.next }

// resource is a kind of object that is followed.
type resource struct {
	schema.GroupVersion
	next     string // the version that is read while that of GroupVersion is not served; "" = none
	name     string // plural, as paths and rights have it
	kind     string
	optional bool // picks need it not: it may never be installed
	cluster  bool // its objects have no namespace
	whole    bool // everything of its objects is kept
}

func (r resource) String() string {
	if r.Group == "" {
		return r.name
	}
	return r.name + "." + r.Group
}

var pods = resource{GroupVersion: schema.GroupVersion{Version: "v1"}, name: "pods", kind: "Pod"}

func inferencePools(group string) resource {
	return resource{
		GroupVersion: schema.GroupVersion{Group: group, Version: "v1"}, name: "inferencepools", kind: "InferencePool",
	}
}

// extraResource is that of objects beside the pool. The legacy group ends with v1alpha2.
func extraResource(group, name, kind string) resource {
	r := resource{
		GroupVersion: schema.GroupVersion{Group: group, Version: "v1alpha2"}, name: name, kind: kind, optional: true,
	}
	if group == extraGroup {
		r.next = "v1"
	}
	return r
}

// versions returns the versions of a resource that can be read; of those that are served the first one is.
func (r resource) versions() []string {
	if r.next == "" {
		return []string{r.Version}
	}
	return []string{r.Version, r.next}
}

// call says which call a problem is about. One for objects that a source asks for is another one than that for objects
// that endpoints come from, also if both are of one resource, and so is one for each version.
func (r resource) call(verb string) string {
	if r.whole {
		return verb + " " + r.GroupVersion.String() + " " + r.name + " of a source"
	}
	return verb + " " + r.String()
}

// objectOf says which object a problem is about.
func objectOf(r resource, name string) string { return "object " + r.String() + " " + name }

// client asks an API server for the objects of one namespace.
type client struct {
	cfg       *rest.Config
	http      *http.Client // one for all resources, so that they share idle connections
	namespace string
	// codecs are those of JSON for the types of a scheme, but for tests.
	codecs func(*runtime.Scheme) runtime.NegotiatedSerializer
}

// dialer opens connections. While packets are lost the kernel waits longer each time until it tries to connect again,
// so that an attempt that lasts goes on for long after the network is back. A connection that is lost without a word is
// noticed by keep-alive probes.
var dialer = &net.Dialer{
	Timeout:         2 * time.Second,
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 2 * time.Second, Count: 3},
}

func newClient(cfg *rest.Config, namespace string) (*client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // reflectors and their back-off bound the requests
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	// Each call has a connection of its own, so that one whose answer does not come is given up with it. On one
	// connection of HTTP/2 the next call would wait for the same answers.
	cfg.NextProtos = []string{"http/1.1"}
	if cfg.Dial == nil {
		cfg.Dial = dialer.DialContext
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "signalbox"
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return errorKeeper{next} })
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	c := &client{cfg: cfg, http: h, namespace: namespace, codecs: codecsOf}
	if _, err := c.api(pods); err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	return c, nil
}

// errorKeeper keeps the error of a call where the context of the call says. For some errors, such as an attempt to
// connect that takes too long, rest.Request has a watch that is at its end, and no error.
type errorKeeper struct{ next http.RoundTripper }

// keptError is the key of a context for the *error that is kept.
type keptError struct{}

// RoundTrip makes the call.
func (k errorKeeper) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := k.next.RoundTrip(r)
	if kept, ok := r.Context().Value(keptError{}).(*error); ok {
		*kept = err
	}
	return response, err
}

// WrappedRoundTripper returns what makes the calls, by which idle connections are closed.
func (k errorKeeper) WrappedRoundTripper() http.RoundTripper { return k.next }

func (c *client) closeIdle() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }

// selection narrows a list. The zero selection is all objects of the namespace.
type selection struct {
	labels string // a label selector
	name   string // of the one object
}

// source lists and watches the objects of a resource, of one version. A definition that comes, or that is replaced by
// one of another version, is found by lists alone: they need no right beside those to the objects.
type source struct {
	rest      []*rest.RESTClient // of each version that can be read
	serves    int                // index into rest; of the list that was answered last
	late      int                // watches since the last one whose answer came in time
	namespace string
	of        resource
	selection selection
}

func (c *client) source(r resource, s selection) *source {
	from := &source{namespace: c.namespace, of: r, selection: s}
	for _, version := range r.versions() {
		r.Version = version
		api, err := c.api(r)
		if err != nil {
			panic(err) // newClient has found the configuration good, and nothing else can be wrong
		}
		from.rest = append(from.rest, api)
	}
	return from
}

// api returns the part of the API that has a resource.
func (c *client) api(r resource) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(r.WithKind(r.kind), r.one())
	scheme.AddKnownTypeWithName(r.WithKind(r.kind+"List"), r.all())
	metav1.AddToGroupVersion(scheme, r.GroupVersion)
	cfg := rest.CopyConfig(c.cfg)
	cfg.GroupVersion, cfg.APIPath = &r.GroupVersion, "/apis"
	if r.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = guarded{c.codecs(scheme)}
	return rest.RESTClientForConfigAndClient(cfg, c.http)
}

func codecsOf(scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

const (
	// listWithin is how long a list may take, so that an answer that stalls does not hold up a reflector.
	listWithin = 30 * time.Second
	// listPatience is how long a list goes unanswered until it is asked for again.
	listPatience = 3 * time.Second
	// watchWithin is how long the answer to a watch may take to begin. It doubles, up to mostWatchWithin, each time
	// that it is too short, for an API server that is slow. Each watch that is given up is followed by a list.
	watchWithin     = 3 * time.Second
	mostWatchWithin = 12 * time.Second
	// watchFor is how long a watch lasts at most. The API server ends it then, and says shortly before in a bookmark
	// where the next one begins. The bookmark matters: without it a quiet watch would begin at a version that the API
	// server of a busy cluster has forgotten.
	watchFor = 40 * time.Second
	// watchSpread is by how much a watch may be shorter, so that not all pickers ask at the same time.
	watchSpread = 10 * time.Second
	// overdue is how long the end of a watch may be late. Then the API server has kept a connection open and said
	// nothing on it, and the next watch has another one.
	overdue = 5 * time.Second
)

func (s *source) request(o metav1.ListOptions) *rest.Request {
	o.LabelSelector = s.selection.labels
	if s.selection.name != "" {
		o.FieldSelector = "metadata.name=" + s.selection.name
	}
	return s.rest[s.serves].Get().NamespaceIfScoped(s.namespace, !s.of.cluster).Resource(s.of.name).
		VersionedParams(&o, metav1.ParameterCodec).MaxRetries(0) // the reflector waits and tries again
}

// list lists the objects of the version that was served before, or else of another one that is served now. It calls
// late as long as no answer comes.
func (s *source) list(ctx context.Context, o metav1.ListOptions, late func(error)) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	all, err := s.listOnce(ctx, o, late)
	for range s.rest[1:] {
		if !apierrors.IsNotFound(err) {
			break
		}
		s.serves = (s.serves + 1) % len(s.rest)
		all, err = s.listOnce(ctx, o, late)
	}
	return all, err
}

// listing is the answer to a list.
type listing struct {
	all runtime.Object // nil if err is not
	err error
}

// listOnce lists the objects. As long as no answer comes it asks again beside the first call, on another connection:
// the first one may be lost, or else the API server may be slow and answer it still. The first answer counts.
func (s *source) listOnce(ctx context.Context, o metav1.ListOptions, late func(error)) (runtime.Object, error) {
	var calls sync.WaitGroup
	defer calls.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan listing)
	call := func() (giveUp func()) {
		ctx, giveUp := context.WithCancel(ctx)
		calls.Go(func() {
			all := s.of.all()
			err := supervise.Recover("the call", func() error { return s.request(o).Do(ctx).Into(all) })
			if ctx.Err() != nil {
				return // it was given up
			}
			if err != nil {
				all = nil
			}
			select {
			case answers <- listing{all, err}:
			case <-ctx.Done():
			}
		})
		return giveUp
	}
	call()
	again, giveUp := time.NewTicker(listPatience), func() {}
	defer again.Stop()
	for {
		select {
		case a := <-answers:
			return a.all, a.err
		case <-ctx.Done():
			return nil, fmt.Errorf("no answer within %v: %w", listWithin, ctx.Err())
		case <-again.C:
			late(fmt.Errorf("no answer within %v: %w", listPatience, context.DeadlineExceeded))
			giveUp() // the call before, but for the first one
			giveUp = call()
		}
	}
}

// startWithin is how long the answer to the next watch may take to begin.
func (s *source) startWithin() time.Duration {
	return min(watchWithin<<min(s.late, 2), mostWatchWithin)
}

// watch begins a watch, and calls failed with each error that comes as an event of it.
func (s *source) watch(ctx context.Context, o metav1.ListOptions, failed func(error)) (watch.Interface, error) {
	seconds := int64((watchFor - rand.N(watchSpread)) / time.Second)
	o.Watch, o.TimeoutSeconds = true, &seconds
	ctx, cancel := context.WithCancel(ctx)
	within := s.startWithin()
	late := time.AfterFunc(within, cancel)
	var hidden error
	w, err := s.request(o).Watch(context.WithValue(ctx, keptError{}, &hidden))
	if err == nil && hidden != nil {
		w.Stop()
		err = hidden
	}
	if late.Stop() {
		s.late = 0
	} else {
		s.late++
		if err == nil {
			w.Stop()
		}
		err = fmt.Errorf("watch: no answer within %v: %w", within, context.DeadlineExceeded)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return newRelay(ctx, cancel, w, failed), nil
}

// relay is a watch that ends by itself if the API server does not end it, and calls failed with each error that comes
// as an event.
type relay struct {
	from   watch.Interface
	out    chan watch.Event
	cancel context.CancelFunc
}

func newRelay(ctx context.Context, cancel context.CancelFunc, from watch.Interface, failed func(error)) *relay {
	r := &relay{from: from, out: make(chan watch.Event), cancel: cancel}
	go func() {
		defer close(r.out)
		defer r.from.Stop()
		if err := supervise.Recover("the watch", func() error { r.run(ctx, failed); return nil }); err != nil {
			failed(err)
		}
	}()
	return r
}

func (r *relay) run(ctx context.Context, failed func(error)) {
	over := time.NewTimer(watchFor + overdue)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			failed(fmt.Errorf("watch: not ended within %v: %w", watchFor+overdue, context.DeadlineExceeded))
			return
		case e, ok := <-r.from.ResultChan():
			if !ok {
				return
			}
			if e.Type == watch.Error {
				failed(apierrors.FromObject(e.Object))
			}
			select {
			case r.out <- e:
			case <-ctx.Done():
				return
			}
		}
	}
}

// ResultChan returns the events.
func (r *relay) ResultChan() <-chan watch.Event { return r.out }

// Stop ends the watch.
func (r *relay) Stop() { r.cancel() }
