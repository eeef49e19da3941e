package vllm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/page"
)

// Server is one simulated model server.
type Server struct {
	cfg     Config
	addr    string
	tokens  *batch.Tokens
	serving sync.WaitGroup // the accept loop and the connections

	mu sync.Mutex // guards what follows
	process
	ticking
	listening
	misbehaviour
	ids    *rand.PCG
	closed bool
}

// process is what a restart begins anew.
type process struct {
	core     *batch.Core
	page     *page.Page
	door     frontEnd
	answers  map[uint64]*answer // by sequence
	adapters []adapter          // in order of loading
	requests uint64
	rejected uint64
	sleep
}

// ticking wakes the engine when its step ends. At most one alarm counts: stop is nil exactly while alarmAt is zero,
// until the server is closed.
type ticking struct {
	ticked  time.Time // last delivery
	alarmAt time.Time // zero = no alarm is set
	alarmNo uint64    // of the alarm that counts; others came too late to be taken back
	stop    func()    // takes the alarm back
}

// listening is the HTTP server, and when it comes and goes. While http is nil and the server is not ending, next ends
// the restart under way.
type listening struct {
	http     *http.Server  // nil while the server is down to restart
	refusing chan struct{} // closed when it accepts no more connections
	next     func()        // takes the next restart back, or the end of the one under way
	ending   bool          // there will be no restart any more
}

// misbehaviour is what goes wrong on demand.
type misbehaviour struct {
	faults Faults
	dice   *rand.Rand
	turned chan struct{} // closed when the faults change
	drawn  uint64        // texts of drifting chat templates
	diesAt uint64        // generated tokens at which the engine dies; 0 = it does not
}

// Stats is what a server has done up to now, and its state.
type Stats struct {
	Requests      uint64 // completions and chat completions that were well formed, rejected ones included
	QueriedTokens uint64 // prompt tokens looked up in the prefix cache
	HitTokens     uint64 // of these, found
	PromptTokens  uint64
	AnswerTokens  uint64
	Preemptions   uint64
	Ended         uint64 // sequences that ran to their end
	Aborted       uint64 // sequences whose client left
	Rejected      uint64 // requests answered 503
	Running       int    // sequences
	Waiting       int    // sequences
	KVUsedRatio   float64
}

// Start listens and serves until Stop or Kill.
func Start(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("simulated server %s: %w", cfg.Name, err)
	}
	s := &Server{
		cfg: cfg, tokens: batch.NewTokens(cfg.BytesPerToken), ids: rand.NewPCG(cfg.Seed, 1),
		misbehaviour: misbehaviour{dice: rand.New(rand.NewPCG(cfg.Seed, 2)), turned: make(chan struct{})},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.boot(); err != nil {
		return nil, fmt.Errorf("simulated server %s: %w", cfg.Name, err)
	}
	listener, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("simulated server %s: %w", cfg.Name, err)
	}
	s.addr = listener.Addr().String()
	s.serve(listener)
	s.setFaults(cfg.Faults)
	return s, nil
}

// Addr is the ip:port the server listens on.
func (s *Server) Addr() string { return s.addr }

// Stop closes the listener and lets open answers end. When ctx ends first they are cut, and its error is returned.
func (s *Server) Stop(ctx context.Context) error {
	var err error
	if server := s.end(); server != nil {
		if err = server.Shutdown(ctx); err != nil {
			err = errors.Join(err, server.Close())
		}
	}
	s.close()
	return err
}

// Kill closes the listener and every connection at once.
func (s *Server) Kill() {
	if server := s.end(); server != nil {
		_ = server.Close() // the listener may be closed already, which is what is wanted
	}
	s.close()
}

// count follows the connections. A new one is announced by the accept loop, before its goroutine starts.
func (s *Server) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.serving.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.serving.Done()
	}
}

// close waits for the connections and takes the alarm back.
func (s *Server) close() {
	s.serving.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// Stats looks at the server as it is now.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliver()
	y, now := s.core.Tally(), s.core.Stats()
	return Stats{
		Requests: s.requests, QueriedTokens: y.QueriedTokens, HitTokens: y.HitTokens, PromptTokens: y.PromptTokens,
		AnswerTokens: y.GenerationTokens, Preemptions: y.Preemptions, Rejected: s.rejected,
		Ended: y.Finished[batch.Stop] + y.Finished[batch.Length], Aborted: y.Finished[batch.Abort],
		Running: now.Running, Waiting: now.Waiting, KVUsedRatio: now.KVUsedRatio,
	}
}

// frontEnd takes in one request after the other.
type frontEnd struct{ free time.Time }

// enter is when a request that comes now reaches the engine.
func (f *frontEnd) enter(now time.Time, c *Config) time.Time {
	if f.free.Before(now) {
		f.free = now
	}
	f.free = f.free.Add(c.FrontEndBusy)
	return f.free.Add(c.FrontEndLatency)
}

// enter is how long a request that comes now takes to reach the engine.
func (s *Server) enter() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Clock.Now()
	return s.door.enter(now, &s.cfg).Sub(now)
}

// submit starts all sequences of an answer, or none if the queue is full.
func (s *Server) submit(a *answer, requests []batch.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full(len(requests)) {
		return false
	}
	now := s.cfg.Clock.Now()
	for i, r := range requests {
		id, key := s.core.Submit(now, r)
		a.choices = append(a.choices, choice{id: id, key: key, prompt: max(len(r.Prompt), 1)})
		a.byID[id] = i
		s.answers[id] = a
	}
	s.deliver()
	return true
}

// full reports whether so many further sequences are too many, and counts that. The caller holds the lock.
func (s *Server) full(more int) bool {
	if st := s.core.Stats(); s.cfg.MaxQueued == 0 || st.Running+st.Waiting+more <= s.cfg.MaxQueued {
		return false
	}
	s.rejected++
	return true
}

// abandon ends what is left of an answer whose client is gone.
func (s *Server) abandon(a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliver()
	for _, c := range a.choices {
		if s.answers[c.id] == a { // and not of another process that gave out the same number
			s.core.Cancel(s.cfg.Clock.Now(), c.id)
			delete(s.answers, c.id)
		}
	}
	s.deliver()
}

// tick is what alarm no does.
func (s *Server) tick(no uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || no != s.alarmNo {
		return
	}
	s.alarmAt, s.stop, s.ticked = time.Time{}, nil, s.cfg.Clock.Now()
	s.deliver()
}

// deliver moves the engine to the present, tells the answers what came out, and sets the next alarm. The caller holds
// the lock.
func (s *Server) deliver() {
	now := s.cfg.Clock.Now()
	for _, p := range s.core.Advance(now) {
		a := s.answers[p.ID]
		if a == nil {
			continue // its client is gone
		}
		a.forward(p)
		if p.Ended != batch.Running {
			delete(s.answers, p.ID)
		}
	}
	if s.diesAt > 0 && s.core.Tally().GenerationTokens >= s.diesAt {
		s.die()
	}
	at, busy := s.core.NextEvent()
	if !busy || s.closed {
		return
	}
	if soonest := s.ticked.Add(s.cfg.Tick); at.Before(soonest) {
		at = soonest
	}
	if !s.alarmAt.IsZero() && !s.alarmAt.After(at) {
		return
	}
	if s.stop != nil {
		s.stop()
	}
	s.alarmAt = at
	s.alarmNo++
	no := s.alarmNo
	s.stop = s.cfg.Clock.AfterFunc(at.Sub(now), func() { s.tick(no) })
}
