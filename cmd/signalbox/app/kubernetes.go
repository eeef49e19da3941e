//go:build !nokubernetes

package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"

	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/adapters/access"
	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/discovery/kube"
	"github.com/signalbox-epp/signalbox/adapters/discovery/preflight"
	"github.com/signalbox-epp/signalbox/adapters/election"
	"github.com/signalbox-epp/signalbox/adapters/events"
	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/messages"
)

// What links Kubernetes is in the files that are not built with the tag nokubernetes: this one, election.go and
// events.go. The file nokubernetes.go stands in their place then.

// checkTarget returns what is wrong with the selector and its ports.
func (o *poolOptions) checkTarget() error {
	var all []error
	if err := kube.CheckSelector(o.selector); err != nil {
		all = append(all, fmt.Errorf("--endpoint-selector: %w", err))
	}
	if err := kube.CheckPorts(o.targetPorts); err != nil {
		all = append(all, fmt.Errorf("--endpoint-target-ports: %w", err))
	}
	return errors.Join(all...)
}

// pods is Kubernetes: what follows pods, claims the lease and knows the rights of tokens.
type pods struct {
	*kube.Discovery
	election *election.Election // nil = all pickers serve at once
	events   *events.Events     // nil = none are written
	reviews  *access.Reviews    // nil = the metrics port does not ask
}

// openPods makes what follows the pods of Kubernetes. It needs to know where the API server is; whether it answers
// shows later.
func (o *options) openPods(log *telemetry.Log) (endpointSource, error) {
	flag := "--pool-name"
	if o.selector != "" {
		flag = "--endpoint-selector"
	}
	cluster, err := kube.Cluster(o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	said, err := o.openEvents(cluster, log)
	if err != nil {
		return nil, fmt.Errorf("--events: %w", err)
	}
	told := &poolTold{endpointsLog: endpointsLog{log: log.Logger, say: o.hooks.say}, events: said}
	d, err := kube.Open(kube.Config{
		Cluster: cluster, Namespace: o.namespace(), Pool: kube.Pool{Name: o.poolName, Group: o.poolGroup},
		Target: kube.Target{Selector: o.selector, Ports: o.targetPorts}, Cache: o.cache,
		Problem: told.problem, Told: told.change,
		Deprecated: func(what string) { log.Warn("kubernetes: deprecated", zap.String("object", what)) },
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	elects, err := o.openElection(cluster, log)
	if err != nil {
		return nil, fmt.Errorf("--ha-enable-leader-election: %w", err)
	}
	p := &pods{Discovery: d, election: elects, events: said}
	if o.reviewsTokens() {
		p.reviews, err = access.New(access.Config{Cluster: cluster, Problem: reviewsLog{log.Logger}.problem})
	}
	return p, err
}

// join has the tree go by what Kubernetes tells beside endpoints.
func (p *pods) join(ctx context.Context, t *tree) {
	t.known, t.concern = p.Known, p.Concern
	t.registry.MustRegister(p.Collectors()...)
	t.elect(ctx, p.election)
	t.say(ctx, p.events)
	if p.reviews != nil {
		t.reviews = p.reviewed
	}
	p.TellObjects(func(k kube.Kind, document []byte, err error) { t.tellObjects(config.ObjectKind(k), document, err) })
	t.configuration.followObjects(func(kinds []config.ObjectKind) {
		var all []kube.Kind
		for _, k := range kinds {
			all = append(all, kube.Kind(k))
		}
		p.FollowObjects(all)
	})
	p.TellExtras(func(e kube.Extras) (taken bool) {
		return t.configuration.add(config.Additions{Objectives: e.Objectives, Rewrites: e.Rewrites})
	})
}

// followObjects has objects asked for by a function, now and whenever another configuration comes into force.
func (f *inForce) followObjects(ask func([]config.ObjectKind)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started.objects = ask
	f.askForObjects()
}

// tellObjects brings the objects of a kind to all sources that have it.
func (t *tree) tellObjects(k config.ObjectKind, document []byte, err error) {
	for _, f := range t.configuration.current.Load().Further {
		if f.Objects == k {
			t.fetcher.Tell(f.Name, document, err)
		}
	}
}

// reviewed returns what Kubernetes says of a request to the metrics port.
func (p *pods) reviewed(r *http.Request) admin.Access {
	switch p.reviews.Decide(r.Header.Get("Authorization"), r.Method, r.URL.Path) {
	case access.Granted:
		return admin.Granted
	case access.Unauthenticated:
		return admin.NoToken
	case access.Forbidden:
		return admin.NoRight
	case access.Undecided:
	}
	return admin.Undecided
}

// reviewsLog logs what becomes of the reviews of tokens.
type reviewsLog struct{ log *zap.Logger }

func (l reviewsLog) problem(err error) {
	if err != nil {
		l.log.Warn("metrics port: tokens cannot be reviewed", zap.String("problem", err.Error()))
		return
	}
	l.log.Info("metrics port: tokens are reviewed again")
}

// preflight makes the checks and prints them.
func (o *options) preflight(ctx context.Context, w io.Writer, asJSON bool) error {
	if err := o.check(); err != nil {
		return err
	}
	cfg, err := o.load(ctx)
	if err != nil {
		return err
	}
	if cfg.Discovery.Path != "" {
		return fmt.Errorf("the endpoints come from the file %s: want --pool-name or --endpoint-selector without one",
			cfg.Discovery.Path)
	}
	cluster, err := kube.Cluster(o.kubeconfig)
	if err != nil {
		return err
	}
	look := preflight.Config{
		Cluster: cluster, Namespace: o.namespace(), Target: kube.Target{Selector: o.selector, Ports: o.targetPorts},
		Pool: kube.Pool{Name: o.poolName, Group: o.poolGroup}, Reviews: o.reviewsTokens(),
		Events: o.events,
	}
	if o.elects {
		look.Lease = o.lease()
	}
	fetcher, err := modelserver.NewFetcher(modelserver.Config{Pages: pagesOf(cfg.Config, wanted(cfg.Config))})
	if err != nil {
		return err
	}
	defer fetcher.Close()
	if notScraped(cfg.Config) == "" {
		from := attributes.Source{Select: cfg.Metrics.Select}
		look.Metrics = func(e messages.EndpointSpec) error {
			if !from.Selects(maps.Collect(e.Labels.All())) {
				return nil // its page is not read
			}
			if failure := fetcher.Look(e).NoMetrics; failure != "" {
				return errors.New(failure)
			}
			return nil
		}
	}
	checks, err := preflight.Run(ctx, look)
	if err != nil {
		return err
	}
	return printChecks(w, checks, asJSON)
}

// printChecks prints the checks, and returns an error if there is a problem among them.
func printChecks(w io.Writer, checks []preflight.Check, asJSON bool) error {
	problems := 0
	text := ""
	for _, c := range checks {
		if c.Result == preflight.Problem {
			problems++
		}
		text += fmt.Sprintf("%-8s %s: %s\n", c.Result, c.Name, c.Found)
		if c.Remedy != "" {
			text += fmt.Sprintf("%-8s %s\n", "", c.Remedy)
		}
	}
	if asJSON {
		form, err := json.MarshalIndent(struct {
			Serves bool              `json:"serves"`
			Checks []preflight.Check `json:"checks"`
		}{problems == 0, checks}, "", "  ")
		if err != nil {
			return err
		}
		text = string(form) + "\n"
	}
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	if problems > 0 {
		return fmt.Errorf("problems: %d", problems)
	}
	return nil
}
