// Package access asks Kubernetes whether the bearer of a token may read a page of ours: a TokenReview says whose token
// it is, a SubjectAccessReview whether that user has the right.
//
// It owns the answers, for a short time. It never keeps a token itself, and never says yes without an answer.
package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
)

const (
	// keepFor is how long an answer holds, so how long a right that was revoked goes on.
	keepFor = 10 * time.Second
	// trustFor is how long a yes holds on while the API server gives no answer at all, so that the metrics that tell of
	// its outage can be read. A right that was revoked goes on for so long then.
	trustFor = 5 * time.Minute
	// askAgain is how long a question is not asked again after there was no answer.
	askAgain = time.Second
	// answerWithin is how long one review may take, with the wait for those before it.
	answerWithin = 2 * time.Second
	// mostAsking is how many reviews may run at a time: clients may send any number of unknown tokens.
	mostAsking = 4
	// mostKept is how many answers are kept.
	mostKept = 1024
	// Longer tokens and paths are refused without a review.
	mostToken, mostPath = 16 << 10, 1 << 10
)

// Verdict says whether a page may be read.
type Verdict uint8

const (
	// Granted is for a user with the right.
	Granted Verdict = 1 + iota
	// Unauthenticated is for a request without a token, or with one that belongs to no user.
	Unauthenticated
	// Forbidden is for a user without the right.
	Forbidden
	// Undecided is for a question to which there is no answer.
	Undecided
)

// Config says whom to ask.
type Config struct {
	Cluster *rest.Config // how the API server is reached
	// Problem, if not nil, is told when reviews fail, and nil when they do no more. It must not block.
	Problem func(error)
}

// Reviews asks Kubernetes, and keeps its answers.
type Reviews struct {
	cfg    Config
	tokens authenticationv1.TokenReviewInterface
	rights authorizationv1.SubjectAccessReviewInterface
	asking chan struct{} // has an item for each review that runs

	mu      sync.Mutex
	kept    map[question]*entry
	failing [2]bool // the last review of each kind failed; see question.kind
	silent  bool    // the last review had no answer
}

// question is what an answer is kept for: whose a token is, or, with a verb and a path, whether its user has that
// right.
type question struct {
	token      [sha256.Size]byte
	verb, path string
}

// kind returns which review answers it: 0 = whose a token is, 1 = whether a user has a right.
func (q question) kind() int {
	if q.verb == "" {
		return 0
	}
	return 1
}

// answer is that to a question. user is set exactly if the question was whose a token is, and it has a user.
type answer struct {
	yes  bool
	user authentication.UserInfo
}

// entry is an answer that is kept. All fields but asks are guarded by the mutex of Reviews.
type entry struct {
	asks   sync.Mutex // held by the request that asks, so that others with the same question wait for its answer
	answer answer
	found  time.Time // zero = there is none yet
	failed time.Time // when there was no answer
}

// New returns reviews by an API server. It asks nothing yet.
func New(cfg Config) (*Reviews, error) {
	c := rest.CopyConfig(cfg.Cluster)
	c.QPS = -1 // mostAsking and keepFor bound the calls
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return once{next} })
	c.WarningHandler = rest.NoWarnings{}
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.UserAgent = cmp.Or(c.UserAgent, "signalbox")
	tokens, err := authenticationv1.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	rights, err := authorizationv1.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	return &Reviews{
		cfg: cfg, tokens: tokens.TokenReviews(), rights: rights.SubjectAccessReviews(),
		asking: make(chan struct{}, mostAsking), kept: map[question]*entry{},
	}, nil
}

// once has a client report every status at once. With Retry-After client-go would ask again until the time of a review
// is over, which then looks as if there had been no answer; askAgain is the pause here.
type once struct{ next http.RoundTripper }

// RoundTrip is the next one's, without Retry-After.
func (o once) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(r)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// Decide says whether the bearer of the token in an Authorization header may do something at a path. The verb is an
// HTTP method.
func (r *Reviews) Decide(header, verb, path string) Verdict {
	scheme, token, _ := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > mostToken {
		return Unauthenticated
	}
	if len(path) > mostPath {
		return Forbidden
	}
	q := question{token: sha256.Sum256([]byte(token))}
	owner, err := r.answer(q, func(ctx context.Context) (answer, error) { return r.whose(ctx, token) })
	switch {
	case err != nil:
		return Undecided
	case !owner.yes:
		return Unauthenticated
	}
	q.verb, q.path = strings.ToLower(verb), path
	may, err := r.answer(q, func(ctx context.Context) (answer, error) { return r.may(ctx, owner.user, q) })
	switch {
	case err != nil:
		return Undecided
	case !may.yes:
		return Forbidden
	}
	return Granted
}

