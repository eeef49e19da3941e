package vllm

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"
)

// controlBytes bounds a request to the control endpoints.
const controlBytes = 64 << 10

// Faults is what the server does wrong at the moment.
func (s *Server) Faults() Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// SetFaults replaces all faults.
func (s *Server) SetFaults(f Faults) error {
	if err := f.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliver()
	s.setFaults(f)
	return nil
}

// setFaults puts faults in force and wakes up every request that waits under the former ones.
// The caller holds the lock.
func (s *Server) setFaults(f Faults) {
	if f.ErrorStatus == 0 {
		f.ErrorStatus = http.StatusInternalServerError
	}
	s.faults, s.diesAt = f, 0
	if f.EngineDiesAfterTokens > 0 {
		s.diesAt = s.core.Tally().GenerationTokens + uint64(f.EngineDiesAfterTokens)
	}
	if f.EngineDead {
		s.die()
	}
	if s.http != nil && !s.ending {
		s.takeBack(&s.next)
		if f.RestartEvery > 0 {
			s.next = s.cfg.Clock.AfterFunc(time.Duration(f.RestartEvery),
				func() { s.Restart(time.Duration(f.RestartDown)) })
		}
	}
	close(s.turned)
	s.turned = make(chan struct{})
}

// turning is closed when the faults change.
func (s *Server) turning() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turned
}

// die is the end of the engine: what it worked at fails. The caller holds the lock.
func (s *Server) die() {
	s.faults.EngineDead, s.faults.EngineDiesAfterTokens, s.diesAt = true, 0, 0
	for _, id := range slices.Sorted(maps.Keys(s.answers)) {
		a := s.answers[id]
		a.broken = true
		s.core.Cancel(s.cfg.Clock.Now(), id)
		select {
		case a.ready <- struct{}{}:
		default:
		}
	}
	clear(s.answers)
}

// refusal is what a request for so many sequences is refused with at the door, nil if it is taken; inStream reports
// that a stream tells it in an event. Each request draws once for each rate,
// so that one rate does not move the draws of another.
func (s *Server) refusal(a *answer, sequences int) (fail *failure, inStream bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	f := &s.faults
	wrong, overload, stall := s.dice.Float64() < f.ErrorRate, s.dice.Float64() < f.OverloadRate,
		s.dice.Float64() < f.StallRate
	if a.stall = -1; stall {
		a.stall = f.StallTokens
	}
	switch {
	case f.EngineDead:
		return engineDead(), false
	case f.Draining:
		return drained(), false
	case overload:
		s.rejected++
		return overloaded(), f.OverloadInStream
	case wrong && f.ErrorStatus == http.StatusInternalServerError:
		return internal("Internal server error"), false
	case wrong:
		return &failure{f.ErrorStatus, http.StatusText(f.ErrorStatus),
			fmt.Sprintf("status %d on purpose", f.ErrorStatus), ""}, false
	case s.full(sequences):
		return overloaded(), false
	}
	return nil, false
}

func internal(message string) *failure {
	return &failure{http.StatusInternalServerError, "InternalServerError", message, ""}
}

func drained() *failure { return internal("cannot schedule new futures after shutdown") }

func engineDead() *failure {
	return internal("EngineCore encountered an issue. See stack trace (above) for the root cause.")
}

// control adds the endpoints that set faults. No real server has them.
func (s *Server) control(table map[string]map[string]http.HandlerFunc) {
	table["/sim/faults"] = map[string]http.HandlerFunc{
		"GET": s.onFaults,
		"PUT": func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, controlBytes))
			if err == nil {
				var f Faults
				if f, err = ParseFaults(body); err == nil {
					err = s.SetFaults(f)
				}
			}
			s.answerControl(w, r, err)
		},
		"DELETE": func(w http.ResponseWriter, r *http.Request) { s.answerControl(w, r, s.SetFaults(Faults{})) },
	}
	table["/sim/restart"] = map[string]http.HandlerFunc{"POST": s.onRestart}
}

func (s *Server) onFaults(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Faults())
}

// answerControl shows the faults in force, or says what is wrong with those that were sent.
func (s *Server) answerControl(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		badRequest(err.Error(), "").write(w)
		return
	}
	s.onFaults(w, r)
}

// onRestart answers, then restarts; ?down=2s is for how long.
func (s *Server) onRestart(w http.ResponseWriter, r *http.Request) {
	var down Span
	if text := r.URL.Query().Get("down"); text != "" {
		err := down.UnmarshalText([]byte(text))
		if err == nil && down < 0 {
			err = errors.New("got " + text + ", want 0s or more")
		}
		if err != nil {
			badRequest("down: "+err.Error(), "down").write(w)
			return
		}
	}
	w.Header().Set("Connection", "close")
	writeJSON(w, http.StatusAccepted, map[string]string{"down": time.Duration(down).String()})
	_ = http.NewResponseController(w).Flush() // a client that left does not want the answer
	s.Restart(time.Duration(down))
}
