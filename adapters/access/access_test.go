package access

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// What becomes of a review other than a status.
const (
	refused = -1 - iota // there is no connection
	lost                // there is no answer
	garbled             // the answer is half a document
	bomb                // it panics
)

// cluster answers reviews: tokens of users begin with "of-", and users with rights have one path each.
type cluster struct {
	mu     sync.Mutex
	status int               // of every answer, or one of the above; 0 = it reviews
	only   string            // reviews of this name get the status; "" = all
	rights map[string]string // path by user
	asked  []string
}

func (c *cluster) set(status int, rights map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.rights = status, rights
}

// calls returns how many reviews there were since it was called last.
func (c *cluster) calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.asked)
	c.asked = nil
	return n
}

// RoundTrip makes cluster the transport of a client: no socket, so that the clock of a test is the only one.
func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.asked = append(c.asked, r.URL.Path)
	status, rights := c.status, c.rights
	if !strings.HasSuffix(r.URL.Path, c.only) {
		status = 0
	}
	c.mu.Unlock()
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case status == refused:
		return nil, syscall.ECONNREFUSED
	case status == lost:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case status == bomb:
		panic("the test")
	case status == garbled:
		w.WriteHeader(http.StatusOK)
		_, _ = w.WriteString("{")
	case status != 0:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}`, status)
	case r.URL.Path == "/apis/authentication.k8s.io/v1/tokenreviews":
		var review authentication.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			return nil, err
		}
		user, ok := strings.CutPrefix(review.Spec.Token, "of-")
		review.Status = authentication.TokenReviewStatus{Authenticated: ok, User: authentication.UserInfo{
			Username: user, Groups: []string{"readers"},
			Extra: map[string]authentication.ExtraValue{"key": {"value"}},
		}}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	case r.URL.Path == "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		var review authorization.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			return nil, err
		}
		s := review.Spec
		review.Status.Allowed = rights[s.User] == s.NonResourceAttributes.Path && len(s.Groups) == 1 &&
			s.Extra["key"][0] == "value" && s.NonResourceAttributes.Verb == "get"
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
	return w.Result(), nil
}

func newReviews(t *testing.T, c *cluster) (r *Reviews, problems func() []string) {
	t.Helper()
	var mu sync.Mutex
	var told []string
	r, err := New(Config{Cluster: &rest.Config{Host: "http://cluster", Transport: c}, Problem: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprint(err))
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return told
	}
}

func TestVerdicts(t *testing.T) {
	c := &cluster{rights: map[string]string{"anna": "/metrics"}}
	r, _ := newReviews(t, c)
	for name, d := range map[string]struct {
		header, verb, path string
		want               Verdict
	}{
		"no token":         {"", "GET", "/metrics", Unauthenticated},
		"another scheme":   {"Basic of-anna", "GET", "/metrics", Unauthenticated},
		"an empty token":   {"Bearer  ", "GET", "/metrics", Unauthenticated},
		"a wrong token":    {"Bearer stranger", "GET", "/metrics", Unauthenticated},
		"a long token":     {"Bearer of-" + strings.Repeat("a", 16<<10), "GET", "/metrics", Unauthenticated},
		"no right":         {"Bearer of-bert", "GET", "/metrics", Forbidden},
		"another path":     {"Bearer of-anna", "GET", "/debug/requests", Forbidden},
		"another verb":     {"Bearer of-anna", "POST", "/metrics", Forbidden},
		"a long path":      {"Bearer of-anna", "GET", "/" + strings.Repeat("a", 1<<10), Forbidden},
		"the right":        {"Bearer of-anna", "GET", "/metrics", Granted},
		"in small letters": {"bearer of-anna", "get", "/metrics", Granted},
	} {
		if got := r.Decide(d.header, d.verb, d.path); got != d.want {
			t.Errorf("%s: got %v, want %v", name, got, d.want)
		}
	}
}

// Many reads at a time cost two reviews in ten seconds, and a right that was revoked ends then.
func TestAnswersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{rights: map[string]string{"anna": "/metrics"}}
		r, _ := newReviews(t, c)
		reads := func(want Verdict) {
			t.Helper()
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					if got := r.Decide("Bearer of-anna", "GET", "/metrics"); got != want {
						t.Errorf("got %v, want %v", got, want)
					}
				})
			}
			all.Wait()
		}
		reads(Granted)
		<-time.After(9 * time.Second)
		reads(Granted)
		if got := c.calls(); got != 2 {
			t.Errorf("100 reads cost %d reviews, want 2", got)
		}
		c.set(0, nil)
		<-time.After(2 * time.Second)
		reads(Forbidden)
		if got := c.calls(); got != 2 {
			t.Errorf("50 reads cost %d reviews, want 2", got)
		}
	})
}

// While there is no answer at all from the API server, a user who had the right keeps it for five minutes, and no other
// one gets in. Any answer but a success is one: with it no yes holds for more than its ten seconds.
func TestNoAnswer(t *testing.T) {
	rights := map[string]string{"anna": "/metrics", "carl": "/metrics"}
	for status, trusted := range map[int]bool{
		refused: true, lost: true, garbled: false, bomb: false,
		401: false, 403: false, 404: false, 429: false, 500: false, 503: false,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{rights: rights}
				r, problems := newReviews(t, c)
				want := func(user string, want Verdict) {
					t.Helper()
					if got := r.Decide("Bearer of-"+user, "GET", "/metrics"); got != want {
						t.Errorf("%s: got %v, want %v", user, got, want)
					}
				}
				want("anna", Granted)
				ends := time.Now().Add(trustFor)
				want("bert", Forbidden)
				c.set(status, rights)
				<-time.After(11 * time.Second)
				for range 3 {
					if trusted {
						want("anna", Granted)
					} else {
						want("anna", Undecided)
					}
					want("bert", Undecided)
					want("carl", Undecided)
				}
				says := map[bool]string{true: "a review has panicked: the test\n", false: "tokenreviews.authentication"}
				if got := problems(); len(got) != 1 || !strings.Contains(got[0], says[status == bomb]) {
					t.Errorf("told %q, want the review that fails, once", got)
				}
				<-time.After(time.Until(ends) - 2*answerWithin - time.Second)
				if trusted {
					want("anna", Granted)
				} else {
					want("anna", Undecided)
				}
				<-time.After(time.Until(ends) + askAgain)
				want("anna", Undecided)
				c.set(0, rights)
				<-time.After(2 * time.Second)
				want("anna", Granted)
				want("carl", Granted)
				if got := problems(); len(got) != 2 || got[1] != "<nil>" {
					t.Errorf("told %q, want that it is over too", got)
				}
			})
		})
	}
}

// A good review of one kind does not end the problem of the other.
func TestReviewsOfBothKindsFailApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{status: http.StatusForbidden, only: "subjectaccessreviews",
			rights: map[string]string{"anna": "/metrics"}}
		r, problems := newReviews(t, c)
		for range 3 {
			if got := r.Decide("Bearer of-anna", "GET", "/metrics"); got != Undecided {
				t.Errorf("got %v, want undecided", got)
			}
			<-time.After(keepFor + time.Second)
		}
		if got := problems(); len(got) != 1 || !strings.Contains(got[0], "subjectaccessreviews") {
			t.Errorf("told %q, want one problem", got)
		}
		c.set(0, c.rights)
		if got := r.Decide("Bearer of-anna", "GET", "/metrics"); got != Granted || len(problems()) != 2 {
			t.Errorf("got %v, told %q, want granted, and the end of the problem", got, problems())
		}
	})
}

// An outage that becomes refusals, as when an API server starts again and is not whole yet, ends the trust at once, and
// for those too whose questions are not asked again yet.
func TestTrustEndsWithAnAnswer(t *testing.T) {
	rights := map[string]string{"anna": "/metrics", "carl": "/metrics"}
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{rights: rights}
		r, _ := newReviews(t, c)
		all := func(want Verdict) {
			t.Helper()
			for _, user := range []string{"anna", "carl"} {
				if got := r.Decide("Bearer of-"+user, "GET", "/metrics"); got != want {
					t.Errorf("%s: got %v, want %v", user, got, want)
				}
			}
		}
		all(Granted)
		c.set(refused, rights)
		<-time.After(11 * time.Second)
		all(Granted)
		c.set(503, rights)
		r.Decide("Bearer stranger", "GET", "/metrics")
		all(Undecided)
		c.set(0, rights)
		<-time.After(askAgain)
		all(Granted)
	})
}

// In an outage in which answers are lost, more readers than may ask at a time all keep the right that they had.
func TestManyReadersOutliveAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{rights: map[string]string{}}
		for i := range 4 * mostAsking {
			c.rights[fmt.Sprint(i)] = "/metrics"
		}
		r, _ := newReviews(t, c)
		read := func() (granted int32) {
			var all sync.WaitGroup
			var n atomic.Int32
			for user := range c.rights {
				all.Go(func() {
					if r.Decide("Bearer of-"+user, "GET", "/metrics") == Granted {
						n.Add(1)
					}
				})
			}
			all.Wait()
			return n.Load()
		}
		read()
		c.set(lost, c.rights)
		<-time.After(keepFor)
		read() // in this one some may be refused, for nothing is known of the outage yet
		<-time.After(askAgain)
		if got := read(); int(got) != len(c.rights) {
			t.Errorf("%d of %d readers are granted", got, len(c.rights))
		}
	})
}

// Any number of strangers takes a bounded memory, and drives out nobody who has the right.
func TestStrangersTakeNoRoom(t *testing.T) {
	c := &cluster{rights: map[string]string{"anna": "/metrics"}}
	r, _ := newReviews(t, c)
	if got := r.Decide("Bearer of-anna", "GET", "/metrics"); got != Granted {
		t.Fatalf("got %v", got)
	}
	for i := range 3 * mostKept {
		if got := r.Decide(fmt.Sprintf("Bearer %d", i), "GET", "/metrics"); got != Unauthenticated {
			t.Fatalf("stranger %d: %v", i, got)
		}
	}
	if len(r.kept) > mostKept {
		t.Errorf("%d answers are kept, want %d at most", len(r.kept), mostKept)
	}
	c.calls()
	if got := r.Decide("Bearer of-anna", "GET", "/metrics"); got != Granted || c.calls() != 0 {
		t.Errorf("got %v, by a new review; want what was kept", got)
	}
}