// whose asks whose a token is.
func (r *Reviews) whose(ctx context.Context, token string) (answer, error) {
	got, err := r.tokens.Create(ctx, &authentication.TokenReview{
		Spec: authentication.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return answer{}, fmt.Errorf("create tokenreviews.authentication.k8s.io: %w", err)
	}
	return answer{yes: got.Status.Authenticated, user: got.Status.User}, nil
}

// may asks whether a user has a right.
func (r *Reviews) may(ctx context.Context, user authentication.UserInfo, q question) (answer, error) {
	extra := map[string]authorization.ExtraValue{}
	for name, values := range user.Extra {
		extra[name] = authorization.ExtraValue(values)
	}
	got, err := r.rights.Create(ctx, &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorization.NonResourceAttributes{Verb: q.verb, Path: q.path},
	}}, metav1.CreateOptions{})
	if err != nil {
		return answer{}, fmt.Errorf("create subjectaccessreviews.authorization.k8s.io: %w", err)
	}
	return answer{yes: got.Status.Allowed}, nil
}

// answer returns what is kept for a question, or else asks.
func (r *Reviews) answer(q question, ask func(context.Context) (answer, error)) (answer, error) {
	e := r.entry(q)
	e.asks.Lock()
	defer e.asks.Unlock()
	a, err, fresh := r.known(e)
	if fresh {
		return a, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin) // others may want the answer too
	defer cancel()
	select {
	case r.asking <- struct{}{}:
		defer func() { <-r.asking }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return r.trust(e) // there are too many questions
	}
	var got answer
	err = supervise.Recover("a review", func() (err error) {
		got, err = ask(ctx)
		return err
	})
	r.note(q.kind(), supervise.WithStack(err))
	return r.keep(e, got, err)
}

var errNoAnswer = errors.New("the API server does not say")

// entry returns the entry of a question, and makes room for it if need be.
func (r *Reviews) entry(q question) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.kept[q]; e != nil {
		return e
	}
	if len(r.kept) >= mostKept {
		r.makeRoom()
	}
	e := &entry{}
	r.kept[q] = e
	return e
}

// makeRoom drops what says no or is old, so that unknown tokens drive out no answer for a user with the right,
// or else anything.
func (r *Reviews) makeRoom() {
	for q, e := range r.kept {
		if !e.answer.yes || time.Since(e.found) > trustFor {
			delete(r.kept, q)
		}
	}
	for q := range r.kept {
		if len(r.kept) < mostKept {
			return
		}
		delete(r.kept, q)
	}
}

// known returns what holds without asking. It is not fresh if there is something to ask.
func (r *Reviews) known(e *entry) (a answer, err error, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !e.found.IsZero() && time.Since(e.found) < keepFor:
		return e.answer, nil, true
	case !e.failed.IsZero() && time.Since(e.failed) < askAgain:
		a, err = r.trusted(e)
		return a, err, true
	}
	return answer{}, nil, false
}

// trusted returns a yes that holds on, or that there is no answer. The caller holds mu.
func (r *Reviews) trusted(e *entry) (answer, error) {
	if e.answer.yes && r.silent && time.Since(e.found) < trustFor {
		return e.answer, nil
	}
	return answer{}, errNoAnswer
}

// trust notes that a question has no answer, and returns what holds now.
func (r *Reviews) trust(e *entry) (answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.failed = time.Now()
	return r.trusted(e)
}

// keep keeps the answer of a review, or that there was none, and returns what holds now.
func (r *Reviews) keep(e *entry, got answer, err error) (answer, error) {
	if err != nil {
		return r.trust(e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.answer, e.found, e.failed = got, time.Now(), time.Time{}
	return got, nil
}

// silence reports whether an error is that there was no answer: no connection, or none in time. A status is an answer,
// also one of an overloaded server, or one that refuses the picker's own token.
func silence(err error) bool {
	var status apierrors.APIStatus
	var exchange *url.Error
	return (errors.As(err, &exchange) || errors.Is(err, context.DeadlineExceeded)) && !errors.As(err, &status)
}

// note tells that reviews begin to fail, or that those of neither kind do any more.
func (r *Reviews) note(kind int, err error) {
	r.mu.Lock()
	before := r.failing
	r.failing[kind], r.silent = err != nil, silence(err)
	changed := (before == [2]bool{}) != (r.failing == [2]bool{})
	r.mu.Unlock()
	if changed && r.cfg.Problem != nil {
		r.cfg.Problem(err)
	}
}
