package kube

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// newCluster starts a kube-apiserver of a test's own, with flags.
func newCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	folder, err := os.MkdirTemp("", "kube") // short, unlike t.TempDir, for it holds sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	c, err := startCluster(filepath.Join(folder, "lab"), flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	if err := c.define("testdata/inferencepools.yaml"); err != nil {
		t.Fatal(err)
	}
	return c
}

// While the API server is away every pick succeeds and the picker stays ready; another one starts from the cache of the
// last known set. What changes after the API server's return is followed.
func TestAPIServerIsKilledAndStartedAgain(t *testing.T) {
	s := newSpace(t, newCluster(t))
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	cache := []string{"--discovery-cache", filepath.Join(t.TempDir(), "cache")}
	p := startPicker(t, s.inPool(cache...)...)
	p.knows("a-rank-0 10.0.0.1:8000")
	p.ready(true)

	s.kill()
	s.http.CloseIdleConnections()
	const counted = `signalbox_discovery_errors_total{reason="unreachable",resource="pods"}`
	eventually(t, "the outage is counted", func() bool { return strings.Contains(p.page("/metrics"), counted) })
	stopPicks := p.pickAlways()
	p.says("endpoints that stay in force: 1")
	const fresh = "\nsignalbox_discovery_stale_seconds 0\n"
	eventually(t, "it is stale", func() bool { return !strings.Contains(p.page("/metrics"), fresh) })
	p.ready(true)
	another := startPicker(t, s.inPool(cache...)...)
	another.ready(true)
	another.knows("a-rank-0 10.0.0.1:8000")
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	machine, began := lateness.Begin(), time.Now()
	s.pod("b", "10.0.0.2", vllm, nil)
	p.knows("a-rank-0 10.0.0.1:8000", "b-rank-0 10.0.0.2:8000")
	machine.Within(t, "followed after the API server was back", time.Since(began), 5*time.Second)
	another.knows("a-rank-0 10.0.0.1:8000", "b-rank-0 10.0.0.2:8000")
	eventually(t, "fresh", func() bool { return strings.Contains(p.page("/metrics"), fresh) })
	s.status("a", "10.0.0.1", true)
	if n := stopPicks(); n < 10 {
		t.Errorf("%d picks meanwhile, want 10 or more", n)
	}
	p.ready(true)
}

// pickEvery is the pause between two picks of pickAlways, which leaves the machine to what is tested.
const pickEvery = 10 * time.Millisecond

// pickAlways asks for one pick after the other, none of which may fail, until it is stopped, and returns how many. It
// ends with the test, also one that has failed.
func (p *picker) pickAlways() (stop func() int) {
	return p.always(pickEvery, func() {
		got, status, text := p.pick()
		if (status != http.StatusOK || !strings.HasPrefix(got, "10.0.0.")) && p.t.Context().Err() == nil {
			p.t.Errorf("pick: %q, %d %s", got, status, text)
		}
	})
}

// always does something again and again, until it is stopped or the test ends, and returns how often.
func (p *picker) always(every time.Duration, do func()) (stop func() int) {
	ended, done, n := make(chan struct{}), make(chan struct{}), 0
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			case <-p.t.Context().Done():
				return
			case <-time.After(every):
			}
			do()
			n++
		}
	}()
	p.t.Cleanup(func() { <-done })
	return func() int {
		close(ended)
		<-done
		return n
	}
}

// A picker that starts before the API server is live, and serves once that has come.
func TestAPIServerComesLater(t *testing.T) {
	s := newSpace(t, newCluster(t))
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	s.kill()
	p := startPicker(t, s.inPool()...)
	p.ready(false)
	eventually(t, "/readyz says why", func() bool { return strings.Contains(p.page("/readyz"), "connection refused") })
	p.refuses()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	machine := lateness.Begin()
	machine.Within(t, "ready after the API server", p.ready(true), 2*time.Second)
	p.knows("a-rank-0 10.0.0.1:8000")
}
