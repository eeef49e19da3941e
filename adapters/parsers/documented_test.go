package parsers

import (
	"os"
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

// The table of deploy/docs/prompts.md names each key, in each API that has it.
func TestKeysAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../deploy/docs/prompts.md")
	if err != nil {
		t.Fatal(err)
	}
	for f, api := range map[format]string{chatFormat: "chat", completionFormat: "completions",
		responsesFormat: "responses",
		messagesFormat:  "messages", tokensFormat: "vLLM generate", generateFormat: "SGLang generate"} {
		named := ""
		for line := range strings.Lines(string(text)) {
			if apis, _, _ := strings.Cut(
				strings.TrimPrefix(line, "| "),
				" |",
			); strings.Contains(
				", "+apis+",",
				", "+api+",",
			) {
				named += line
			}
		}
		for _, k := range keys {
			if k.in&(1<<f) != 0 && !strings.Contains(named, "`"+k.name+"`") {
				t.Errorf("no row of %s names %s", api, k.name)
			}
		}
	}
}
