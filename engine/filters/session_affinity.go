package filters

import (
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/sessions"
)

// SessionAffinity keeps the requests of a session at one server. If the session is new, or its server is none of those
// that are left, all stay, and the session moves to the one that is picked.
type SessionAffinity struct{ sessions.Affinity }

// Filter keeps the server of the request's session, if it is a candidate.
func (s *SessionAffinity) Filter(in *schedule.Input, keep []bool) {
	if at := s.Bound(in); at >= 0 {
		clear(keep)
		keep[at] = true
	}
}
