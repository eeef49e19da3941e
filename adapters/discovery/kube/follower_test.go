package kube

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// bombs are codecs that panic at whatever has the word bomb in it, as often as is armed.
type bombs struct {
	runtime.NegotiatedSerializer
	armed *atomic.Int32
}

func (b bombs) DecoderToVersion(d runtime.Decoder, v runtime.GroupVersioner) runtime.Decoder {
	return bomb{b.NegotiatedSerializer.DecoderToVersion(d, v), b.armed}
}

type bomb struct {
	runtime.Decoder
	armed *atomic.Int32
}

func (b bomb) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error,
) {
	if bytes.Contains(data, []byte("bomb")) && b.armed.Add(-1) >= 0 {
		panic("the test")
	}
	return b.Decoder.Decode(data, defaults, into)
}

// panics returns how many panics are counted of a resource.
func (s *scene) panics(resource string) float64 {
	return testutil.ToFloat64(s.metrics.errors.WithLabelValues(resource, "panic"))
}

// A panic while an object is decoded, of a list or of a watch, ends neither the process nor what is known. It is
// counted and said, and all is followed again.
func TestPanicWhileDecoding(t *testing.T) {
	s := newScene(t, standalone())
	var armed atomic.Int32
	s.client.codecs = func(scheme *runtime.Scheme) runtime.NegotiatedSerializer {
		return bombs{codecsOf(scheme), &armed}
	}
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.run()
	s.tells("a-rank-0 10.0.0.1:8000")
	s.until("a watch", func() bool { return s.asked("watch " + podsPath) })
	armed.Store(2) // the watch, and the list after it
	s.put(podsPath, "b", podAt("2", "10.0.0.2").with("metadata", "annotations", map[string]string{"x": "bomb"}))
	s.reports("decoding has panicked: the test")
	s.reports("follower_test.go") // the stack
	if set, _ := s.pool.now(); !slices.Contains(set, "a-rank-0 10.0.0.1:8000") || s.Known() != nil {
		t.Errorf("the set is %v, what is not known %v; want that the last set stays", set, s.Known())
	}
	s.tells("a-rank-0 10.0.0.1:8000", "b-rank-0 10.0.0.2:8000")
	s.reports("")
	if got := s.panics("pods"); got != 2 {
		t.Errorf("%v panics are counted, want 2", got)
	}
}

// shaky makes calls, and panics at as many watches as are armed.
type shaky struct {
	http.RoundTripper
	armed *atomic.Int32
}

func (s shaky) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.RawQuery, "watch=") && s.armed.Add(-1) >= 0 {
		panic("the test")
	}
	return s.RoundTripper.RoundTrip(r)
}

func (s shaky) WrappedRoundTripper() http.RoundTripper { return s.RoundTripper }

// A panic of a reflector has it begin anew. Until it watches again what is known is stale.
func TestPanicOfAReflector(t *testing.T) {
	var armed atomic.Int32
	cfg := standalone()
	cfg.Cluster = &rest.Config{WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		return shaky{next, &armed}
	}}
	s := newScene(t, cfg)
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	armed.Store(3)
	s.run()
	s.reports("kube.shaky.RoundTrip") // of the stack
	s.tells("a-rank-0 10.0.0.1:8000")
	s.reports("")
	s.put(podsPath, "b", podAt("2", "10.0.0.2"))
	s.tells("a-rank-0 10.0.0.1:8000", "b-rank-0 10.0.0.2:8000")
	if got := s.panics("pods"); got != 3 {
		t.Errorf("%v panics are counted, want 3", got)
	}
	armed.Store(1) // the fourth in a row, after which it pauses for 0.8 s
	s.CloseClientConnections()
	s.until("it is stale", func() bool { return testutil.ToFloat64(s.metrics.age) > 0 })
	if got := s.Concern(); !strings.Contains(got, "following pods has panicked: the test") ||
		strings.Contains(got, "\n") {
		t.Errorf("the concern is %q, want the panic in one line", got)
	}
	s.until("it is fresh", func() bool { return testutil.ToFloat64(s.metrics.age) == 0 })
}

// A panic of the function that is told of objectives ends nothing, and it is told the same again.
func TestPanicOfWhoIsTold(t *testing.T) {
	s := newScene(t, inPool())
	x, calls := &told{}, 0
	s.TellExtras(func(e Extras) bool {
		if calls++; calls == 1 {
			panic("the test")
		}
		return x.take(e)
	})
	path := extraPath(extraGroup, "inferenceobjectives")
	s.install(path)
	s.put(path, "a", objectiveOf("llama", 1))
	s.run()
	s.reports("telling objectives and rewrites has panicked: the test")
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 1}})
	if got := s.panics(""); got != 1 {
		t.Errorf("%v panics are counted, want 1", got)
	}
}
