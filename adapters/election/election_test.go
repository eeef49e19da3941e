package election

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// store holds a Lease as an API server does: who writes must have read the newest version.
type store struct {
	mu      sync.Mutex
	record  *resourcelock.LeaderElectionRecord // nil = there is no Lease
	version int
}

// access is the store as one process reaches it.
type access struct {
	store *store
	name  string
	known int // the version that was read or written last

	mu     sync.Mutex
	fails  error         // what calls return; nil = the store answers
	delay  time.Duration // of answers
	stalls bool          // calls get no answer
	bombs  int           // so many calls panic
}

func (a *access) set(fails error, stalls bool, delay time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fails, a.stalls, a.delay = fails, stalls, delay
}

// do calls the store, as the faults of now have it.
func (a *access) do(ctx context.Context, call func(*store) error) error {
	a.mu.Lock()
	fails, stalls, delay := a.fails, a.stalls, a.delay
	bomb := a.bombs > 0
	if bomb {
		a.bombs--
	}
	a.mu.Unlock()
	if bomb {
		panic("the test")
	}
	if fails != nil {
		return fails
	}
	if stalls {
		<-ctx.Done()
		return ctx.Err()
	}
	a.store.mu.Lock()
	err := call(a.store)
	a.store.mu.Unlock()
	select {
	case <-time.After(delay): // what was stored stays so, even if the answer is late
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *access) Get(ctx context.Context) (record *resourcelock.LeaderElectionRecord, raw []byte, err error) {
	err = a.do(ctx, func(s *store) error {
		if s.record == nil {
			return apierrors.NewNotFound(leases, "l")
		}
		is := *s.record
		record, a.known = &is, s.version
		raw, err = json.Marshal(is)
		return err
	})
	return record, raw, err
}

func (a *access) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return a.do(ctx, func(s *store) error {
		if s.record != nil {
			return apierrors.NewAlreadyExists(leases, "l")
		}
		s.record, s.version = &r, s.version+1
		a.known = s.version
		return nil
	})
}

func (a *access) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return a.do(ctx, func(s *store) error {
		if a.known != s.version {
			return apierrors.NewConflict(leases, "l", errors.New("it changed"))
		}
		s.record, s.version = &r, s.version+1
		a.known = s.version
		return nil
	})
}

func (a *access) RecordEvent(string) {}
func (a *access) Identity() string   { return a.name }
func (a *access) Describe() string   { return "n/l" }

// contender is a process that may lead.
type contender struct {
	*Election
	at   *access
	mu   sync.Mutex
	told []string
}

func (c *contender) problems() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told
}

// contend starts a process. It ends with the test.
func contend(t *testing.T, s *store, name string) *contender {
	t.Helper()
	c := &contender{at: &access{store: s, name: name}}
	e, err := claim(Config{Identity: name, Lease: "l", Problem: func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		text := "well"
		if err != nil {
			text = err.Error()
		}
		c.told = append(c.told, text)
	}}, c.at)
	if err != nil {
		t.Fatal(err)
	}
	c.Election = e
	go e.Run(t.Context())
	return c
}

// watch fails the test if two lead at a time, and returns how long it took until one does, of those given.
func watch(t *testing.T, within time.Duration, until *contender, all ...*contender) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		leaders := 0
		for _, c := range all {
			if c.Leads() == nil {
				leaders++
			}
		}
		if leaders > 1 {
			t.Fatalf("%d lead at a time", leaders)
		}
		took := time.Since(began)
		if until != nil && until.Leads() == nil {
			return took
		}
		if took > within {
			if until != nil {
				t.Fatalf("%s does not lead after %v: %v", until.cfg.Identity, took, until.Leads())
			}
			return took
		}
		<-time.After(5 * time.Millisecond)
	}
}

