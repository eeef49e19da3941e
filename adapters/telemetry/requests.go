package telemetry

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/signalbox-epp/signalbox/messages"
)

// Requests writes one line for each request when it has ended.
type Requests struct {
	log     *zap.Logger // nil = none is written
	detail  int
	address func(messages.EndpointID) messages.Address
	id      func(messages.RequestID) string
	passed  passedOver
}

// NewRequests returns a writer of lines to log, as detailed as the verbosity of log.
func NewRequests(log *Log, address func(messages.EndpointID) messages.Address,
	id func(messages.RequestID) string) *Requests {
	return &Requests{log: log.requests, detail: log.detail, address: address, id: id,
		passed: passedOver{log: log.Logger}}
}

// Report writes the line of a request. It builds no field for a line that is not written.
func (q *Requests) Report(r *messages.Record) {
	q.passed.look(r, q.address)
	if q.log == nil {
		return
	}
	line := q.log.Check(zapcore.InfoLevel, came(r))
	if line == nil {
		return
	}
	score, runner, lead := scores(r)
	fields := []zap.Field{
		zap.String("request", q.id(r.Request)), zap.String("x-request-id", r.ClientID), zap.String("model", r.Model),
		zap.String("fairness_id", r.Flow.Fairness), zap.Int("priority", r.Flow.Priority),
		zap.String("endpoint", string(servedBy(r, q.address))),
		zap.Float32("score", score), zap.Float32("runner_up", runner), zap.Float32("lead", lead),
		zap.Duration("queue_wait", r.QueueWait), zap.Duration("duration", r.Ended),
		zap.Int("status", r.Status), zap.String("reason", r.Reason.String()), zap.Duration("sample_age", r.SampleAge),
		zap.Bool("stale_samples", r.Decision.Stale),
		zap.String("usage", r.Usage.Source.String()),
	}
	if r.Target != "" {
		fields = append(fields, zap.String("target_model", r.Target))
	}
	if r.RewriteLeft != messages.NothingLeft {
		fields = append(fields, zap.String("rewrite_not_made", r.RewriteLeft.String()))
	}
	fields = appendKnown(appendWait(fields, &r.Wait), r)
	if r.Local != "" {
		fields = append(fields, zap.String("envoy_says", r.Local))
	}
	if q.detail >= withScores {
		fields = append(fields, zap.Object("scores", totals{r, q.address}))
		fields = appendRead(fields, r)
	}
	if q.detail >= withEvents {
		fields = append(fields, zap.Array("messages", events{r.Events}))
	}
	line.Write(fields...)
}

// appendWait appends how a request waited for room, if its configuration has a gate.
func appendWait(fields []zap.Field, w *messages.Wait) []zap.Field {
	if w.Outcome == messages.NoOutcome {
		return fields
	}
	fields = append(fields, zap.String("queue_outcome", w.Outcome.String()))
	if w.Cause == messages.NoCause {
		return fields
	}
	return append(fields, zap.String("queue_cause", w.Cause.String()), zap.Int("queue_ahead", w.Ahead),
		zap.Int("queue_turns_failed", w.Failed))
}

// appendKnown appends what is known of some requests only. A number that is unknown has no field, so that 0 always
// means zero.
func appendKnown(fields []zap.Field, r *messages.Record) []zap.Field {
	if r.Headers > 0 {
		fields = append(fields, zap.Duration("response_headers", r.Headers))
	}
	if r.FirstToken > 0 {
		fields = append(fields, zap.Duration("ttft", r.FirstToken))
	}
	u := &r.Usage
	if u.CachedKnown {
		fields = append(fields, zap.Int("cached_tokens", u.CachedTokens))
	}
	if u.PromptKnown {
		fields = append(fields, zap.Int("prompt_tokens", u.PromptTokens))
	} else if r.PromptTokens > 0 {
		fields = append(fields, zap.Int("prompt_tokens_estimated", r.PromptTokens))
	}
	switch u.Source {
	case messages.UsageReported:
		fields = append(fields, zap.Int("output_tokens", u.OutputTokens))
	case messages.UsageEstimated:
		fields = append(fields, zap.Int("output_tokens_estimated", u.OutputTokens))
	}
	return fields
}

