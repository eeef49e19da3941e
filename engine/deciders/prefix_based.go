package deciders

import (
	"errors"
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// PrefixBased has a prompt read by a prefill server if enough of it is new to the decode server.
type PrefixBased struct {
	// NonCachedTokens is the number of prompt tokens from which a prefill server reads them, not counting those that
	// the decode server has in its cache; 0 = never. If the decode server is not picked yet, all tokens count. What is
	// cached is known by blocks of 64 tokens: if the server has all whole blocks of a prompt, the rest counts as cached
	// too.
	NonCachedTokens int `json:"nonCachedTokens"`
	// PromptTokens is the length in tokens below which the decode server reads any prompt itself.
	PromptTokens int `json:"promptTokens"`
	// PrefixMatchInfoProducerName names the approx-prefix-cache-producer whose index is read; empty = the only one.
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName" names:"approx-prefix-cache-producer"`

	blocks attributes.NumberSlot
}

// Adapt says that a length has no effect where no prefill server reads any prompt.
func (p *PrefixBased) Adapt() (warnings []error) {
	if p.PromptTokens > 0 && p.NonCachedTokens == 0 {
		warnings = append(warnings, errors.New("promptTokens: has no effect, for nonCachedTokens is 0: no prefill "+
			"server reads a prompt"))
	}
	return warnings
}

// Validate returns which parameters are out of range.
func (p *PrefixBased) Validate() error {
	var errs []error
	if p.NonCachedTokens < 0 {
		errs = append(errs, fmt.Errorf("nonCachedTokens: got %d, want 0 or more", p.NonCachedTokens))
	}
	if p.PromptTokens < 0 {
		errs = append(errs, fmt.Errorf("promptTokens: got %d, want 0 or more", p.PromptTokens))
	}
	return errors.Join(errs...)
}

// Declare asks for the lead blocks that endpoints hold.
func (p *PrefixBased) Declare(r *attributes.Reader) {
	p.blocks = r.Number(attributes.PrefixBlocks.Name, p.PrefixMatchInfoProducerName)
}

// Decide compares the tokens that are not cached with the threshold.
func (p *PrefixBased) Decide(c *schedule.Course, decode int) bool {
	tokens := c.Request().PromptTokens()
	if p.NonCachedTokens == 0 || tokens < p.PromptTokens {
		return false
	}
	if decode >= 0 {
		cached := int(c.Number(p.blocks, decode))
		if all := c.Request().PromptBlocks(); cached > 0 && cached >= all && all < blockindex.MaxBlocks {
			return false // what is left is in no block, so it is not known whether it is new
		}
		tokens -= cached * blockindex.BlockTokens
	}
	return tokens >= p.NonCachedTokens
}