// One leads, and the other one only once the first has given up the Lease, was lost, or lost the Lease.
func TestOneLeads(t *testing.T) {
	for name, c := range map[string]struct {
		ends   func(*contender)
		within time.Duration
		lives  bool // it leads again once the other one gives up
	}{
		"it gives up":  {func(c *contender) { c.Close() }, 1500 * time.Millisecond, false},
		"it dies":      {func(c *contender) { c.at.set(nil, true, 0); c.cancel() }, 8 * time.Second, false},
		"it is cut":    {func(c *contender) { c.at.set(errors.New("cut"), false, 0) }, 8 * time.Second, true},
		"it stalls":    {func(c *contender) { c.at.set(nil, true, 0) }, 8 * time.Second, true},
		"lost answers": {func(c *contender) { c.at.set(nil, false, time.Hour) }, 13 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{}
				a := contend(t, s, "a")
				watch(t, time.Second, a, a)
				b := contend(t, s, "b")
				watch(t, time.Minute, nil, a, b)
				if err := b.Leads(); err == nil || err.Error() != "not the leader: a leads" {
					t.Errorf("the standby: %v", err)
				}
				c.ends(a)
				watch(t, c.within, b, a, b)
				if !c.lives {
					return
				}
				a.at.set(nil, false, 0)
				watch(t, 10*time.Second, nil, a, b)
				b.Close()
				watch(t, 1500*time.Millisecond, a, a, b)
			})
		})
	}
}

// Answers that are late, but come, never have two lead.
func TestLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		a := contend(t, s, "a")
		watch(t, time.Second, a, a)
		b := contend(t, s, "b")
		for _, milliseconds := range []int{1400, 1499, 1501, 700} {
			a.at.set(nil, false, time.Duration(milliseconds)*time.Millisecond)
			watch(t, 20*time.Second, nil, a, b)
			a.at.set(errors.New("cut"), false, 0)
			watch(t, 20*time.Second, nil, a, b)
			a.at.set(nil, false, 0)
			b.at.set(errors.New("cut"), false, 0)
			watch(t, 20*time.Second, a, a, b)
			b.at.set(nil, false, 0)
		}
	})
}

// An outage for all ends with one that leads, and each process has said what was wrong once.
func TestOutageForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		a := contend(t, s, "a")
		watch(t, time.Second, a, a)
		b := contend(t, s, "b")
		watch(t, 10*time.Second, nil, a, b)
		a.at.set(errors.New("refused"), false, 0)
		b.at.set(errors.New("refused"), false, 0)
		watch(t, time.Hour, nil, a, b)
		for _, c := range []*contender{a, b} {
			if err := c.Leads(); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("%s in the outage: %v", c.cfg.Identity, err)
			}
			c.at.set(nil, false, 0)
		}
		began := time.Now()
		for a.Leads() != nil && b.Leads() != nil && time.Since(began) < time.Minute {
			<-time.After(5 * time.Millisecond)
		}
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("one leads %v after the outage, want 8 s at most", took)
		}
		watch(t, 10*time.Second, nil, a, b)
		for _, c := range []*contender{a, b} {
			if got := c.problems(); len(got) != 2 || !strings.HasSuffix(got[0], "refused") || got[1] != "well" {
				t.Errorf("%s told %q, want the outage, and that it is over", c.cfg.Identity, got)
			}
		}
	})
}

// Without the right to leases a process does not lead, says why, and leads once it has it.
func TestRightThatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		a := contend(t, s, "a")
		a.at.set(apierrors.NewForbidden(leases, "l", errors.New("no right")), false, 0)
		<-time.After(time.Hour)
		const want = "get leases.coordination.k8s.io n/l: "
		if err := a.Leads(); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "no right") {
			t.Errorf("got %v, want %s and the right", err, want)
		}
		a.at.set(nil, false, 0)
		watch(t, 2*time.Second, a, a)
		if got := a.problems(); len(got) != 2 || got[1] != "well" {
			t.Errorf("told %q, want the problem once, and that it is over", got)
		}
	})
}

// A holder with a clock that is wrong is left alone while it renews.
func TestHolderWithAWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		renew := func(i int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			r := resourcelock.LeaderElectionRecord{HolderIdentity: "other", LeaseDurationSeconds: 15}
			r.LeaderTransitions, r.RenewTime.Time = i, time.Now().Add(-24*time.Hour)
			s.record, s.version = &r, s.version+1
		}
		renew(0)
		a := contend(t, s, "a")
		for i := range 60 {
			renew(i)
			watch(t, 2*time.Second, nil, a)
			if a.Leads() == nil {
				t.Fatal("it took the Lease of a holder that renews")
			}
		}
		if took := watch(t, 18*time.Second, a, a); took < 13*time.Second {
			t.Errorf("it took the Lease after %v, want the 15 s that its holder wrote", took)
		}
	})
}

