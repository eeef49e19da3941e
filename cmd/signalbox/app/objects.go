package app

import (
	"slices"

	"github.com/signalbox-epp/signalbox/adapters/discovery/kube"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// withoutCluster returns which sources of a configuration need Kubernetes, for one that has its endpoints from a file.
func withoutCluster(c *config.Config) error {
	var all []strictyaml.Problem
	for _, f := range c.Further {
		if f.Objects != (config.ObjectKind{}) {
			p := f.At
			p.Text = config.NoCluster("--endpoints")
			all = append(all, p)
		}
	}
	if all == nil {
		return nil
	}
	return &strictyaml.Error{Problems: all}
}

// followObjects has objects asked for by a function, now and whenever another configuration comes into force.
func (f *inForce) followObjects(ask func([]kube.Kind)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started.objects = ask
	f.askForObjects()
}

// askForObjects asks for the kinds of objects of which a plugin reads something. Those that are known are told again,
// for sources that are new. Its caller has mu.
func (f *inForce) askForObjects() {
	if f.started.objects == nil {
		return
	}
	var kinds []kube.Kind
	c := f.current.Load()
	for _, source := range c.Further {
		k := kube.Kind(source.Objects)
		if k != (kube.Kind{}) && c.Plan.Layout().Samples(source.Name) && !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	f.started.objects(kinds)
}

// tellObjects brings the objects of a kind to all sources that have it.
func (t *tree) tellObjects(k kube.Kind, document []byte, err error) {
	for _, f := range t.configuration.current.Load().Further {
		if f.Objects == config.ObjectKind(k) {
			t.fetcher.Tell(f.Name, document, err)
		}
	}
}
