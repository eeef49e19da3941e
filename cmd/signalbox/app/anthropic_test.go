package app

import (
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

// Errors have the style of the Anthropic API where its parser reads the requests, and nowhere else.
func TestErrorsHaveTheStyleOfTheParser(t *testing.T) {
	parser := parsers.New(parsers.Config{}).Of(parsers.Anthropic)
	styled := 0
	agrees := func(path string) {
		var req messages.Request // a body that is no JSON is a mistake where a parser reads it
		read := parser.Parse(path, "application/json", "", []byte(`{"model":`), &req) != nil
		if got := extproc.Anthropic(path); got != read {
			t.Errorf("%s: Anthropic style %v, read %v", path, got, read)
		}
		if read {
			styled++
		}
	}
	for _, end := range []string{
		"messages", "messages/count_tokens", "messages/render", "messages/batches", "chat/completions",
		"chat/completions/render", "completions", "responses", "embeddings", "conversations", "generate",
		"inference/v1/generate", "Messages", "vllm.grpc.engine.VllmEngine/Generate",
	} {
		for _, prefix := range []string{"", "/", "/v1/", "/a/v1/", "/a.", "/a", "/a?b=/"} {
			for _, tail := range []string{"", "/", "//", "?a=b", "/?a=b", "#a", "/x"} {
				agrees(prefix + end + tail)
			}
		}
	}
	if styled < 20 {
		t.Errorf("%d paths have the style", styled)
	}
}
