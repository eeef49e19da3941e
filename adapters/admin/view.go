package admin

import (
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// RequestsPage is the JSON form of a list of requests. A single request has all its parts; those of a list have no
// messages, profiles and endpoints.
type RequestsPage struct {
	Requests    []requestView `json:"requests"`
	LeftOut     int           `json:"left_out"`     // requests that were found and are not listed
	LostRecords uint64        `json:"lost_records"` // records that made way for newer ones since the start
	Unasked     int           `json:"unasked"`      // running requests beyond those that a query looks at
	Partial     bool          `json:"partial"`      // some part of the process did not answer in time
}

// requestView is what is shown of a request: the JSON form, and all that the text is made of.
type requestView struct {
	ID         string `json:"id"`
	XRequestID string `json:"x_request_id"`
	API        string `json:"api,omitempty"`         // of the body; "" = it was not read
	Path       string `json:"path,omitempty"`        // "" = unknown
	Client     string `json:"client,omitempty"`      // user-agent; "" = it sent none
	ResponseID string `json:"response_id,omitempty"` // made by the model server; known if the body was visible
	// Configuration is the number of the configuration that the request ran under; 0 = it had not got so far.
	Configuration uint64 `json:"configuration,omitempty"`
	Model         string `json:"model"`
	TargetModel   string `json:"target_model,omitempty"`     // that served in its place; "" = the model itself
	RewriteLeft   string `json:"rewrite_not_made,omitempty"` // why another model was not put in its place
	FairnessID    string `json:"fairness_id"`
	Priority      int    `json:"priority"`
	Stream        bool   `json:"stream"`
	Running       bool   `json:"running"` // it has not ended; false for a request that Envoy answered by itself

	ArrivedAt          time.Time `json:"arrived_at"`
	AgeSeconds         seconds   `json:"age_seconds"`          // since it arrived
	QueueWaitSeconds   seconds   `json:"queue_wait_seconds"`   // 0 = did not wait
	Queue              *waitView `json:"queue,omitempty"`      // absent = its configuration has no gate
	PickedAfterSeconds *seconds  `json:"picked_after_seconds"` // since it arrived; null = no pick was tried
	HeadersSeconds     *seconds  `json:"headers_seconds"`      // of the response, since it arrived; null = none came
	// FirstTokenSeconds counts since the request arrived. It is null if no token came, or its time is not known.
	FirstTokenSeconds   *seconds `json:"first_token_seconds"`
	DurationSeconds     *seconds `json:"duration_seconds"`      // since it arrived; null = it has not ended
	PromptTokensGuessed int      `json:"prompt_tokens_guessed"` // from the body's bytes; 0 = unknown
	BodyBytes           int64    `json:"body_bytes"`
	ResponseBytes       int64    `json:"response_bytes"`

	Reason string `json:"reason"` // why it was not served, or not to its end; "" = it was
	Status int    `json:"status"` // HTTP; 0 = none
	// Picked is the pick of the primary profile run. It is null if nothing was picked, or no run was the primary one.
	Picked *endpoint `json:"picked"`
	Served *endpoint `json:"served"`              // null = none that is known
	Beyond string    `json:"served_outside_pool"` // address of what served, if the pool does not know it; "" = it does
	Local  string    `json:"answered_by_envoy"`   // why Envoy answered by itself; "" = it did not, or did not say so
	Usage  usageView `json:"usage"`
	// Visible says that the response's body was visible. It is false if the body bypassed us, or there was no response.
	Visible bool `json:"body_visible"`

	Messages        []messageView `json:"messages,omitempty"`
	Hops            []hopView     `json:"hops,omitempty"`   // those that the rings still have
	MessagesDropped int           `json:"messages_dropped"` // messages for which the record had no slot
	Decision        *decisionView `json:"decision,omitempty"`

	why messages.Reason
}

// Age returns how long ago the request had arrived when the page was made.
func (r *requestView) Age() time.Duration { return time.Duration(r.AgeSeconds) }

// TTFT returns the time from the request's arrival to its first token, if one was seen.
func (r *requestView) TTFT() (after time.Duration, seen bool) {
	if r.FirstTokenSeconds == nil {
		return 0, false
	}
	return time.Duration(*r.FirstTokenSeconds), true
}

// seconds is a duration that is a number of seconds in JSON.
type seconds time.Duration

// MarshalJSON writes all nanoseconds, and no exponent.
func (s seconds) MarshalJSON() ([]byte, error) {
	sign, d := "", time.Duration(s)
	if d < 0 {
		sign, d = "-", -d
	}
	text := fmt.Sprintf("%s%d.%09d", sign, d/time.Second, d%time.Second)
	return []byte(strings.TrimSuffix(strings.TrimRight(text, "0"), ".")), nil
}

// UnmarshalJSON reads a number of seconds.
func (s *seconds) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	d, err := time.ParseDuration(string(text) + "s")
	*s = seconds(d)
	return err
}

func (s *seconds) text() string {
	if s == nil {
		return "-"
	}
	return short(time.Duration(*s))
}

// waitView is what is known of a request's wait for room.
type waitView struct {
	Outcome     string `json:"outcome"`      // how it ended
	Cause       string `json:"cause"`        // why it had to wait; "" = it did not have to
	Ahead       int    `json:"ahead"`        // requests that went before it when it joined the line
	TurnsFailed int    `json:"turns_failed"` // at which no endpoint had room for it after all

	outcome messages.Outcome
	cause   messages.WaitCause
}

