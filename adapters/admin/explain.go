package admin

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// explain returns one request as a page for a terminal. all shows every endpoint, however many.
func explain(r *requestView, all bool) string {
	var b strings.Builder
	identity(&b, r)
	b.WriteString("\n")
	times(&b, r)
	b.WriteString("\n")
	ending(&b, r)
	b.WriteString("\n")
	handled(&b, r)
	hopping(&b, r.Hops)
	if r.Decision == nil {
		b.WriteString("\nno endpoint was looked for\n")
		return b.String()
	}
	decision(&b, r, all)
	return b.String()
}

// identity writes which request it is: its ids, model, flow and body.
func identity(b *strings.Builder, r *requestView) {
	field(b, "request", r.ID)
	if r.XRequestID != "" {
		field(b, "x-request-id", clean(r.XRequestID))
	}
	if r.ResponseID != "" {
		field(b, "response id", clean(r.ResponseID))
	}
	if r.Path != "" {
		api := clean(r.Path)
		if r.API != "" {
			api = r.API + ", " + api
		}
		field(b, "api", api)
	}
	if r.Client != "" {
		field(b, "client", clean(r.Client))
	}
	form := "one answer"
	if r.Stream {
		form = "streamed"
	}
	model := orNone(clean(r.Model))
	if r.TargetModel != "" {
		model += ", rewritten to " + clean(r.TargetModel)
	}
	if r.RewriteLeft != "" {
		model += ", not rewritten (" + r.RewriteLeft + ")"
	}
	field(b, "model", model+", "+form)
	if r.Configuration != 0 {
		field(b, "configuration", fmt.Sprintf("number %d", r.Configuration))
	}
	field(b, "flow", fmt.Sprintf("%s, priority %d", clean(r.FairnessID), r.Priority))
	body := size(r.BodyBytes)
	if r.PromptTokensGuessed > 0 {
		body += fmt.Sprintf(", about %s of prompt, estimated from it", plural(r.PromptTokensGuessed, "token"))
	}
	field(b, "body", body)
}

func times(b *strings.Builder, r *requestView) {
	age := short(time.Duration(r.AgeSeconds))
	field(b, "arrived", r.ArrivedAt.Format("2006-01-02 15:04:05.000000 MST")+", "+age+" ago")
	field(b, "queue", queued(r))
	pick := after(r.PickedAfterSeconds)
	if r.PickedAfterSeconds != nil && r.why == messages.NoEndpoints {
		pick = "none; that was clear " + pick
	}
	field(b, "pick", pick)
	field(b, "headers", after(r.HeadersSeconds))
	field(b, "first token", firstToken(r))
	end := after(r.DurationSeconds)
	if r.Local != "" && r.DurationSeconds == nil {
		end = "Envoy has answered; its access log is yet to tell when"
	}
	field(b, "end", end)
}

// waitCauses say why a request had to wait.
var waitCauses = [...]string{
	messages.NoCause:      "",
	messages.NoRoom:       "no endpoint that it may use had room",
	messages.NoneInPool:   "the pool had no endpoint",
	messages.OthersWaited: "others waited when it came",
}

// queued returns how long the request waited for room, behind how many, why, and how that ended.
func queued(r *requestView) string {
	text, q := short(time.Duration(r.QueueWaitSeconds)), r.Queue
	if q == nil {
		return text
	}
	if q.outcome == messages.OutcomeNotYetFinalized {
		text += " so far"
	}
	if q.cause != messages.NoCause && int(q.cause) < len(waitCauses) {
		if !strings.HasPrefix(q.Outcome, "Rejected") { // it was in the line
			text += " behind " + plural(q.Ahead, "request")
		}
		text += ", because " + waitCauses[q.cause]
	}
	if q.TurnsFailed > 0 {
		text += "; " + plural(q.TurnsFailed, "turn") + " in vain"
	}
	if q.outcome == messages.OutcomeNotYetFinalized {
		return text
	}
	return text + "; " + q.Outcome
}

func after(at *seconds) string {
	if at == nil {
		return "-"
	}
	return "after " + at.text()
}

