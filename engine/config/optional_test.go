package config

import "testing"

// A series that a page may lack is taken as the reference has it, and nothing but a truth value says so.
func TestOptionalSeries(t *testing.T) {
	const data = newHead + "plugins:\n- type: queue-scorer\n- type: core-metrics-extractor\n  parameters:\n" +
		"    engineConfigs:\n    - {name: mine, queuedRequestsSpec: q, customMetrics: " +
		"[{attributeKey: a.b/c, metricSpec: x, optional: "
	for value, ok := range map[string]bool{"true": true, "false": true, "1": false} {
		if _, err := Load([]byte(data+value+"}]}\n"), three); (err == nil) != ok {
			t.Errorf("optional: %s: error %v, want one: %t", value, err, !ok)
		}
	}
}
