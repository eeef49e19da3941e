package config

import (
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// document is a file of version v1 as it is written. The tag effect says which values are read and mean nothing: of
// those marked none only the default is accepted, those marked warning are accepted with one.
type document struct {
	sections
	DataLayer dataLayerSection `json:"dataLayer"`

	older older // zero in a file of v1
}

// sections are written alike in every version.
type sections struct {
	APIVersion         string             `json:"apiVersion"`
	Kind               string             `json:"kind"`
	FeatureGates       []string           `json:"featureGates"`
	Plugins            []pluginSection    `json:"plugins"`
	SchedulingProfiles []profileSection   `json:"schedulingProfiles"`
	FlowControl        flowControlSection `json:"flowControl"`
	RequestHandler     requestSection     `json:"requestHandler"`
}

// pluginRef names one plugin.
type pluginRef struct {
	PluginRef string `json:"pluginRef"`
}

type pluginSection struct {
	Name       string     `json:"name"`
	Type       string     `json:"type"`
	Parameters *yaml.Node `json:"parameters"`
}

type profileSection struct {
	Name    string         `json:"name"`
	Plugins []entrySection `json:"plugins"`
}

type entrySection struct {
	PluginRef string   `json:"pluginRef"`
	Weight    *float64 `json:"weight"`
}

type requestSection struct {
	Parsers           []pluginRef `json:"parsers"`
	PropagatePriority bool        `json:"propagatePriority" effect:"none"`
}

type dataLayerSection struct {
	InjectDefaults *bool               `json:"injectDefaults"`
	Sources        []sourceSection     `json:"sources"`
	Discovery      discoverySection    `json:"discovery"`
	CrossReplica   crossReplicaSection `json:"crossReplica"`
}

type discoverySection struct {
	Endpoints *pluginRef `json:"endpoints"`
	Peers     *pluginRef `json:"peers" effect:"none"`
}

type crossReplicaSection struct {
	SyncerPluginRef string        `json:"syncerPluginRef" effect:"none"`
	SyncInterval    time.Duration `json:"syncInterval" effect:"none"`
	PublishTimeout  time.Duration `json:"publishTimeout" effect:"none"`
}

type sourceSection struct {
	PluginRef  string      `json:"pluginRef"`
	Extractors []pluginRef `json:"extractors"`
}

type flowControlSection struct {
	MaxBytes                    strictyaml.Quantity `json:"maxBytes" effect:"none"`
	MaxRequests                 strictyaml.Quantity `json:"maxRequests" effect:"none"`
	DefaultRequestTTL           time.Duration       `json:"defaultRequestTTL" effect:"none"`
	NoEndpointRequestTTL        *time.Duration      `json:"noEndpointRequestTTL"`
	DefaultPriorityBand         *bandSection        `json:"defaultPriorityBand"`
	DefaultNegativePriorityBand *bandSection        `json:"defaultNegativePriorityBand"`
	PriorityBands               []bandSection       `json:"priorityBands"`
	UsageLimitPolicyPluginRef   string              `json:"usageLimitPolicyPluginRef"`
	SaturationDetector          *pluginRef          `json:"saturationDetector"`
	EnableEviction              bool                `json:"enableEviction" effect:"none"`
}

type bandSection struct {
	Priority          int                 `json:"priority" effect:"none"`
	MaxBytes          strictyaml.Quantity `json:"maxBytes"`
	MaxRequests       strictyaml.Quantity `json:"maxRequests"`
	DefaultRequestTTL *time.Duration      `json:"defaultRequestTTL"`
	FairnessPolicyRef string              `json:"fairnessPolicyRef"`
	OrderingPolicyRef string              `json:"orderingPolicyRef"`
}

const (
	defaultTTL          = 60 * time.Second
	defaultSyncInterval = 200 * time.Millisecond
)

// newDocument holds the defaults of everything that stands outside lists.
func newDocument() document {
	return document{sections: newSections(), DataLayer: dataLayerSection{CrossReplica: newCrossReplica()}}
}

func newSections() sections {
	return sections{FlowControl: flowControlSection{DefaultRequestTTL: defaultTTL}}
}

func newCrossReplica() crossReplicaSection {
	return crossReplicaSection{SyncInterval: defaultSyncInterval}
}
