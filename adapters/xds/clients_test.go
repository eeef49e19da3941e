package xds

import (
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// settled is a proxy that has taken the endpoints in force.
func (r *rig) settled() *proxy {
	r.Helper()
	r.announce("10.0.0.1:80")
	r.acknowledged()
	p := r.connect()
	p.subscribe(Light, resource.EndpointType, servers)
	p.ack(p.gets("10.0.0.1:80"))
	r.stat("acks", r.server.metrics.acknowledged.WithLabelValues("endpoint"), 1)
	return p
}

// A name that is asked for again is sent nothing, so that no acknowledgement would come.
func TestWhoAsksTwiceOwesNothing(t *testing.T) {
	r := newRig(t, Config{})
	p := r.settled()
	p.subscribe(Light, resource.EndpointType, servers)
	p.subscribe(Light, resource.EndpointType, "nobody serves this")
	r.soon(func() bool { return r.logs.FilterMessageSnippet("not served").Len() > 0 }) // both were taken
	r.announce("10.0.0.1:80")
	r.acknowledged()
}

func TestWhoAsksNoMoreOwesNothing(t *testing.T) {
	r := newRig(t, Config{})
	p := r.settled()
	r.announce("10.0.0.2:80")
	p.gets("10.0.0.2:80")
	p.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType,
		ResourceNamesUnsubscribe: []string{servers}})
	r.acknowledged()
}

// A pool that starts anew counts from one.
func TestAnotherIncarnationOfThePoolIsAnswered(t *testing.T) {
	r := newRig(t, Config{})
	r.announce("10.0.0.1:80")
	r.acknowledged()
	r.number = 0
	r.announce("10.0.0.1:80", "10.0.0.2:80")
	r.acknowledged()
}

// A proxy is told of once it has said its name, and its end once.
func TestProxiesAreToldOf(t *testing.T) {
	met, gone := make(chan string, 10), make(chan string, 10)
	r := newRig(t, Config{Met: func(from, node, version string) func() {
		met <- node + " " + version
		return func() { gone <- from }
	}})
	p := r.settled()
	p.subscribe(Light, resource.EndpointType, servers)
	if got := <-met; got != "test " {
		t.Errorf("met %q, want the node alone: it does not say its version", got)
	}
	p.end()
	if from := <-gone; !strings.HasPrefix(from, "127.0.0.1:") {
		t.Errorf("the end of %q was told", from)
	}
	r.stat("streams", r.server.metrics.streams, 0)
	if len(met)+len(gone) != 0 {
		t.Error("a proxy is told of twice")
	}
}
