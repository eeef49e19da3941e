package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
)

// An attribute of a file has any name, also that of a built-in one, which plugins that know it read all the same.
func TestOwnAttributesHaveAnyName(t *testing.T) {
	for _, name := range []string{"custom.depth", "depth", "with space", "a/b/c", "\u00e4", "{x}", "queued-requests",
		strings.Repeat("x", 253)} {
		file := fmt.Sprintf("plugins: [{type: queue-scorer}, {type: endpoint-attribute-scorer, parameters: "+
			"{attributeKey: %[1]q}}, {type: core-metrics-extractor, parameters: {engineConfigs: [{name: vllm, "+
			"customMetrics: [{attributeKey: %[1]q, metricSpec: depth}]}]}}]\n", name)
		got, err := Load([]byte(newHead+file), three)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		want := []attributes.Attribute{attributes.QueuedRequests, {Name: name}}
		if all := got.Plan.Layout().Of(attributes.Number); !slices.Equal(all, want) {
			t.Errorf("%q: plugins read %v, want %v", name, all, want)
		}
		if len(got.Extractions) != 1 || got.Extractions[0].Name != name || got.Extractions[0].Metric != "depth" {
			t.Errorf("%q: takes %+v", name, got.Extractions)
		}
	}
}
