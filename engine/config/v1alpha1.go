package config

import (
	"reflect"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// The versions of the file's format. All but this file and convert.go know v1 alone: a file of v1alpha1 is decoded by
// its own keys, and its document then says the same in those of v1.
const (
	v1       = "llm-d.ai/v1"
	v1alpha1 = "llm-d.ai/v1alpha1"
	oldGroup = "inference.networking.x-k8s.io/v1alpha1"
)

// documentV1Alpha1 is a file of v1alpha1 as it is written.
type documentV1Alpha1 struct {
	sections
	DataLayer          dataLayerV1Alpha1 `json:"dataLayer"`
	SaturationDetector *pluginRef        `json:"saturationDetector"`
	Parser             *pluginRef        `json:"parser"`
}

type dataLayerV1Alpha1 struct {
	InjectDefaults              *bool           `json:"injectDefaults"`
	Sources                     []sourceSection `json:"sources"`
	Discovery                   *pluginRef      `json:"discovery"`
	PeerDiscovery               *pluginRef      `json:"peerDiscovery" effect:"none"`
	CrossReplicaSyncerPluginRef string          `json:"crossReplicaSyncerPluginRef" effect:"none"`
	CrossReplicaSyncInterval    time.Duration   `json:"crossReplicaSyncInterval" effect:"none"`
}

func newV1Alpha1() documentV1Alpha1 {
	return documentV1Alpha1{
		sections: newSections(), DataLayer: dataLayerV1Alpha1{CrossReplicaSyncInterval: defaultSyncInterval},
	}
}

// read decodes a file by the keys of its version, v1 if it names none that is known.
// It reports whether there is a document.
func (l *loader) read(root *yaml.Node) (document, bool) {
	version := ""
	if n := strictyaml.Find(root, "apiVersion"); n != nil {
		version = n.Value
	}
	if version == v1alpha1 || version == oldGroup {
		old := newV1Alpha1()
		l.Decode(root, "", reflect.ValueOf(&old).Elem())
		l.effects("dataLayer", reflect.ValueOf(old.DataLayer), reflect.ValueOf(newV1Alpha1().DataLayer))
		return old.inV1(), !l.Failed("")
	}
	doc := newDocument()
	l.Decode(root, "", reflect.ValueOf(&doc).Elem())
	fresh := newDocument().DataLayer
	l.effects("dataLayer.discovery", reflect.ValueOf(doc.DataLayer.Discovery), reflect.ValueOf(fresh.Discovery))
	l.effects("dataLayer.crossReplica", reflect.ValueOf(doc.DataLayer.CrossReplica),
		reflect.ValueOf(fresh.CrossReplica))
	return doc, !l.Failed("")
}

// inV1 is the same file in v1. Of what has no effect, which read has entered, nothing is taken over.
func (d *documentV1Alpha1) inV1() document {
	doc := newDocument()
	doc.sections = d.sections
	doc.DataLayer.InjectDefaults, doc.DataLayer.Sources = d.DataLayer.InjectDefaults, d.DataLayer.Sources
	doc.DataLayer.Discovery.Endpoints = d.DataLayer.Discovery
	doc.older = older{version: true, detector: d.SaturationDetector, parser: d.Parser}
	return doc
}

// older is what a file of v1alpha1 says at places that v1 has not.
type older struct {
	version          bool // the file is one; the others are nil unless it is
	detector, parser *pluginRef
}

// discovery is the path under which the file names the source of its endpoints.
func (o older) discovery() string {
	if o.version {
		return "dataLayer.discovery"
	}
	return "dataLayer.discovery.endpoints"
}
