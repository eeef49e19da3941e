package config

import (
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/detectors"
	"github.com/signalbox-epp/signalbox/engine/profiles"
	"github.com/signalbox-epp/signalbox/engine/scorers"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// The versions of the file's format. Only this file decodes v1alpha1, by the keys of that version, and turns the result
// into a document of v1; convert.go does so with the text of a file.
const (
	v1       = "llm-d.ai/v1"
	v1alpha1 = "llm-d.ai/v1alpha1"
	oldGroup = "inference.networking.x-k8s.io/v1alpha1"
)

// documentV1Alpha1 is a file of v1alpha1 as it is written.
type documentV1Alpha1 struct {
	sections
	// DataLayer says where endpoints and their figures come from.
	DataLayer dataLayerV1Alpha1 `json:"dataLayer"`
	// Data is the older name of dataLayer. It is deprecated.
	Data dataV1Alpha1 `json:"data"`
	// SaturationDetector names the plugin that says how full the pool is, or has the bounds of a utilization-detector.
	// It is deprecated: v1 has it in flowControl.
	SaturationDetector *detectorV1Alpha1 `json:"saturationDetector"`
	// Parser names what reads the bodies of requests. It is deprecated: v1 has requestHandler.parsers.
	Parser *pluginRef `json:"parser"`
}

// dataV1Alpha1 says which pages are read, in the oldest files.
type dataV1Alpha1 struct {
	// Sources are the pages of a model server that are read, unless dataLayer has some.
	Sources []sourceSection `json:"sources"`
}

// dataLayerV1Alpha1 says where endpoints and their figures come from.
type dataLayerV1Alpha1 struct {
	// InjectDefaults reads the metrics page of every model server without being told; absent = true.
	InjectDefaults *bool `json:"injectDefaults"`
	// Sources are the pages of a model server that are read.
	Sources []sourceSection `json:"sources"`
	// Discovery names a file-discovery; absent = the command line says where endpoints come from.
	Discovery *pluginRef `json:"discovery"`
	// PeerDiscovery names the plugin that finds other replicas of the picker.
	PeerDiscovery *pluginRef `json:"peerDiscovery" effect:"none"`
	// CrossReplicaSyncerPluginRef names the plugin that shares what replicas of the picker know.
	CrossReplicaSyncerPluginRef string `json:"crossReplicaSyncerPluginRef" effect:"none"`
	// CrossReplicaSyncInterval is the time between two messages to the other replicas.
	CrossReplicaSyncInterval time.Duration `json:"crossReplicaSyncInterval" effect:"warning"`
}

func newV1Alpha1() documentV1Alpha1 {
	return documentV1Alpha1{
		sections: newSections(), DataLayer: dataLayerV1Alpha1{CrossReplicaSyncInterval: defaultSyncInterval},
	}
}

// read decodes a file by the keys of its version, or by those of v1 if it names no known version. It reports whether
// there is a document.
func (l *loader) read(root *yaml.Node) (document, bool) {
	version := ""
	if n := strictyaml.Find(root, "apiVersion"); n != nil {
		version = n.Value
	}
	if version == v1alpha1 || version == oldGroup {
		old := newV1Alpha1()
		l.Decode(root, "", reflect.ValueOf(&old).Elem())
		l.effects("dataLayer", reflect.ValueOf(old.DataLayer), reflect.ValueOf(newV1Alpha1().DataLayer))
		doc := old.inV1()
		doc.older.oldest = version == oldGroup
		if doc.older.data {
			l.Warn("data", "deprecated, write dataLayer")
		}
		return doc, !l.Failed("")
	}
	doc := newDocument()
	l.Decode(root, "", reflect.ValueOf(&doc).Elem())
	fresh := newDocument().DataLayer
	l.effects("dataLayer.discovery", reflect.ValueOf(doc.DataLayer.Discovery), reflect.ValueOf(fresh.Discovery))
	l.effects("dataLayer.crossReplica", reflect.ValueOf(doc.DataLayer.CrossReplica),
		reflect.ValueOf(fresh.CrossReplica))
	return doc, !l.Failed("")
}

// inV1 returns the same document in v1. It leaves out what has no effect, of which read has entered the problems.
func (d *documentV1Alpha1) inV1() document {
	doc := newDocument()
	doc.sections = d.sections
	doc.DataLayer.InjectDefaults, doc.DataLayer.Sources = d.DataLayer.InjectDefaults, d.DataLayer.Sources
	doc.DataLayer.Discovery.Endpoints = d.DataLayer.Discovery
	doc.older = older{version: true, detector: d.SaturationDetector, parser: d.Parser}
	if len(d.Data.Sources) > 0 && len(d.DataLayer.Sources) == 0 {
		doc.DataLayer.Sources, doc.older.data = d.Data.Sources, true
	}
	return doc
}

// older holds what a file of v1alpha1 says under keys that v1 does not have.
type older struct {
	version  bool // the file is of v1alpha1
	oldest   bool // it names the API group that the format had first, whose plugins took any parameter
	data     bool // it names sources under data
	detector *detectorV1Alpha1
	parser   *pluginRef // nil = the file does not have the key, as of detector
}

// discovery returns the path under which the file names the source of its endpoints.
func (o older) discovery() string {
	if o.version {
		return "dataLayer.discovery"
	}
	return "dataLayer.discovery.endpoints"
}

// sources returns the path under which the file names its pages.
func (o older) sources() string {
	if o.data {
		return "data.sources"
	}
	return "dataLayer.sources"
}

// renamed maps former names of plugin types to the present ones. Their parameters mean the same.
var renamed = map[string]string{
	"by-label-selector": "label-selector-filter",
	"kv-cache-scorer":   "kv-cache-utilization-scorer",
	"max-score":         "max-score-picker",
	"prefill-header":    "prefill-header-handler",
	"prefix-cache":      "prefix-cache-scorer",
	"single-profile":    "single-profile-handler",
}

// replaced maps plugin types of older files to those that do the same. Their parameters are others.
var replaced = map[string]string{
	"by-label":           "label-selector-filter",
	"pd-profile-handler": "disagg-profile-handler",
}

// removed maps plugin types that the format no longer has to what to write instead.
var removed = map[string]string{
	"decision-tree-filter":        "list filters and scorers in a profile",
	"least-kv-cache-filter":       "write kv-cache-utilization-scorer",
	"least-queue-filter":          "write queue-scorer",
	"lora-affinity-filter":        "write lora-affinity-scorer",
	"low-queue-filter":            "write queue-scorer",
	"precise-prefix-cache-scorer": "write prefix-cache-scorer, for KV events over ZMQ are not read",
}

// detectorV1Alpha1 names a saturation detector or, in the oldest files, has the bounds of one.
type detectorV1Alpha1 struct {
	pluginRef
	// QueueDepthThreshold is that of a utilization-detector.
	QueueDepthThreshold *int `json:"queueDepthThreshold"`
	// KVCacheUtilThreshold is that of a utilization-detector.
	KVCacheUtilThreshold *float64 `json:"kvCacheUtilThreshold"`
	// MetricsStalenessThreshold is that of a utilization-detector.
	MetricsStalenessThreshold *time.Duration `json:"metricsStalenessThreshold"`
}

// olderDetector returns the detector of the key saturationDetector; nil = there is a problem with it.
func (l *loader) olderDetector(d *detectorV1Alpha1) *instance {
	const at = "saturationDetector"
	if d.PluginRef != "" {
		l.Warn(at, "deprecated, write flowControl.saturationDetector")
		return l.detectorAt(at, &d.pluginRef)
	}
	l.Warn(at, "deprecated, write a %s and name it in flowControl.saturationDetector", defaultDetector)
	if x := l.named[defaultDetector]; x != nil { // which has bounds of its own
		return l.detectorAt(at, &pluginRef{PluginRef: defaultDetector})
	}
	x := l.defaultDetector(defaultDetector)
	of := x.plugin.(*detectors.Utilization)
	set(&of.QueueDepthThreshold, d.QueueDepthThreshold)
	set(&of.KVCacheUtilThreshold, d.KVCacheUtilThreshold)
	set(&of.MetricsStalenessThreshold, d.MetricsStalenessThreshold)
	l.invalid(at, of.Validate())
	return x
}

// set gives a parameter the value that a file has for it, if any.
func set[T any](parameter, given *T) {
	if given != nil {
		*parameter = *given
	}
}

// olderNames moves the parameters that a plugin has under older names to the present ones. One whose present name is
// written too has no effect, and an empty text stands for the default.
func (l *loader) olderNames(at string, plugin reflect.Value) {
	moved := map[string]bool{}
	for _, f := range strictyaml.FieldsOf(plugin.Type()) {
		given := plugin.FieldByIndex(f.Index)
		if f.Older == "" || given.IsNil() {
			continue
		}
		value := given.Elem()
		given.SetZero()
		if value.Kind() == reflect.String && value.IsZero() {
			l.Warn(at+"."+f.Name, "deprecated, write %s", f.Older)
			continue
		}
		now := parameterAt(plugin, f.Older)
		taken := moved[f.Older] || l.Written(at+"."+f.Older)
		if taken && !now.Equal(value) {
			l.Warn(at+"."+f.Name, "has no effect beside %s", f.Older)
			continue
		}
		now.Set(value)
		moved[f.Older] = true
		l.Warn(at+"."+f.Name, "deprecated, write %s", f.Older)
	}
}

// parameterAt returns a parameter by its path.
func parameterAt(plugin reflect.Value, path string) reflect.Value {
	name, rest, nested := strings.Cut(path, ".")
	for _, f := range strictyaml.FieldsOf(plugin.Type()) {
		if f.Name != name {
			continue
		}
		if nested {
			return parameterAt(plugin.FieldByIndex(f.Index), rest)
		}
		return plugin.FieldByIndex(f.Index)
	}
	panic("no parameter " + path)
}

// settle takes what older files say of other plugins off a plugin, once its warnings are entered.
func (l *loader) settle(x *instance) {
	switch p := x.plugin.(type) {
	case *scorers.PrefixCache:
		l.index.blocks = max(
			l.index.blocks,
			l.capped(x.path+".parameters.lruCapacityPerServer", p.LRUCapacityPerServer),
		)
		l.index.add(x.path, p.PrefixCacheOlderNames)
		p.PrefixCacheOlderNames = scorers.PrefixCacheOlderNames{}
	case *OpenAIParser:
		l.config.SetsPriority = l.config.SetsPriority || p.PropagatePriority
		p.PropagatePriority = false
	case *ApproxPrefixCache:
		p.LRUCapacityPerServer = l.capped(x.path+".parameters.lruCapacityPerServer", p.LRUCapacityPerServer)
		l.index.blocks = max(l.index.blocks, p.LRUCapacityPerServer)
		l.index.sizes = append(l.index.sizes, p)
		standard := construct(prefixProducer).(*ApproxPrefixCache).BlockSizeTokens
		if n := p.BlockSizeTokens; n > 0 && n != standard && n < blockindex.BlockTokens {
			l.Warn(x.path+".parameters.blockSizeTokens", "got %d, which counts as %d, the least", n,
				blockindex.BlockTokens)
		}
	}
}

// nameDecider has a pd-profile-handler that names no decider ask the one that files of its time had under this name.
func (l *loader) nameDecider(x *instance) {
	const decider = "prefix-based-pd-decider"
	if p, ok := x.plugin.(*profiles.PrefillDecode); ok && p.DeciderPluginName == "" && l.named[decider] != nil {
		p.DeciderPluginName = decider
	}
}
