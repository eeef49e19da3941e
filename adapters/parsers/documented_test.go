package parsers

import (
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/config"
)

// The documentation of each parser names the ends of its paths.
func TestParsersNameTheirPaths(t *testing.T) {
	of := map[Formats]string{OpenAI: "openai-parser", Anthropic: "anthropic-parser", VLLM: "vllmhttp-parser",
		SGLang: "sglanghttp-parser", VLLMGRPC: "vllmgrpc-parser", VertexAI: "vertexai-parser"}
	texts := map[string]string{}
	for _, family := range (*config.Catalogue)(nil).Describe() {
		for _, p := range family.Plugins {
			texts[p.Type] = strings.NewReplacer(",", " ", ". ", " ").Replace(p.Text + " ")
		}
	}
	for _, s := range suffixes {
		if text := texts[of[s.of]]; !strings.Contains(text, "/"+s.end+" ") && !strings.Contains(text, " "+s.end+" ") {
			t.Errorf("%s does not name %s: %s", of[s.of], s.end, text)
		}
	}
}
