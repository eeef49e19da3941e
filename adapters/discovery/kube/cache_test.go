package kube

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// cachedPool is a cache of a picker that has seen one pod, and the API server, whose pod it is.
func cachedPool(t *testing.T) (*fake, Config) {
	t.Helper()
	cfg := inPool()
	cfg.Cache = filepath.Join(t.TempDir(), "cache")
	s := newScene(t, cfg)
	s.put(poolsPath, "llama", poolOf("vllm", 8000))
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.run()
	s.tells("a-rank-0 10.0.0.1:8000")
	s.Discovery.Close() // which writes what is to be written
	return s.fake, cfg
}

// Without an API server the last known set serves and is ready, and is replaced by what the API server says.
func TestStartFromTheCache(t *testing.T) {
	f, cfg := cachedPool(t)
	f.refuse(http.StatusInternalServerError)
	s := newSceneOver(t, f, cfg)
	s.run()
	s.tells("a-rank-0 10.0.0.1:8000")
	s.lacks("")
	s.reports("1 endpoints of the cache serve")
	if testutil.ToFloat64(s.metrics.age) <= 0 {
		t.Error("signalbox_discovery_stale_seconds is 0 while the cache serves")
	}
	if label, _ := s.pool.last.Endpoints.At(0).Labels.Get("app"); label != "vllm" {
		t.Errorf("the label app is %q, want vllm", label)
	}
	s.put(podsPath, "b", podAt("2", "10.0.0.2"))
	f.refuse(0)
	s.tells("a-rank-0 10.0.0.1:8000", "b-rank-0 10.0.0.2:8000")
	s.reports("")
	s.until("fresh", func() bool { return testutil.ToFloat64(s.metrics.age) == 0 })
	s.lacks("")
}

// A start from the cache waits for objectives and rewrites where the API server answers.
func TestStartFromTheCacheWaitsForExtras(t *testing.T) {
	f, cfg := cachedPool(t)
	path := extraPath(extraGroup, "inferenceobjectives")
	f.install(path)
	hold := f.hold(path, 0)
	s := newSceneOver(t, f, cfg)
	s.TellExtras(func(Extras) bool { return true })
	s.run()
	s.tells("a-rank-0 10.0.0.1:8000")
	s.lacks("objectives and rewrites of namespace prod are not known yet")
	hold()
	s.lacks("")
}

// A cache that a clock wrote that is ahead has no negative age.
func TestCacheOfTheFuture(t *testing.T) {
	f, cfg := cachedPool(t)
	ahead := &cacheForm{Subject: "inferencepools." + DefaultGroup + " prod/llama", Written: time.Now().Add(time.Hour),
		Endpoints: []cachedSpec{{Name: "a", Address: "10.0.0.1:8000"}}}
	if err := writeCache(cfg.Cache, ahead); err != nil {
		t.Fatal(err)
	}
	f.refuse(http.StatusInternalServerError)
	s := newSceneOver(t, f, cfg)
	s.run()
	s.reports("1 endpoints of the cache serve, written 0s ago")
	if age := testutil.ToFloat64(s.metrics.age); age <= 0 || age > withinTest.Seconds() {
		t.Errorf("signalbox_discovery_stale_seconds is %v, want the time since the start", age)
	}
}

// A pool that refuses the set of the cache at the start is told it again.
func TestCacheThatThePoolRefusesAtFirst(t *testing.T) {
	f, cfg := cachedPool(t)
	f.refuse(http.StatusInternalServerError)
	s := newSceneOver(t, f, cfg)
	s.pool.refusals = 2
	s.run()
	s.tells("a-rank-0 10.0.0.1:8000")
	s.lacks("")
}

// The cache is written again while its set is followed, and not while it is not.
func TestAgeOfTheCache(t *testing.T) {
	cfg := standalone()
	cfg.Cache = filepath.Join(t.TempDir(), "cache")
	s := newScene(t, cfg)
	renewed := func() bool {
		select {
		case <-s.out.cache:
			return true
		default:
			return false
		}
	}
	s.renewCache()
	if renewed() {
		t.Error("the cache is written before anything is known")
	}
	s.out.known = true
	if s.renewCache(); !renewed() {
		t.Error("the cache of a set that is followed is not written again")
	}
	s.Discovery.problems.note(pods.call("list"), pods, errors.New("no"))
	if s.renewCache(); renewed() {
		t.Error("the cache is written while the pods are not followed")
	}
}

// Once the API server says that the pool is gone, the cache does not serve.
func TestCacheOfAPoolThatIsGone(t *testing.T) {
	f, cfg := cachedPool(t)
	f.put(poolsPath, "llama", nil)
	s := newSceneOver(t, f, cfg)
	s.run()
	s.lacks("there is no InferencePool prod/llama")
	s.tells()
	s.Discovery.Close()
	f.refuse(http.StatusInternalServerError)
	s = newSceneOver(t, f, cfg)
	s.run()
	s.lacks("InferencePool prod/llama is not known yet: list")
	if _, count := s.pool.now(); count > 0 {
		t.Error("an empty cache was told")
	}
}

// A cache that cannot be used is named, and the start goes on without it.
func TestCachesThatAreNotUsed(t *testing.T) {
	f, cfg := cachedPool(t)
	good, err := os.ReadFile(cfg.Cache)
	if err != nil {
		t.Fatal(err)
	}
	f.refuse(http.StatusInternalServerError)
	for text, want := range map[string]string{
		"":                       "unexpected end of JSON input",
		string(good[:20]):        "unexpected end of JSON input",
		`{"endpoints": 5}`:       "cannot unmarshal number",
		`{"subject": "another"}`: "is of another, not of inferencepools." + DefaultGroup + " prod/llama",
		strings.Replace(string(good), "10.0.0.1:8000", "10.0.0.1", 1): `"a-rank-0" has no address that can be used`,
	} {
		if err := os.WriteFile(cfg.Cache, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := newSceneOver(t, f, cfg)
		s.run()
		s.reports(want)
		s.lacks("InferencePool prod/llama is not known yet: ")
		if _, count := s.pool.now(); count > 0 {
			t.Errorf("%q is told", text)
		}
		s.Discovery.Close()
	}
}

// A cache that cannot be written is said once, and stops nothing.
func TestCacheThatCannotBeWritten(t *testing.T) {
	cfg := standalone()
	cfg.Cache = filepath.Join(t.TempDir(), "no", "such", "folder")
	s := newScene(t, cfg)
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.run()
	s.tells("a-rank-0 10.0.0.1:8000")
	s.reports("the cache is not written: ")
}
