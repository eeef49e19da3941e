package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	core "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

const (
	poolPath   = "/apis/inference.networking.k8s.io/v1/namespaces/prod/inferencepools/llama"
	eventsPath = "/api/v1/namespaces/prod/events"
)

// cluster is an API server that has one pool and takes Events.
type cluster struct {
	mu      sync.Mutex
	refusal map[string]int // status of an answer by path; -1 = none comes
	written []core.Event
	calls   []string
}

// RoundTrip makes cluster the transport of a client: no socket, so that the clock of a test is the only one.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, r.Method+" "+r.URL.Path)
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	switch status := c.refusal[r.URL.Path]; {
	case status == -1:
		return nil, errors.New("connection refused")
	case status != 0:
		w.WriteHeader(status)
		reason := map[int]string{http.StatusForbidden: "Forbidden", http.StatusNotFound: "NotFound"}[status]
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`, status,
			reason)
	case r.Method == http.MethodGet && r.URL.Path == poolPath:
		_, _ = fmt.Fprint(w, `{"kind":"InferencePool","metadata":{"name":"llama","uid":"u-1","resourceVersion":"7"},`+
			`"spec":"nonsense"}`)
	case r.Method == http.MethodPost && r.URL.Path == eventsPath:
		var e core.Event
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			return nil, err
		}
		c.written = append(c.written, e)
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(e)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
	return w.Result(), nil
}

// panicking is a transport that panics once.
type panicking struct {
	next http.RoundTripper
	done bool
}

func (p *panicking) RoundTrip(r *http.Request) (*http.Response, error) {
	if !p.done {
		p.done = true
		panic("the test")
	}
	return p.next.RoundTrip(r)
}

func (c *cluster) refuse(path string, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusal = map[string]int{path: status}
}

func (c *cluster) events() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.written)
}

// last returns how many Events were written, and the reason of the last one.
func (c *cluster) last() (n int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n = len(c.written); n > 0 {
		reason = c.written[n-1].Reason
	}
	return n, reason
}

// scene runs Events over a cluster, in a bubble of synctest.
type scene struct {
	*cluster
	*Events
	t        *testing.T
	problems []string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{cluster: &cluster{}, t: t}
	e, err := Open(Config{
		Cluster: &rest.Config{Host: "http://cluster", Transport: s.cluster}, Namespace: "prod", Pool: "llama",
		Group: "inference.networking.k8s.io", Identity: "picker-1",
		Problem: func(err error) { s.problems = append(s.problems, fmt.Sprint(err)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Events = e
	go e.Run(t.Context())
	return s
}

// say says something and waits until it is dealt with.
func (s *scene) say(r Reason, text string) {
	s.t.Helper()
	s.Say(r, text)
	synctest.Wait()
}

func (s *scene) counted(r Reason, result string) float64 {
	return testutil.ToFloat64(s.counts.WithLabelValues(r.String(), result))
}

func TestEventIsOnThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		defer s.Close()
		s.say(NoReadyEndpoints, "none")
		s.say(EndpointsReady, strings.Repeat("é", 600))
		if s.events() != 2 {
			t.Fatalf("%d events, want 2: %v", s.events(), s.problems)
		}
		e, next := s.written[0], s.written[1]
		want := core.ObjectReference{APIVersion: "inference.networking.k8s.io/v1", Kind: "InferencePool",
			Namespace: "prod", Name: "llama", UID: "u-1", ResourceVersion: "7"}
		if e.InvolvedObject != want || e.Namespace != "prod" || e.GenerateName != "llama." {
			t.Errorf("it is on %+v, named %s/%s; want %+v", e.InvolvedObject, e.Namespace, e.GenerateName, want)
		}
		if e.Reason != "NoReadyEndpoints" || e.Type != "Warning" || e.Message != "none" || e.Count != 1 ||
			e.ReportingInstance != "picker-1" || e.FirstTimestamp.IsZero() || e.LastTimestamp.IsZero() {
			t.Errorf("got %+v", e)
		}
		if next.Type != "Normal" || len(next.Message) != mostText {
			t.Errorf("the second is %s with %d bytes, want Normal with %d", next.Type, len(next.Message), mostText)
		}
		if s.counted(NoReadyEndpoints, "written") != 1 || len(s.problems) > 0 {
			t.Errorf("counted %v, problems %q", s.counted(NoReadyEndpoints, "written"), s.problems)
		}
	})
}

// The same is not said again for a while, and however much there is to say, few Events are written.
func TestEventsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		defer s.Close()
		wants := func(n int) {
			t.Helper()
			if s.events() != n {
				t.Fatalf("%d events, want %d", s.events(), n)
			}
		}
		for range 100 {
			s.say(NoReadyEndpoints, "none")
		}
		wants(1)
		for i := range 100 {
			s.say(InvalidObject, fmt.Sprint("object ", i))
		}
		wants(burst)
		if got := s.counted(InvalidObject, "dropped"); got != 100-burst+1 {
			t.Errorf("%v counted as dropped, want %d", got, 100-burst+1)
		}
		<-time.After(every)
		s.say(InvalidObject, "object 98")
		s.say(InvalidObject, "object 99")
		wants(burst + 1)
		<-time.After(repeatAfter)
		s.say(NoReadyEndpoints, "none")
		wants(burst + 2)
		<-time.After(24 * time.Hour)
		for i := range 100 {
			s.say(InvalidObject, fmt.Sprint("later ", i))
		}
		wants(2*burst + 2)
		calls := len(s.calls)
		if calls != 2*s.events() {
			t.Errorf("%d calls for %d events, want two for each", calls, s.events())
		}
	})
}

// A pool that comes and goes all the time has few Events. Once it has settled the last one says how it is.
func TestLastEventSaysHowThePoolIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		defer s.Close()
		last := func(n int, want Reason) {
			t.Helper()
			synctest.Wait()
			if got, reason := s.last(); got != n || reason != want.String() {
				t.Fatalf("%d events, the last %s; want %d, and %s", got, reason, n, want)
			}
		}
		for i := range 250 { // within ten minutes
			s.say(NoReadyEndpoints, "none")
			<-time.After(time.Second)
			s.say(EndpointsReady, fmt.Sprint(i))
			<-time.After(time.Second)
		}
		last(2, EndpointsReady)
		s.say(NoReadyEndpoints, "none")
		last(2, EndpointsReady)
		<-time.After(2 * settled)
		last(3, NoReadyEndpoints)
		s.say(EndpointsReady, "one")
		s.say(NoReadyEndpoints, "none") // as people see it
		<-time.After(3 * repeatAfter)
		synctest.Wait()
		n, reason := s.last()
		if reason != "NoReadyEndpoints" || n > 5 {
			t.Errorf("%d events, the last %s", n, reason)
		}

		s.refuse(eventsPath, -1)
		s.say(EndpointsReady, "two")
		<-time.After(time.Hour)
		s.refuse("", 0)
		<-time.After(2 * settled)
		last(n+1, EndpointsReady)
		if failed := s.counted(EndpointsReady, "failed"); failed < 2 || failed > 61 {
			t.Errorf("%v tries failed in an hour, want one a minute at most", failed)
		}
		<-time.After(24 * time.Hour)
		last(n+1, EndpointsReady)
	})
}

// What cannot be written is counted, and told once.
func TestEventsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		path, result, problem string
		status                int
	}{
		"no right": {eventsPath, "forbidden", "create events: ", http.StatusForbidden},
		"no right to pool": {poolPath, "forbidden", "get inferencepools.inference.networking.k8s.io: ",
			http.StatusForbidden},
		"no answer": {eventsPath, "failed", "connection refused", -1},
		"no pool":   {poolPath, "dropped", "", http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				defer s.Close()
				s.refuse(c.path, c.status)
				for i := range 3 {
					s.say(InvalidObject, fmt.Sprint(i))
				}
				if got := s.counted(InvalidObject, c.result); got != 3 {
					t.Errorf("%v counted as %s, want 3", got, c.result)
				}
				if c.problem == "" && len(s.problems) > 0 ||
					c.problem != "" && (len(s.problems) != 1 || !strings.Contains(s.problems[0], c.problem)) {
					t.Errorf("problems %q, want once %q", s.problems, c.problem)
				}
				s.refuse("", 0)
				s.say(InvalidObject, "2") // what was not written may be said again
				if s.events() != 1 || c.problem != "" && s.problems[len(s.problems)-1] != "<nil>" {
					t.Errorf("%d events, problems %q; want one, and the end of the problem", s.events(), s.problems)
				}
			})
		})
	}
}

// Nothing waits for an API server that hangs: neither who has something to say nor a shutdown.
func TestEventsHoldNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{cluster: &cluster{}, t: t}
		e, err := Open(Config{Cluster: &rest.Config{Host: "http://cluster", Transport: hanging{}}, Namespace: "prod",
			Pool: "llama", Group: "inference.networking.k8s.io"})
		if err != nil {
			t.Fatal(err)
		}
		s.Events = e
		go e.Run(t.Context())
		for i := range 100 {
			s.say(InvalidObject, fmt.Sprint(i))
		}
		if got := s.counted(InvalidObject, "dropped"); got != 100-1-mostWaiting {
			t.Errorf("%v dropped, want %d", got, 100-1-mostWaiting)
		}
		began := time.Now()
		e.Close()
		if took := time.Since(began); took != 0 {
			t.Errorf("Close took %v", took)
		}
		e.Run(t.Context()) // returns at once
	})
}

// hanging never answers.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestCloseBeforeRun(t *testing.T) {
	e, err := Open(Config{Cluster: &rest.Config{Host: "http://cluster"}})
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	e.Run(t.Context()) // returns at once
}

// A panic while an Event is written ends neither the process nor the writing of the next one, and is said.
func TestPanicEndsNoEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{cluster: &cluster{}, t: t}
		e, err := Open(Config{
			Cluster:   &rest.Config{Host: "http://cluster", Transport: &panicking{next: s.cluster}},
			Namespace: "prod", Pool: "llama", Group: "inference.networking.k8s.io", Identity: "picker-1",
			Problem: func(err error) { s.problems = append(s.problems, fmt.Sprint(err)) },
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Events = e
		go e.Run(t.Context())
		s.say(NoReadyEndpoints, "none")
		<-time.After(time.Second)
		s.say(EndpointsReady, "one")
		if n, reason := s.last(); n != 1 || reason != EndpointsReady.String() || len(s.problems) < 1 ||
			!strings.Contains(s.problems[0], "writing Events has panicked: the test\n") {
			t.Errorf("%d Events, the last %s, problems %.200q; want the one after the panic, which is said", n, reason,
				s.problems)
		}
		e.Close()
	})
}
