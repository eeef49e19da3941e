package kube

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
)

// What was refused is told again, though nothing changes.
func TestExtrasThatAreRefusedAreToldAgain(t *testing.T) {
	s, x := newExtrasScene(t)
	x.refusals = 2
	path := extraPath(extraGroup, "inferenceobjectives")
	s.install(path)
	s.put(path, "a", objectiveOf("llama", 1))
	s.run()
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 1}})
}

// A panic of the loop loses nothing of what was to be told: it lies in the channel while what tells is busy.
func TestExtrasOutliveAPanic(t *testing.T) {
	s, x := newExtrasScene(t)
	path := extraPath(extraGroup, "inferenceobjectives")
	s.install(path)
	busy, goOn, panics := make(chan struct{}, 10), make(chan struct{}), make(chan struct{}, 1)
	release := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	s.TellExtras(func(e Extras) bool {
		busy <- struct{}{}
		<-goOn
		return x.take(e)
	})
	s.cfg.Deprecated = func(string) {
		select {
		case <-panics:
			panic("the test")
		default:
		}
	}
	s.put(poolsPath, "llama", poolOf("vllm", 8000))
	s.run()
	<-busy
	s.put(path, "a", objectiveOf("llama", 7)) // which lies behind what is told
	<-time.After(50 * time.Millisecond)       // if it has not come by now it comes after the panic, which is as well
	panics <- struct{}{}
	legacy := extraPath(legacyGroup, "inferenceobjectives")
	s.put(legacy, "old", objectiveOf("llama", 1))
	s.install(legacy)
	s.until("the panic", func() bool { return len(panics) == 0 })
	release()
	s.reports("discovery has panicked: the test")
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 7, "old": 1}})
}

// Readiness waits for objectives and rewrites, also if there are none, but for no list that may not be made.
func TestReadinessWaitsForExtras(t *testing.T) {
	for name, c := range map[string]struct {
		refused int // status of the lists of objectives
		want    Extras
	}{
		"listed":    {0, Extras{Objectives: map[string]int{"a": -1}}},
		"forbidden": {http.StatusForbidden, Extras{}},
	} {
		t.Run(name, func(t *testing.T) {
			s, x := newExtrasScene(t)
			path := extraPath(extraGroup, "inferenceobjectives")
			s.install(path)
			s.put(path, "a", objectiveOf("llama", -1))
			s.put(poolsPath, "llama", poolOf("vllm", 8000))
			s.put(podsPath, "a", podAt("1", "10.0.0.1"))
			hold := s.hold(path, c.refused)
			s.run()
			s.tells("a-rank-0 10.0.0.1:8000")
			s.lacks("objectives and rewrites of namespace prod are not known yet")
			hold()
			s.lacks("")
			x.mu.Lock()
			defer x.mu.Unlock()
			if diff := cmp.Diff(c.want, x.last); diff != "" || x.count == 0 {
				t.Errorf("it is ready and was told, -want +got: %s", diff)
			}
		})
	}
}

// A list that fails for long does not hold the pool up for ever.
func TestReadinessPassesOverExtrasThatFail(t *testing.T) {
	s, _ := newExtrasScene(t)
	for kind := range s.extras.views {
		for group := range s.extras.views[kind] {
			s.extras.views[kind][group] = &extraView{kind: kind, group: group, all: map[string]*extra{}}
		}
	}
	view := s.extras.views[objectives][0]
	view.all, s.Discovery.pool.labels, s.extras.next = nil, labels.Set{}, make(chan extrasTelling, 1)
	s.extras.began = time.Now()
	for range 2 {
		s.extraFailed(view, errors.New("unreachable"))
	}
	if len(s.extras.next) > 0 {
		t.Errorf("%+v is told while a list fails for a short time, want nothing", <-s.extras.next)
	}
	s.extras.began = s.extras.began.Add(-extrasPatience)
	s.extraFailed(view, errors.New("unreachable"))
	if len(s.extras.next) == 0 || !(<-s.extras.next).whole {
		t.Error("a list that fails for long is still waited for")
	}
}
