package config

import (
	"reflect"
	"slices"
	"strings"
)

// standsIn lists, by type, the parameters of which the default stands in for a value that is empty or not above 0, as
// in the reference, which says nothing of it.
var standsIn = map[string][]string{
	"active-request-scorer":         {"idleThreshold"},
	prefixProducer:                  {"blockSizeTokens", "maxPrefixBlocksToMatch"},
	coreExtractor:                   {"defaultEngine", "engineLabelKey"},
	"data-parallel-profile-handler": {"primaryPort"},
	"endpoint-attribute-filter":     {"onMissing"},
	"load-aware-scorer":             {"threshold"},
	"max-score-picker":              {"maxNumOfEndpoints"},
	"metrics-data-source":           {"path", "scheme"},
	"mm-embeddings-cache-producer":  {"cacheSizeInMBPerServer"},
	"models-data-source":            {"path", "scheme"},
	"no-hit-lru-scorer":             {"lruSize"},
	"p2p-source-producer":           {"prefillProfileName"},
	"prefix-cache-scorer":           {"matchLengthScaleTokens"},
	"random-picker":                 {"maxNumOfEndpoints"},
	"session-affinity-filter":       sessionsStandIn,
	"session-affinity-scorer":       sessionsStandIn,
	"topology-affinity-filter":      {"minAffinity"},
	"weighted-random-picker":        {"maxNumOfEndpoints"},
}

var sessionsStandIn = []string{"encodedEndpointHeaderConfig.header", "sessionIdConfig.evictionTtlSeconds"}

// standIn puts defaults in place of what Validate finds wrong of these parameters, with a warning each.
func (l *loader) standIn(x *instance, path string, wrong error) {
	for _, e := range problemsOf(wrong) {
		name, text, _ := strings.Cut(e.Error(), ": ")
		if !slices.Contains(standsIn[x.typ], name) {
			continue
		}
		got := parameterAt(reflect.ValueOf(x.plugin).Elem(), name)
		if got.Kind() == reflect.String && got.Len() > 0 || got.CanInt() && got.Int() > 0 ||
			got.CanFloat() && !(got.Float() <= 0) {
			continue
		}
		got.Set(parameterAt(reflect.ValueOf(construct(x.typ)).Elem(), name))
		l.Warn(path+"."+name, "%s; the default counts, %s", text, show(got))
	}
}

// problemsOf returns the errors that are joined in one.
func problemsOf(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