// firstToken returns when the first byte of the response's body came, as far as that is known.
func firstToken(r *requestView) string {
	switch {
	case r.FirstTokenSeconds != nil || r.Visible || r.HeadersSeconds == nil || r.Local != "" || r.Status >= 400:
		return after(r.FirstTokenSeconds)
	case r.Running:
		return "not known yet: the response's body bypasses Signalbox, and Envoy's access log tells it at the end"
	}
	return "not known: the response's body bypassed Signalbox, and Envoy's access log has no time for it"
}

// because holds in a few words what each reason means.
var because = [...]string{
	messages.NoReason:       "",
	messages.InvalidRequest: "the body is not what its path promises, or a header is not what it has to be",
	messages.BodyTooLarge:   "the body is larger than the limit",
	messages.BodyTimeout:    "the body did not come in time",
	messages.NoEndpoints:    "no endpoint was left to choose from",
	messages.NoCapacity:     "the pool is full",
	messages.TTLExpired:     "it waited in the queue for too long",
	messages.Displaced:      "it waited in the queue, and made way for a request of higher priority",
	messages.NotCached:      "it asked for a server that holds the beginning of its prompt, and none was picked",
	messages.Preempted:      "it ran, and was ended for a request of higher priority",
	messages.QueuePressure:  "it waited in the queue, and made way for a request of a flow with less waiting",
	messages.PickTimeout:    "no pick was made in time",
	messages.ResponseIdle:   "the model server went silent",
	messages.RequestTimeout: "the whole request took too long",
	messages.Overloaded:     "Signalbox itself is full",
	messages.ShuttingDown:   "Signalbox is shutting down",
	messages.Unsupported:    "Envoy uses a body mode that is not supported",
	messages.Internal:       "a fault of Signalbox",
	messages.ClientGone:     "the client left",
	messages.ServerGone:     "the model server broke off",
	messages.Lost:           "the response went on without us, and the proxy's access log never told its end",
}

func ending(b *strings.Builder, r *requestView) {
	var said []string
	if r.Running {
		said = append(said, "still running")
	}
	switch { // an answer of Envoy itself has ended, though its access log may not have come
	case r.Status != 0 && r.Local != "":
		said = append(said, fmt.Sprintf("HTTP %d of Envoy itself: %s", r.Status, clean(r.Local)))
	case r.Status >= 400 && r.Reason == "":
		said = append(said, fmt.Sprintf("HTTP %d, an error response", r.Status))
	case r.Status != 0:
		said = append(said, "HTTP "+strconv.Itoa(r.Status))
	}
	if r.Reason != "" {
		text := r.Reason
		if int(r.why) < len(because) {
			text += " (" + because[r.why] + ")"
		}
		said = append(said, text)
	}
	if len(said) == 0 {
		said = append(said, "ended without a response")
	}
	field(b, "outcome", strings.Join(said, ", "))
	if r.Picked != nil {
		field(b, "picked", r.Picked.text())
	}
	field(b, "served by", servedBy(r))
	field(b, "usage", used(r))
}

func servedBy(r *requestView) string {
	served := r.Served.text()
	switch {
	case r.Local != "":
		return "-"
	case r.Beyond != "":
		return clean(r.Beyond) + ", which is not in the pool: does Envoy's cluster have what was picked?"
	case r.Status == 0 && r.Served != nil && r.Running:
		return "- (sent to " + served + "; no response headers came yet)"
	case r.Status == 0 && r.Served != nil && r.why != messages.Lost:
		return "- (sent to " + served + "; no response headers came)"
	case r.Picked != nil && r.Served != nil && *r.Picked != *r.Served:
		served += ", not the endpoint that was picked"
	}
	return served
}

// unknownUsage holds why the tokens of a response are not known.
var unknownUsage = map[messages.UsageSource]string{
	messages.UsageNotReported: "the model server did not report it, and too few responses like this one did for an " +
		"estimate",
	messages.UsageNotLearned:   "too few responses like this one were seen in full for an estimate",
	messages.UsageNotEstimable: "how many bytes such a response has does not tell its tokens",
	messages.UsageNotMeasured:  "how many bytes the response has is not known",
}

