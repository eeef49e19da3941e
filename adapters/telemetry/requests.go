package telemetry

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/signalbox-epp/signalbox/messages"
)

// Requests writes one line for a request at its end. The logger samples them.
type Requests struct {
	log     *zap.Logger
	address func(messages.EndpointID) messages.Address
	id      func(messages.RequestID) string
}

// NewRequests logs to log.
func NewRequests(log *zap.Logger, address func(messages.EndpointID) messages.Address, id func(messages.RequestID) string) *Requests {
	return &Requests{log: log, address: address, id: id}
}

// Report writes the line of a request. It builds no field for a level that is off.
func (q *Requests) Report(r *messages.Record) {
	text := "request served"
	if r.Reason != messages.NoReason {
		text = "request not served"
	}
	if !q.log.Core().Enabled(zapcore.InfoLevel) {
		return
	}
	line := q.log.Check(zapcore.InfoLevel, text)
	if line == nil {
		return
	}
	score, runner, lead := scores(r)
	line.Write(
		zap.String("request", q.id(r.Request)), zap.String("x-request-id", r.ClientID), zap.String("model", r.Model),
		zap.String("fairness_id", r.Flow.Fairness), zap.String("endpoint", string(q.address(r.Served))),
		zap.Float32("score", score), zap.Float32("runner_up", runner), zap.Float32("lead", lead),
		zap.Duration("queue_wait", r.QueueWait), zap.Duration("ttft", r.FirstToken), zap.Duration("duration", r.Ended),
		zap.Int("status", r.Status), zap.String("reason", r.Reason.String()), zap.Duration("sample_age", r.SampleAge), zap.Bool("stale_samples", r.Decision.Stale),
		zap.Int("prompt_tokens", r.PromptTokens), zap.Int("output_tokens", r.Usage.OutputTokens),
	)
}

// scores are the total of the pick, of the runner-up, and the difference; zero where there is none.
func scores(r *messages.Record) (pick, runner, lead float32) {
	n := r.Decision.Profiles.Len()
	if n == 0 {
		return 0, 0, 0
	}
	p := r.Decision.Profiles.At(n - 1)
	if p.Ranked.Len() == 0 {
		return 0, 0, 0
	}
	pick = p.Totals.At(int(p.Ranked.At(0)))
	if p.Runner < 0 {
		return pick, 0, pick
	}
	runner = p.Totals.At(p.Runner)
	return pick, runner, pick - runner
}
