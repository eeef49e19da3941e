package points_test

import (
	"testing"

	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestOutputLength(t *testing.T) {
	for name, c := range map[string]struct {
		hints messages.OutputHints
		limit int
		want  points.Length
	}{
		"nothing":           {messages.OutputHints{}, 0, points.UnknownLength},
		"thinks":            {messages.OutputHints{Thinking: true}, 0, points.LongAnswer},
		"thinks with tools": {messages.OutputHints{Thinking: true, Tools: true}, 100, points.LongAnswer},
		"budget":            {messages.OutputHints{ThinkingTokens: 4001}, 0, points.LongAnswer},
		"small budget":      {messages.OutputHints{ThinkingTokens: 4000}, 0, points.UnknownLength},
		"budget that is not used": {messages.OutputHints{ThinkingTokens: 9000, NoThinking: true}, 0,
			points.UnknownLength},
		"tools":                       {messages.OutputHints{Tools: true}, 0, points.ShortAnswer},
		"tools, and no thinking":      {messages.OutputHints{Tools: true, NoThinking: true}, 4096, points.ShortAnswer},
		"limit":                       {messages.OutputHints{}, 499, points.ShortAnswer},
		"limit that is not short":     {messages.OutputHints{}, 500, points.UnknownLength},
		"limit of one that may think": {messages.OutputHints{ThinkingTokens: 5000}, 100, points.LongAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			r := scheduletest.Request()
			r.Hints, r.OutputTokens = c.hints, c.limit
			scheduletest.Show(t, nil, r, func(in *schedule.Input) {
				got := points.Types["outlen-bucket"]().(*points.OutputLength).Length(in.Request())
				if got != c.want {
					t.Errorf("got %d, want %d", got, c.want)
				}
			}, scheduletest.Endpoint{})
		})
	}
}
