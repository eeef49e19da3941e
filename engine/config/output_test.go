package config

import (
	"testing"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// The load of a request has the output that its file, its answer's length and its client let one expect.
func TestOutputIsCountedAsLoad(t *testing.T) {
	const producer = "{type: inflight-load-producer, parameters: {addEstimatedOutputTokens: true"
	thinks, tools := messages.OutputHints{Thinking: true}, messages.OutputHints{Tools: true}
	for name, c := range map[string]struct {
		plugins string
		hints   messages.OutputHints
		limit   int
		want    int // beside the 1000 tokens of the prompt
	}{
		"not counted":          {"{type: outlen-bucket}, {type: token-load-scorer}", thinks, 0, 0},
		"by the prompt":        {producer + "}}", messages.OutputHints{}, 0, 1500},
		"by a ratio":           {producer + ", outputRatio: 0.25}}", messages.OutputHints{}, 0, 250},
		"without a bucket":     {producer + "}}", thinks, 0, 1500},
		"long":                 {producer + "}}, {type: outlen-bucket}", thinks, 0, 4096},
		"short":                {"{type: outlen-bucket}, " + producer + "}}", tools, 0, 100},
		"neither":              {producer + "}}, {type: outlen-bucket}", messages.OutputHints{}, 0, 1500},
		"long, limited":        {producer + "}}, {type: outlen-bucket}", thinks, 700, 700},
		"short by a low limit": {producer + "}}, {type: outlen-bucket}", messages.OutputHints{}, 50, 50},
		"long, bounded": {producer + ", maxEstimatedOutputTokens: 2000}}, {type: outlen-bucket}", thinks, 3000,
			2000},
		"bounded by nothing": {producer + ", maxEstimatedOutputTokens: 0}}", messages.OutputHints{}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := Load([]byte(newHead+"plugins: ["+c.plugins+"]"), three)
			if err != nil {
				t.Fatal(err)
			}
			r := &messages.Request{PromptTokens: 1000, Hints: c.hints, OutputTokens: c.limit}
			if got := cfg.Plan.Work(r, -1); got.Prompt != 1000 {
				t.Errorf("without an index the load is %d tokens of the prompt, want 1000", got.Prompt)
			}
			if got := cfg.Plan.Work(r, 384); got != (endpoints.Work{Prompt: 640, Output: c.want}) {
				t.Errorf("the load is %+v, want 640 and %d", got, c.want)
			}
		})
	}
}