// used returns what is known of the response's tokens, and by what means.
func used(r *requestView) string {
	u, response := r.Usage, "response "+size(r.ResponseBytes)
	if !r.Visible && r.HeadersSeconds != nil && u.source != messages.NoUsage {
		response += "; the response's body bypassed Signalbox"
	}
	prompt := usedByPrompt(&u)
	if prompt != "" {
		prompt += "; output "
	}
	switch u.source {
	case messages.UsageReported:
		return cmp.Or(prompt, "prompt not reported; output ") + plural(*u.OutputTokens, "token") + "; " + response
	case messages.UsageEstimated:
		return cmp.Or(prompt, "output ") + "about " + plural(*u.OutputTokens, "token") +
			", estimated from its bytes; " + response
	case messages.NoUsage:
		if r.Running {
			return "not known yet"
		}
		return prompt + "none; " + response
	}
	return prompt + "not known: " + unknownUsage[u.source] + "; " + response
}

// usedByPrompt returns what the model server reported of the prompt; "" = nothing.
func usedByPrompt(u *usageView) string {
	switch {
	case u.PromptTokens == nil && u.CachedTokens == nil:
		return ""
	case u.PromptTokens == nil:
		return "prompt not reported, " + strconv.Itoa(*u.CachedTokens) + " of its tokens cached"
	case *u.PromptTokens == 0 || u.CachedTokens == nil:
		return "prompt " + plural(*u.PromptTokens, "token")
	}
	return fmt.Sprintf("prompt %s, %d of them cached (%d%%)", plural(*u.PromptTokens, "token"), *u.CachedTokens,
		100**u.CachedTokens / *u.PromptTokens)
}

// handled lists the messages.
func handled(b *strings.Builder, r *requestView) {
	if len(r.Messages) == 0 {
		field(b, "messages", "none were noted")
		return
	}
	b.WriteString("messages\n")
	rows := [][]string{{"at", "waited", "took", "message"}}
	for _, m := range r.Messages {
		if m.To != "" {
			rows = append(rows, []string{short(time.Duration(m.AtSeconds)), "", "", "→ " + clean(m.To) + ": " +
				clean(m.Name)})
			continue
		}
		rows = append(rows, []string{
			short(time.Duration(m.AtSeconds)), short(time.Duration(m.WaitedSeconds)),
			short(time.Duration(m.TookSeconds)), clean(m.Name),
		})
	}
	table(b, "  ", "rrrl", rows)
	if r.MessagesDropped > 0 {
		fmt.Fprintf(b, "  %d more found no room in the record\n", r.MessagesDropped)
	}
}

func decision(b *strings.Builder, r *requestView, all bool) {
	d := r.Decision
	fmt.Fprintf(b, "\ndecision over %s, pool version %d\n", plural(d.Candidates, "endpoint"), d.PoolVersion)
	if d.Pool > d.Candidates {
		fmt.Fprintf(b, "  the request is restricted to a subset: the pool has %s\n", plural(d.Pool, "endpoint"))
	}
	if d.Candidates == 0 {
		b.WriteString("  the pool, or the subset that the request is restricted to, is empty\n")
	}
	if d.AllStale {
		b.WriteString("  every sample was stale: in-flight load stood in for the scorers that read samples\n")
	}
	outliers(b, d, all)
	for _, h := range d.Headers {
		field(b, "  header", clean(h.Name)+": "+clean(h.Value))
	}
	for i := range d.Profiles {
		chosen(b, &d.Profiles[i], r.Served, all)
	}
}

// outliers names the candidates that were not healthy, and reports whether the request was the probe of one of them.
func outliers(b *strings.Builder, d *decisionView, all bool) {
	var out, last []string
	for i := range d.Outliers {
		s := &d.Outliers[i]
		text := s.text() + " (" + s.Cause + ")"
		if s.Ejected {
			out = append(out, text)
		} else {
			last = append(last, text)
		}
	}
	if len(out) > 0 {
		field(b, "  ejected", names(out, all))
	}
	if len(last) > 0 {
		field(b, "  degraded", names(last, all))
	}
	if d.Probe {
		field(b, "  probe", "the request tries whether the endpoint that it goes to is healthy again")
	}
}
