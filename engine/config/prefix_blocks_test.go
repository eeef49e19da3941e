package config

import (
	"fmt"
	"testing"
)

// The prefix index keeps as many blocks as the plugin says that says most.
func TestLRUCapacityIsInForce(t *testing.T) {
	const plugin = "- {type: approx-prefix-cache-producer, name: %s, parameters: {lruCapacityPerServer: %d}}\n"
	for name, c := range map[string]struct {
		plugins string
		want    int
	}{
		"no plugin":    {"- type: queue-scorer\n", 0},
		"the default":  {"- type: approx-prefix-cache-producer\n", 31250},
		"one":          {fmt.Sprintf(plugin, "a", 5), 5},
		"as ours has":  {fmt.Sprintf(plugin, "a", 0), 0},
		"two of them":  {fmt.Sprintf(plugin, "a", 700) + fmt.Sprintf(plugin, "b", 600), 700},
		"the greatest": {fmt.Sprintf(plugin, "a", 1<<20), 1 << 20},
		"too great":    {fmt.Sprintf(plugin, "a", 4_000_000), 1 << 20},
		"of a scorer, as older files have it": {
			"- {type: prefix-cache-scorer, parameters: {lruCapacityPerServer: 900}}\n" +
				fmt.Sprintf(plugin, "a", 700), 900,
		},
		"too great at a scorer": {
			"- {type: prefix-cache-scorer, parameters: {lruCapacityPerServer: 4000000}}\n", 1 << 20,
		},
	} {
		got, err := Load([]byte(head+"plugins:\n"+c.plugins), three)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if blocks := got.Plan.PrefixBlocks(); blocks != c.want {
			t.Errorf("%s: %d blocks for each server, want %d", name, blocks, c.want)
		}
	}
}
