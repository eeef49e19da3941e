package blockindex

import "github.com/signalbox-epp/signalbox/messages"

// MaxCapacity is how many blocks the index keeps for an endpoint, whatever is asked for: some 60 MB of it.
const MaxCapacity = 1 << 20

// CacheSize is what the page of an endpoint says of its cache; 0 = it does not say.
type CacheSize struct {
	Blocks      int
	BlockTokens int // of each
}

// firstBytesPerToken is how many bytes of a prompt a token has until answers tell.
const firstBytesPerToken = 4.0

// Unit returns how many tokens the blocks have by which prompts are compared. own is what the page of an endpoint says
// of its cache.
func Unit(s messages.PrefixSizes, own CacheSize) int {
	if s.Tuned && own.BlockTokens > 0 {
		return max(own.BlockTokens, BlockTokens)
	}
	return max(s.BlockTokens, BlockTokens)
}

// Kept returns how many blocks the index keeps for an endpoint; 0 = its default. A token has so many bytes of prompt.
func Kept(s messages.PrefixSizes, own CacheSize, bytesPerToken float64) int {
	blocks := float64(s.Capacity) * float64(Unit(s, own)) / BlockTokens
	switch {
	case s.Follows && own.Blocks > 0 && own.BlockTokens > 0:
		blocks = max(float64(own.Blocks)*float64(own.BlockTokens)*bytesPerToken/BlockBytes, 1)
	case s.Tuned && own.Blocks > 0:
		blocks = float64(own.Blocks) * float64(Unit(s, own)) / BlockTokens
	}
	return int(min(blocks, MaxCapacity))
}

// Whole returns how many lead blocks of a prompt count, of so many that an endpoint holds: those of whole units, or all
// if it holds all of the prompt.
func Whole(held, prompt, unit int) int {
	if held == prompt {
		return held
	}
	return held * BlockTokens / unit * unit / BlockTokens
}

// TokenBytes learns how many bytes of a prompt a token has, by model.
type TokenBytes map[string]float64

// Bounds of what is learned.
const (
	mostModels         = 1024
	leastLearnedBlocks = 8 // of a prompt, so that its rest of less than a block does not matter
	mostBytesPerToken  = 16
	learnedShare       = 1.0 / 16 // of the difference that one answer makes
)

// Of returns how many bytes a token of a model has.
func (b TokenBytes) Of(model string) float64 {
	if known := b[model]; known > 0 {
		return known
	}
	return firstBytesPerToken
}

// Learn takes how many tokens a server has counted in a prompt. Those of media are not told by bytes.
func (b TokenBytes) Learn(p Prompt, m messages.ReportedPrompt) {
	blocks := p.Blocks.Len()
	if blocks < leastLearnedBlocks || blocks == MaxBlocks || m.PromptTokens == 0 || m.Media > 0 {
		return
	}
	if _, known := b[p.Model]; !known && len(b) == mostModels {
		return
	}
	each := min(max((float64(blocks)+0.5)*BlockBytes/float64(m.PromptTokens), 1), mostBytesPerToken)
	b[p.Model] = b.Of(p.Model) + (each-b.Of(p.Model))*learnedShare
}
