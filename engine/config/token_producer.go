package config

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/clip"
)

// TokenProducer states that the tokens of prompts are estimated, at 4 bytes a token: they always are, also without it.
// The reference can have vLLM count them instead, which makes every request wait for a second service.
type TokenProducer struct {
	// Backend is estimate; vllm is that service, which is refused.
	Backend string `json:"backend"`
	// ModelName is the model of that service.
	ModelName string `json:"modelName" effect:"warning"`
	// VLLM is that service, which is refused.
	VLLM *yaml.Node `json:"vllm"`
	// VLLMHTTP is the older name of vllm, and is refused too.
	VLLMHTTP *yaml.Node `json:"vllmHTTP"`
	// UDSTokenizerConfig is a tokenizer beside the picker, which is refused.
	UDSTokenizerConfig *yaml.Node `json:"udsTokenizerConfig"`
	// Estimate says how media count: an image, sound or file counts as at most 256 tokens.
	Estimate *yaml.Node `json:"estimate" effect:"warning"`
}

// Validate refuses a service.
func (p *TokenProducer) Validate() error {
	for _, service := range []struct {
		name  string
		given bool
	}{
		{"vllm", p.VLLM != nil}, {"vllmHTTP", p.VLLMHTTP != nil}, {"udsTokenizerConfig", p.UDSTokenizerConfig != nil},
		{"backend", p.Backend == "vllm"},
	} {
		if service.given {
			return fmt.Errorf("%s: the tokens are estimated, no service is asked; remove it", service.name)
		}
	}
	if p.Backend != "estimate" {
		return fmt.Errorf("backend: got %q, want estimate", clip.Value(p.Backend))
	}
	return nil
}
