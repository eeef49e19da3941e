package vllm

import (
	"net"
	"net/http"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/page"
)

// portRetry is how long a restarting server waits when another process has its port.
const portRetry = 100 * time.Millisecond

// boot makes engine, counters and page as a process has them that has just begun. The caller holds the lock.
func (s *Server) boot() error {
	core, err := batch.New(s.cfg.engine(), s.tokens)
	if err != nil {
		return err
	}
	s.process = process{core: core, answers: make(map[uint64]*answer)}
	for _, name := range s.cfg.Adapters {
		s.adapters = append(s.adapters, adapter{name, name})
	}
	s.page = page.New(page.Layout{
		Model: s.cfg.Model, KVBlocks: s.cfg.KVBlocks, BlockTokens: s.cfg.BlockTokens, MaxModelLen: s.cfg.MaxModelLen,
		MaxLoRAs: s.cfg.MaxLoRAs, Started: s.cfg.Clock.Now(),
	}, core.Tally())
	return nil
}

// serve begins to accept connections. The caller holds the lock.
func (s *Server) serve(listener net.Listener) {
	server := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 30 * time.Second, ConnState: s.count}
	refusing := make(chan struct{})
	s.http, s.refusing = server, refusing
	s.serving.Go(func() {
		defer close(refusing)
		// Serve always returns an error, after Stop and Kill as well; a listener that fails shows at the clients.
		_ = server.Serve(listener)
	})
}

// Restart cuts every connection, refuses new ones for down, and comes back as a process that has just begun: counters
// and start time are new, caches and queues empty, the adapters those of the start. It does nothing to a server that
// restarts already or has ended.
func (s *Server) Restart(down time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http == nil || s.ending {
		return
	}
	_ = s.http.Close() // the connections end, whatever it says
	<-s.refusing       // only then is the port free
	s.http = nil
	s.takeBack(&s.next)
	if down <= 0 {
		s.reopen()
		return
	}
	s.next = s.cfg.Clock.AfterFunc(down, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reopen()
	})
}

// reopen ends a restart. The caller holds the lock.
func (s *Server) reopen() {
	if s.ending || s.http != nil {
		return
	}
	s.next = nil
	listener, err := net.Listen("tcp", s.addr)
	if err != nil { // another process has the port
		s.next = s.cfg.Clock.AfterFunc(portRetry, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reopen()
		})
		return
	}
	s.takeBack(&s.stop)
	s.alarmAt, s.alarmNo = time.Time{}, s.alarmNo+1
	_ = s.boot() // the configuration was good at the start
	s.serve(listener)
	f := s.faults
	f.Stalled, f.Draining, f.EngineDead = false, false, false
	s.setFaults(f)
}

// end announces that the server stops for good. It returns what still serves, nil while a restart is under way.
func (s *Server) end() *http.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	s.takeBack(&s.next)
	return s.http
}

// takeBack cancels a call of the clock. The caller holds the lock.
func (s *Server) takeBack(call *func()) {
	if *call != nil {
		(*call)()
		*call = nil
	}
}