// The calls are those for which the right to leases of one namespace is enough.
func TestCallsOfTheAPIServer(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, r.Method+" "+r.URL.Path+" "+r.UserAgent())
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"l"}}`))
	}))
	t.Cleanup(api.Close)
	e, err := Open(Config{Cluster: &rest.Config{Host: api.URL}, Namespace: "prod", Lease: "l", Identity: "a"})
	if err != nil {
		t.Fatal(err)
	}
	go e.Run(t.Context())
	for end := time.Now().Add(20 * time.Second); e.Leads() != nil && time.Now().Before(end); {
		<-time.After(time.Millisecond)
	}
	if err := e.Leads(); err != nil {
		t.Error(err)
	}
	<-e.Close()
	mu.Lock()
	defer mu.Unlock()
	const path = " /apis/coordination.k8s.io/v1/namespaces/prod/leases"
	if len(calls) < 2 || calls[0] != "GET"+path+"/l signalbox" || calls[1] != "POST"+path+" signalbox" {
		t.Errorf("calls %q, want a GET and then a POST", calls)
	}
	if e.Leads() == nil {
		t.Error("it leads after its end")
	}
}

// This process leads for a while from when it sent what was taken, not from when it heard of it, and no more from when
// it asks to give the Lease up. A call without an answer ends.
func TestLeadsWhileNoOtherMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := &access{store: &store{}, name: "a"}
		l := &lock{Interface: at, cfg: Config{Identity: "a"}}
		held, given := resourcelock.LeaderElectionRecord{HolderIdentity: "a"}, resourcelock.LeaderElectionRecord{}
		at.set(nil, false, 1400*time.Millisecond)
		sent := time.Now()
		if err := l.Create(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		for after, want := range map[time.Duration]bool{4400 * time.Millisecond: true, 4600 * time.Millisecond: false} {
			if got := l.until.After(sent.Add(after)); got != want {
				t.Errorf("it leads %v after it sent what was taken: %v, want %v", after, got, want)
			}
		}
		if err := l.Update(t.Context(), held); err != nil || !l.leads() {
			t.Fatalf("it does not lead: %v", err)
		}
		ended := make(chan error)
		go func() { ended <- l.Update(t.Context(), given) }()
		synctest.Wait()
		if l.leads() {
			t.Error("it leads while it gives the Lease up")
		}
		if err := <-ended; err != nil || l.leads() {
			t.Errorf("it leads after it gave the Lease up: %v", err)
		}
		at.set(nil, true, 0)
		began := time.Now()
		if err := l.Update(t.Context(), held); err == nil || l.leads() {
			t.Errorf("it leads without an answer: %v", err)
		}
		if took := time.Since(began); took != answerWithin {
			t.Errorf("a call without an answer took %v, want %v", took, answerWithin)
		}
	})
}

// A panic of what claims the Lease, or of whom its holder is told, ends neither the process nor the claim, and is said
// with its stack.
func TestPanicsEndNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := &access{store: &store{}, name: "a", bombs: 2}
		var mu sync.Mutex
		var told []string
		e, err := claim(Config{
			Identity: "a", Lease: "l", Changed: func(string, bool) { panic("of who is told") },
			Problem: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					told = append(told, err.Error())
				}
			},
		}, at)
		if err != nil {
			t.Fatal(err)
		}
		go e.Run(t.Context())
		leads := func(what string) {
			t.Helper()
			<-time.After(3 * time.Second)
			if err := e.Leads(); err != nil {
				t.Errorf("%s: %v, want that it leads", what, err)
			}
		}
		leads("after panics at the start")
		at.mu.Lock()
		at.bombs = 1
		at.mu.Unlock()
		<-time.After(2 * lasts)
		leads("after a panic of a renewal")
		mu.Lock()
		defer mu.Unlock()
		all := strings.Join(told, "\n")
		for _, want := range []string{"the elector has panicked: the test",
			"telling of the leader has panicked: of who", "election_test.go"} {
			if !strings.Contains(all, want) {
				t.Errorf("no problem says %q: %.500s", want, all)
			}
		}
		e.cancel()
		synctest.Wait()
	})
}
