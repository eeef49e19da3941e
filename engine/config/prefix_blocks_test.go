package config

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

// Sizes of the prefix index are those of the first plugin that has them, with the largest capacity of all.
func TestSizesOfTheIndexAreInForce(t *testing.T) {
	const long = 1 << 14
	const plugin = "- {type: approx-prefix-cache-producer, name: %s, parameters: {%s}}\n"
	const scorer = "- {type: prefix-cache-scorer, parameters: {%s}}\n"
	standard := messages.PrefixSizes{Capacity: 31250, BlockTokens: 16, Tuned: true}
	keeping := func(blocks int) messages.PrefixSizes {
		return messages.PrefixSizes{Capacity: blocks, BlockTokens: 16, Tuned: true}
	}
	for name, c := range map[string]struct {
		plugins string
		want    messages.PrefixSizes
		most    int
	}{
		"no plugin":   {"- type: queue-scorer\n", standard, 2048},
		"the default": {"- type: approx-prefix-cache-producer\n", standard, 2048},
		"a capacity":  {fmt.Sprintf(plugin, "a", "lruCapacityPerServer: 5"), keeping(5), 2048},
		"as ours has": {fmt.Sprintf(plugin, "a", "lruCapacityPerServer: 0"), keeping(0), 2048},
		"two of them": {
			fmt.Sprintf(plugin, "a", "lruCapacityPerServer: 600") +
				fmt.Sprintf(plugin, "b", "lruCapacityPerServer: 700, blockSizeTokens: 128"), keeping(700), 2048,
		},
		"the greatest": {fmt.Sprintf(plugin, "a", "lruCapacityPerServer: 1048576"), keeping(1 << 20), 2048},
		"too great":    {fmt.Sprintf(plugin, "a", "lruCapacityPerServer: 4000000"), keeping(1 << 20), 2048},
		"not tuned": {
			fmt.Sprintf(plugin, "a", "autoTune: false, blockSizeTokens: 256, maxPrefixTokensToMatch: 0"),
			messages.PrefixSizes{Capacity: 31250, BlockTokens: 256}, 8192,
		},
		"the older name": {
			fmt.Sprintf(plugin, "a", "blockSize: 128"),
			messages.PrefixSizes{Capacity: 31250, BlockTokens: 128, Tuned: true}, 2048,
		},
		"few tokens": {fmt.Sprintf(plugin, "a", "maxPrefixTokensToMatch: 6400"), standard, 100},
		"all blocks": {fmt.Sprintf(plugin, "a", "maxPrefixTokensToMatch: 0, maxPrefixBlocksToMatch: 0"), standard, 0},
		"caches": {
			fmt.Sprintf(plugin, "a", "followCaches: true"),
			messages.PrefixSizes{Capacity: 31250, BlockTokens: 16, Tuned: true, Follows: true}, 2048,
		},
		"of a scorer, as older files have it": {
			fmt.Sprintf(scorer, "lruCapacityPerServer: 900") + fmt.Sprintf(plugin, "a", "lruCapacityPerServer: 700"),
			keeping(900), 2048,
		},
		"of a scorer alone": {
			fmt.Sprintf(scorer,
				"autoTune: false, blockSizeTokens: 128, maxPrefixBlocksToMatch: 10, lruCapacityPerServer: 9"),
			messages.PrefixSizes{Capacity: 9, BlockTokens: 128}, 20,
		},
		"too great at a scorer": {fmt.Sprintf(scorer, "lruCapacityPerServer: 4000000"), keeping(1 << 20), 2048},
	} {
		got, err := Load([]byte(head+"plugins:\n"+c.plugins), three)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		blocks := got.Plan.Counted(&messages.Request{Blocks: messages.TakeList(make([]uint64, long))}).Len()
		if sizes := got.Plan.Prefixes(); sizes != c.want || blocks != cmp.Or(c.most, long) {
			t.Errorf("%s: %+v, and %d blocks of a prompt; want %+v and %d", name, sizes, blocks, c.want, c.most)
		}
	}
	without, err := Default(three)
	if err != nil {
		t.Fatal(err)
	}
	if !without.Plan.Prefixes().Follows {
		t.Error("without a file the index does not follow caches")
	}
}

// The prefix index is asked where a plugin reads it, and where a file has a producer of it.
func TestIndexOfAFileIsAsked(t *testing.T) {
	for plugins, want := range map[string]bool{
		"- type: token-load-scorer\n":                                       false,
		"- type: token-load-scorer\n- type: approx-prefix-cache-producer\n": true,
		"- type: prefix-cache-scorer\n":                                     true,
	} {
		got, err := Load([]byte(head+"plugins:\n"+plugins+
			"schedulingProfiles: [{name: p, plugins: [{pluginRef: "+strings.Fields(plugins)[2]+"}]}]\n"), three)
		if err != nil {
			t.Fatal(err)
		}
		if asked := got.Plan.Layout().Reads(attributes.PrefixBlocks); asked != want {
			t.Errorf("%q: the index is asked: %t, want %t", plugins, asked, want)
		}
	}
}

// What is less than a block at the end of a prompt counts as one, as in the reference, unless the index follows caches
// or is not asked.
func TestRestOfAPromptIsABlock(t *testing.T) {
	for plugins, want := range map[string]int{
		"- type: prefix-cache-scorer\n": 3,
		"- type: queue-scorer\n":        2,
		"- type: prefix-cache-scorer\n- {type: approx-prefix-cache-producer, parameters: {followCaches: true}}\n": 2,
		"- type: prefix-cache-scorer\n- {type: approx-prefix-cache-producer, parameters: {maxPrefixTokensToMatch: " +
			"128}}\n": 2,
	} {
		got, err := Load([]byte(head+"plugins:\n"+plugins), three)
		if err != nil {
			t.Fatal(err)
		}
		of := &messages.Request{Blocks: messages.ListOf[uint64](1, 2, 3), Rest: true}
		if n := got.Plan.Counted(of).Len(); n != want || of.Blocks.Len() != 3 {
			t.Errorf("%q: %d blocks count of two and a rest, want %d", plugins, n, want)
		}
	}
}
