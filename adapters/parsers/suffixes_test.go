package parsers_test

import (
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

// A path is of the format whose suffix it has, from the beginning of a name on; slashes at its ends do not count.
// A path of no format is read by none.
func TestSuffixes(t *testing.T) {
	for name, tc := range map[string]struct {
		formats parsers.Formats
		path    string
		want    messages.API
	}{
		"D16 exact":                 {parsers.OpenAI, "completions", messages.CompletionAPI},
		"D17 D18 D19 leading slash": {parsers.OpenAI, "/completions", messages.CompletionAPI},
		"D20 D25 behind a version": {parsers.OpenAI | parsers.Anthropic,
			"/v1/chat/completions", messages.ChatAPI},
		"D21 behind a dot": {parsers.VertexAI, "/google.cloud.aiplatform.v1beta1.PredictionService/ChatCompletions",
			messages.VertexChatAPI},
		"D26 another version": {parsers.VertexAI, "/google.cloud.aiplatform.v1.PredictionService/ChatCompletions",
			messages.VertexChatAPI},
		"D22 D28 no match":           {parsers.OpenAI, "/v1/other", 0},
		"D23 D24 D27 trailing slash": {parsers.OpenAI | parsers.Anthropic, "/v1/messages/", messages.MessagesAPI},
		"D30 the longest": {parsers.SGLang | parsers.VLLM,
			"/inference/v1/generate", messages.TokensAPI},
	} {
		t.Run(name, func(t *testing.T) {
			var got messages.Request
			kind, body := jsonType, []byte(`{"model":"m"}`)
			if tc.formats == parsers.VertexAI {
				kind, body = grpcType, wrapped(string(body))
			}
			err := parser.Of(tc.formats).Parse(tc.path, kind, "", body, &got)
			if err != nil || got.Form.API != tc.want {
				t.Errorf("API %v, model %q, error %v; want API %v", got.Form.API, got.Model, err, tc.want)
			}
		})
	}
}
