package app

import (
	"slices"

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

// askForObjects asks for the kinds of objects of which a plugin reads something. Those that are known are told again,
// for sources that are new. Its caller has mu.
func (f *inForce) askForObjects() {
	if f.started.objects == nil {
		return
	}
	var kinds []config.ObjectKind
	c := f.current.Load()
	for _, source := range c.Further {
		k := source.Objects
		if k != (config.ObjectKind{}) && c.Plan.Layout().Samples(source.Name) && !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	f.started.objects(kinds)
}
