package vllm

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
)

// sleep is whether the engine sleeps, as vLLM's does with --enable-sleep-mode: its process, its port and its page stay,
// requests wait without an answer, and from level 1 on the prefix cache is gone when it wakes.
type sleep struct {
	asleep bool
	level  int
	gone   []string // what has to be woken yet, of memoryParts
}

// memoryParts are what levels 1 and 2 free, by the tags under which it can be woken.
var memoryParts = []string{"weights", "kv_cache"}

// sleepLevels is the highest level.
const sleepLevels = 2

// Sleep ends every answer, and takes up no request until Wake.
func (s *Server) Sleep(level int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliver()
	s.core.Pause(s.cfg.Clock.Now())
	for id, a := range s.answers {
		s.core.Cancel(s.cfg.Clock.Now(), id)
		a.abort(id)
	}
	clear(s.answers)
	s.sleep = sleep{asleep: true, level: level}
	if level > 0 {
		s.gone = slices.Clone(memoryParts)
		s.core.ResetPrefixCache()
	}
}

// abort ends one sequence of an answer early. The caller holds the lock.
func (a *answer) abort(id uint64) {
	c := &a.choices[a.byID[id]]
	a.forward(batch.Progress{ID: id, Generated: c.generated, Cached: c.cached, Ended: batch.Abort})
}

// Wake brings parts of the memory back, all if none is named. It returns whether the engine is awake, which it is once
// all are back.
func (s *Server) Wake(parts ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = slices.DeleteFunc(s.gone, func(part string) bool {
		return len(parts) == 0 || slices.Contains(parts, part)
	})
	if len(s.gone) > 0 || !s.asleep {
		return !s.asleep
	}
	s.sleep = sleep{}
	s.core.Resume(s.cfg.Clock.Now())
	s.deliver()
	return true
}

// sleeping adds the endpoints that put the engine to sleep.
func (s *Server) sleeping(table map[string]map[string]http.HandlerFunc) {
	table["/sleep"] = map[string]http.HandlerFunc{"POST": s.onSleep}
	table["/wake_up"] = map[string]http.HandlerFunc{"POST": s.onWakeUp}
	table["/is_sleeping"] = map[string]http.HandlerFunc{"GET": s.onIsSleeping}
}

func (s *Server) onSleep(w http.ResponseWriter, r *http.Request) {
	level := 1
	if text := r.URL.Query().Get("level"); text != "" {
		var err error
		if level, err = strconv.Atoi(text); err != nil || level < 0 || level > sleepLevels {
			invalid("query.level", fmt.Sprintf("{'type': 'less_than_equal', 'loc': 'query.level', 'msg': 'Input "+
				"should be less than or equal to 2', 'input': '%s', 'ctx': {'le': 2}}", text)).write(w)
			return
		}
	}
	s.Sleep(level)
	writeJSON(w, http.StatusOK, struct {
		Status string `json:"status"`
		Level  int    `json:"level"`
	}{"sleeping", level})
}

func (s *Server) onWakeUp(w http.ResponseWriter, r *http.Request) {
	tags, status := r.URL.Query()["tags"], "sleeping"
	if s.Wake(tags...) {
		status = "awake"
	}
	writeJSON(w, http.StatusOK, struct {
		Status string   `json:"status"`
		Tags   []string `json:"tags"` // null = all
	}{status, tags})
}

func (s *Server) onIsSleeping(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	asleep := s.asleep
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]bool{"is_sleeping": asleep})
}
