package points

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// SessionState counts the requests of sessions, and emits what the session of a request has been before it, with the
// same value for each server: llm-d.ai/session-turns, the requests that were picked for;
// llm-d.ai/session-duration-seconds since the first of them and llm-d.ai/session-idle-seconds since the last one;
// llm-d.ai/session-inflight-requests, those that have not ended; llm-d.ai/session-completed-requests, those that ended
// with a whole answer; llm-d.ai/session-input-tokens and llm-d.ai/session-output-tokens, which these answers reported.
// They are unknown for a request without a session. Each Signalbox counts by itself, and forgets sessions that ended
// long ago, or the oldest if there are too many.
type SessionState struct {
	// Producer names the agent-identity or the session-id-producer that finds the session; empty = the one that is
	// called agent-identity.
	Producer string `json:"producer"`
	// EvictionTTLSeconds is how long a session counts after its newest request, and while one of its requests runs, for
	// a day at most; 0 = until it makes way for others.
	EvictionTTLSeconds float64 `json:"evictionTtlSeconds"`
	// EvictionSweepSeconds is how often ended sessions are looked for; here one that has ended does not count at once.
	EvictionSweepSeconds float64 `json:"evictionSweepSeconds" effect:"warning"`

	finder  finder
	history memory.History
	session schedule.Private[string]
}

// finder is a plugin that finds the id of a request's session.
type finder interface {
	schedule.Reader
	Session(of Request) string
}

// Attributes of the session of a request, by their number in Emits.
const (
	sessionTurns = iota
	sessionDuration
	sessionIdle
	sessionInflight
	sessionCompleted
	sessionInput
	sessionOutput
)

// Emits returns the names of the attributes.
func (*SessionState) Emits() []string {
	return []string{
		sessionTurns:     "llm-d.ai/session-turns",
		sessionDuration:  "llm-d.ai/session-duration-seconds",
		sessionIdle:      "llm-d.ai/session-idle-seconds",
		sessionInflight:  "llm-d.ai/session-inflight-requests",
		sessionCompleted: "llm-d.ai/session-completed-requests",
		sessionInput:     "llm-d.ai/session-input-tokens",
		sessionOutput:    "llm-d.ai/session-output-tokens",
	}
}

// Validate returns which parameters are out of range.
func (s *SessionState) Validate() error {
	if most := float64(math.MaxInt64 / time.Second); !(s.EvictionTTLSeconds >= 0 && s.EvictionTTLSeconds <= most) {
		return fmt.Errorf("evictionTtlSeconds: got %v, want 0 to %.0f", s.EvictionTTLSeconds, most)
	}
	return nil
}

// Refer finds the plugin that finds sessions.
func (s *SessionState) Refer(plugin func(parameter, name string) any) error {
	name := cmp.Or(s.Producer, "agent-identity")
	x := plugin("producer", name)
	if x == nil {
		return nil // a problem already
	}
	var ok bool
	if s.finder, ok = x.(finder); !ok {
		return fmt.Errorf("producer: %s finds no sessions, want an agent-identity or a session-id-producer",
			clip.Value(name))
	}
	return nil
}

// Declare asks for the headers that have the session, and for the table of turns.
func (s *SessionState) Declare(r *attributes.Reader) {
	if s.finder != nil {
		s.finder.Declare(r)
	}
	s.history, s.session = memory.NewHistory(r), schedule.NewPrivate[string](r)
}

// Produce sets what is known of the session.
func (s *SessionState) Produce(in *schedule.Input, out *schedule.Produced) {
	session := s.find(in)
	if session == "" {
		return
	}
	turns, known := s.history.Of(in.Memory(), session)
	var duration, idle time.Duration
	if known {
		duration, idle = in.Now().Sub(turns.First), in.Now().Sub(turns.Last)
	}
	for i := range in.Candidates().Len() {
		out.Set(sessionTurns, i, float64(turns.Taken))
		out.Set(sessionDuration, i, duration.Seconds())
		out.Set(sessionIdle, i, idle.Seconds())
		out.Set(sessionInflight, i, float64(turns.Running))
		out.Set(sessionCompleted, i, float64(turns.Completed))
		out.Set(sessionInput, i, float64(turns.InputTokens))
		out.Set(sessionOutput, i, float64(turns.OutputTokens))
	}
}

func (s *SessionState) find(of Request) string {
	if s.finder == nil {
		return ""
	}
	return s.finder.Session(of)
}

// PreRequest counts the request.
func (s *SessionState) PreRequest(p *schedule.Picked, _ *schedule.Headers) schedule.Refusal {
	if session := s.find(p); session != "" {
		s.session.Set(p, session)
		s.history.Begin(p.Notes(), session, s.lasts())
	}
	return schedule.Refusal{}
}

// ResponseEnd counts the end of the request.
func (s *SessionState) ResponseEnd(e *schedule.Ended) {
	session, counted := s.session.Get(e)
	if !counted {
		return
	}
	record := e.Record()
	s.history.End(e.Notes(), session, s.lasts(), messages.Turn{
		Completed:   record.Reason == messages.NoReason && record.Status != 0,
		InputTokens: int64(record.Usage.PromptTokens), OutputTokens: int64(record.Usage.OutputTokens),
	})
}

func (s *SessionState) lasts() time.Duration {
	return time.Duration(s.EvictionTTLSeconds * float64(time.Second))
}
