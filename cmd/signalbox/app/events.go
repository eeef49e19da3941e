//go:build !nokubernetes

package app

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/signalbox-epp/signalbox/adapters/discovery"
	"github.com/signalbox-epp/signalbox/adapters/discovery/kube"
	"github.com/signalbox-epp/signalbox/adapters/events"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/filters"
)

// openEvents makes what writes Events on the InferencePool; nil = none are written.
func (o *options) openEvents(cluster *rest.Config, log *telemetry.Log) (*events.Events, error) {
	if !o.events {
		return nil, nil
	}
	return events.Open(events.Config{
		Cluster: cluster, Namespace: o.namespace(), Pool: o.poolName, Group: o.poolGroup, Identity: processName(),
		Problem: func(err error) {
			if err != nil {
				log.Warn("events: they cannot be written", zap.String("problem", err.Error()))
				return
			}
			log.Info("events: they are written again")
		},
	})
}

// poolTold logs what becomes of the pool, and has Events say what people look for there. Calls of change come one at a
// time.
type poolTold struct {
	endpointsLog
	events *events.Events // nil = none are written
	empty  bool           // an Event said that no endpoint is ready
}

func (p *poolTold) problem(err error) {
	p.endpointsLog.problem(err)
	if p.events != nil && err != nil && kube.IsInvalidObject(err) {
		p.events.Say(events.InvalidObject, err.Error())
	}
}

func (p *poolTold) change(c discovery.Change) {
	p.endpointsLog.change(c)
	if len(c.OddRoles) > 0 {
		p.log.Warn("endpoints: roles that no filter reads: profiles that filter by role pass these pods by",
			zap.Strings("pods", c.OddRoles[:min(len(c.OddRoles), namedEndpoints)]), zap.Strings("roles", filters.Roles))
	}
	if p.events == nil {
		return
	}
	switch {
	case c.Endpoints == 0:
		p.empty = true
		p.events.Say(events.NoReadyEndpoints, "No pod of the pool is Ready: requests are answered 503.")
	case p.empty:
		p.empty = false
		p.events.Say(events.EndpointsReady, fmt.Sprintf("The pool has endpoints again: %d.", c.Endpoints))
	}
}

// say begins to write Events, if they are wanted.
func (t *tree) say(ctx context.Context, e *events.Events) {
	if e == nil {
		return
	}
	t.registry.MustRegister(e.Collectors()...)
	go e.Run(context.WithoutCancel(ctx))
}

// Close ends what follows the pods, and then what writes Events of them.
func (p *pods) Close() {
	p.Discovery.Close()
	if p.events != nil {
		p.events.Close()
	}
}
