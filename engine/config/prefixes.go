package config

import (
	"cmp"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/scorers"
	"github.com/signalbox-epp/signalbox/messages"
)

// prefixIndex is what the plugins of a file say of the prefix index, which they share.
type prefixIndex struct {
	blocks int                  // for each server, the most that a plugin asks for; 0 = none
	sizes  []*ApproxPrefixCache // in the order of the file
	older  []olderSizes         // likewise
}

// olderSizes are those that a scorer of an older file has.
type olderSizes struct {
	path string // of the scorer
	scorers.PrefixCacheOlderNames
}

// inForce returns the sizes that hold: those of the first producer of the file, or else of the first scorer that has
// some, or else those that a producer has by default. The largest capacity of all goes before theirs.
func (p *prefixIndex) inForce() ApproxPrefixCache {
	if len(p.sizes) > 0 {
		of := *p.sizes[0]
		of.LRUCapacityPerServer = p.blocks
		return of
	}
	of := *construct(prefixProducer).(*ApproxPrefixCache)
	if len(p.older) > 0 {
		first := &p.older[0]
		if first.AutoTune != nil {
			of.AutoTune = *first.AutoTune
		}
		of.BlockSizeTokens = cmp.Or(first.BlockSizeTokens, first.BlockSize, of.BlockSizeTokens)
		of.MaxPrefixBlocksToMatch = cmp.Or(first.MaxPrefixBlocksToMatch, of.MaxPrefixBlocksToMatch)
		of.MaxPrefixTokensToMatch = cmp.Or(first.MaxPrefixTokensToMatch, of.MaxPrefixTokensToMatch)
		if first.BoundsBlocks() {
			of.MaxPrefixTokensToMatch = 0
		}
	}
	of.LRUCapacityPerServer = cmp.Or(p.blocks, of.LRUCapacityPerServer)
	return of
}

// add notes the sizes of a scorer.
func (p *prefixIndex) add(path string, of scorers.PrefixCacheOlderNames) {
	if of.AutoTune != nil || of.BlockSizeTokens+of.BlockSize+of.MaxPrefixBlocksToMatch+of.MaxPrefixTokensToMatch > 0 {
		p.older = append(p.older, olderSizes{path, of})
	}
}

// named reports whether a plugin of the file says something of the index.
func (p *prefixIndex) named() bool {
	return p.inForce() != *construct(prefixProducer).(*ApproxPrefixCache) || p.blocks > 0
}

// keepPrefixes has the plan keep as much of prompts as the file says.
func (l *loader) keepPrefixes() {
	for i := range l.index.older {
		if i > 0 || len(l.index.sizes) > 0 {
			l.Warn(
				l.index.older[i].path+".parameters",
				"sizes of the prefix index have no effect beside those that another plugin has",
			)
		}
	}
	of := l.index.inForce()
	sizes := messages.PrefixSizes{
		Capacity:    of.LRUCapacityPerServer,
		BlockTokens: of.BlockSizeTokens,
		Tuned:       of.AutoTune,
		Follows:     of.FollowCaches,
	}
	most := of.MaxPrefixBlocksToMatch * blockindex.Unit(sizes, blockindex.CacheSize{})
	if of.MaxPrefixTokensToMatch > 0 {
		most = of.MaxPrefixTokensToMatch
	}
	l.config.Plan.KeepPrefixes(sizes, most/blockindex.BlockTokens)
}

// capped bounds how many blocks of a server the index keeps.
func (l *loader) capped(path string, blocks int) int {
	if blocks > blockindex.MaxCapacity {
		l.Warn(path, "got %d, which counts as %d, the most", blocks, blockindex.MaxCapacity)
	}
	return min(blocks, blockindex.MaxCapacity)
}