func wait(w *messages.Wait) *waitView {
	if w.Outcome == messages.NoOutcome {
		return nil
	}
	return &waitView{w.Outcome.String(), w.Cause.String(), w.Ahead, w.Failed, w.Outcome, w.Cause}
}

// usageView is what is known of the response's tokens; null = not known.
type usageView struct {
	Source       string `json:"source"` // how those of the output are known, or why they are not
	PromptTokens *int   `json:"prompt_tokens"`
	CachedTokens *int   `json:"cached_tokens"` // of the prompt
	OutputTokens *int   `json:"output_tokens"`
	Estimated    bool   `json:"estimated"` // OutputTokens is an estimate

	source messages.UsageSource
}

func usage(u messages.Usage) usageView {
	v := usageView{Source: u.Source.String(), source: u.Source}
	if u.PromptKnown {
		v.PromptTokens = &u.PromptTokens
	}
	if u.CachedKnown {
		v.CachedTokens = &u.CachedTokens
	}
	if v.Estimated = u.Source == messages.UsageEstimated; v.Estimated || u.Source == messages.UsageReported {
		v.OutputTokens = &u.OutputTokens
	}
	return v
}

type messageView struct {
	Name          string  `json:"name"`
	To            string  `json:"to"`             // the actor that the cycle told it; "" = handled by the cycle
	AtSeconds     seconds `json:"at_seconds"`     // since the request arrived
	WaitedSeconds seconds `json:"waited_seconds"` // in the inbox
	TookSeconds   seconds `json:"took_seconds"`   // to handle
}

// endpoint is one incarnation of an endpoint.
type endpoint struct {
	Address    string `json:"address"` // "" = not known any more
	Slot       uint32 `json:"slot"`
	Generation uint32 `json:"generation"`
}

func (e *endpoint) text() string {
	switch {
	case e == nil:
		return "-"
	case e.Address == "":
		return fmt.Sprintf("slot %d generation %d", e.Slot, e.Generation)
	}
	return clean(e.Address)
}

func (h *handler) endpoint(id messages.EndpointID) endpoint {
	return endpoint{Address: string(h.Address(id)), Slot: id.Slot, Generation: id.Generation}
}

// summary returns what a list shows of a record.
func (h *handler) summary(r *messages.Record) requestView {
	v := requestView{
		API: r.API.String(), Path: r.Path, Client: r.Agent,
		ID: h.FormatID(r.Request), XRequestID: r.ClientID, ResponseID: r.ResponseID, Model: r.Model,
		TargetModel: r.Target, RewriteLeft: r.RewriteLeft.String(), Configuration: r.Configuration,
		FairnessID: r.Flow.Fairness, Priority: r.Flow.Priority, Stream: r.Stream,
		Running:   r.Running && r.Local == "",
		ArrivedAt: r.ArrivedAt.UTC(), AgeSeconds: seconds(h.Now().Sub(r.ArrivedAt)),
		QueueWaitSeconds: seconds(r.QueueWait), Queue: wait(&r.Wait),
		PickedAfterSeconds: known(r.Decided, r.Decided != 0), HeadersSeconds: known(r.Headers, r.Headers != 0),
		FirstTokenSeconds: known(r.FirstToken, r.FirstToken != 0), DurationSeconds: known(r.Ended, !r.Running),
		PromptTokensGuessed: r.PromptTokens, BodyBytes: r.BodyBytes, ResponseBytes: r.ResponseBytes,
		Reason: r.Reason.String(), why: r.Reason, Status: r.Status, Beyond: string(r.Elsewhere), Local: r.Local,
		Usage: usage(r.Usage), Visible: !r.Bypassed && r.Headers != 0, MessagesDropped: r.Dropped,
	}
	if r.Served.Generation != 0 {
		served := h.endpoint(r.Served)
		v.Served = &served
	}
	if id, ok := picked(r); ok {
		p := h.endpoint(id)
		v.Picked = &p
	}
	return v
}

// full returns a record with all its parts.
func (h *handler) full(r *messages.Record) requestView {
	v := h.summary(r)
	v.Messages = make([]messageView, 0, r.Events.Len())
	for _, e := range r.Events.All() {
		v.Messages = append(v.Messages, messageView{e.Name, e.To, seconds(e.At), seconds(e.Waited), seconds(e.Took)})
	}
	v.Decision = h.decision(&r.Decision)
	return v
}

func known(d time.Duration, is bool) *seconds {
	if !is {
		return nil
	}
	s := seconds(d)
	return &s
}

// picked returns the endpoint that the request was sent to first, false if there is none.
func picked(r *messages.Record) (messages.EndpointID, bool) {
	run, ok := at(r.Decision.Profiles, r.Decision.Primary)
	if !ok || run.Ranked.Len() == 0 {
		return messages.EndpointID{}, false
	}
	return at(r.Decision.Endpoints, int(run.Ranked.At(0)))
}

// at returns item i of a list, if the list has one: lists of a record that do not agree must not end the process.
func at[T any](l messages.List[T], i int) (T, bool) {
	if i < 0 || i >= l.Len() {
		var none T
		return none, false
	}
	return l.At(i), true
}
