package scorers

import (
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/sessions"
)

// SessionAffinity prefers the server of the request's session: that one scores 1, all others score 0. If the session is
// new, or its server is none of those that are left, all score 0, and the session moves to the one that is picked.
type SessionAffinity struct{ sessions.Affinity }

// Score finds the server of the request's session.
func (s *SessionAffinity) Score(in *schedule.Input, scores []float32) {
	if at := s.Bound(in); at >= 0 {
		scores[at] = 1
	}
}