// came returns the text of the line, which says what became of the request.
func came(r *messages.Record) string {
	switch {
	case r.Local != "" && (r.Reason == messages.NoReason || r.Reason == messages.ServerGone):
		return "request answered by Envoy itself" // the access log may say so before the headers of the answer do
	case r.Reason == messages.ClientGone:
		return "request left by its client"
	case r.Reason == messages.Lost:
		return "request lost from sight"
	case r.Reason != messages.NoReason:
		return "request not served"
	case r.Status >= 400:
		return "request answered with an error"
	}
	return "request served"
}

// servedBy returns the server that answered, in the pool or not; "" = none did.
func servedBy(r *messages.Record, address func(messages.EndpointID) messages.Address) messages.Address {
	if r.Elsewhere != "" {
		return r.Elsewhere
	}
	return address(r.Served)
}

// scores returns the total of the pick, that of the runner-up, and the difference; each is zero if it does not exist.
func scores(r *messages.Record) (pick, runner, lead float32) {
	p, ok := primary(r)
	if !ok || p.Ranked.Len() == 0 {
		return 0, 0, 0
	}
	pick = p.Totals.At(int(p.Ranked.At(0)))
	if p.Runner < 0 {
		return pick, 0, pick
	}
	runner = p.Totals.At(p.Runner)
	return pick, runner, pick - runner
}

// primary returns the profile run whose pick served. It returns false if there was no pick.
func primary(r *messages.Record) (messages.ProfileRun, bool) {
	d := &r.Decision
	if d.Primary < 0 || d.Primary >= d.Profiles.Len() {
		return messages.ProfileRun{}, false
	}
	return d.Profiles.At(d.Primary), true
}

// totals encodes the scores of all endpoints that no filter dropped.
type totals struct {
	r       *messages.Record
	address func(messages.EndpointID) messages.Address
}

// MarshalLogObject writes a number for each address.
func (t totals) MarshalLogObject(e zapcore.ObjectEncoder) error {
	p, ok := primary(t.r)
	if !ok {
		return nil
	}
	for i, total := range p.Totals.All() {
		if total >= 0 {
			e.AddFloat32(string(t.address(t.r.Decision.Endpoints.At(i))), total)
		}
	}
	return nil
}

// appendRead appends what plugins read of the pick and of the runner-up.
func appendRead(fields []zap.Field, r *messages.Record) []zap.Field {
	p, ok := primary(r)
	if !ok || p.Values.Len() == 0 {
		return fields
	}
	fields = append(fields, zap.Object("read", read{&p, 0}))
	if p.Runner >= 0 {
		fields = append(fields, zap.Object("runner_up_read", read{&p, p.Reads.Len()}))
	}
	return fields
}

// read encodes the numbers that plugins read of one endpoint, from an index of Values on.
type read struct {
	run  *messages.ProfileRun
	from int
}

// MarshalLogObject writes a number for each attribute that is known.
func (v read) MarshalLogObject(e zapcore.ObjectEncoder) error {
	for i, name := range v.run.Reads.All() {
		if at := v.from + i; at < v.run.Values.Len() && v.run.Values.At(at) == v.run.Values.At(at) {
			e.AddFloat32(name, v.run.Values.At(at))
		}
	}
	return nil
}

// events encodes the messages of a request.
type events struct {
	list messages.List[messages.RecordEvent]
}

// MarshalLogArray writes an object for each message.
func (v events) MarshalLogArray(e zapcore.ArrayEncoder) error {
	for _, each := range v.list.All() {
		err := e.AppendObject(zapcore.ObjectMarshalerFunc(func(o zapcore.ObjectEncoder) error {
			o.AddString("message", each.Name)
			o.AddDuration("at", each.At)
			o.AddDuration("waited", each.Waited)
			o.AddDuration("took", each.Took)
			return nil
		}))
		if err != nil {
			return err
		}
	}
	return nil
}
