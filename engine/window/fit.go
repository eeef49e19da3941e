package window

import "time"

// fit explains what first tokens take by two things: the tokens that were computed before, and the requests that were
// in flight. It is linear regression by least squares, through zero. Older first tokens matter less.
type fit struct {
	tokens2, both, requests2       float64 // sums of products
	tokensSeconds, requestsSeconds float64
	count                          float64
	last                           time.Time
}

// assumed is how many tokens a first token would have to come after to say as much as what is assumed of the rate.
const assumed = 512

func (f *fit) add(now time.Time, tokens, requests, seconds float64) {
	left := left(now.Sub(f.last))
	f.tokens2 = f.tokens2*left + tokens*tokens
	f.both = f.both*left + tokens*requests
	f.requests2 = f.requests2*left + requests*requests
	f.tokensSeconds = f.tokensSeconds*left + tokens*seconds
	f.requestsSeconds = f.requestsSeconds*left + requests*seconds
	f.count = f.count*left + 1
	f.last = now
}

// resume begins with what each token and each request took, as so many first tokens had shown: half of them came after
// many tokens, and half after requests alone.
func (f *fit) resume(now time.Time, token, request, count float64) {
	const many = 8 * assumed
	f.tokens2, f.tokensSeconds = count/2*many*many, count/2*many*many*token
	f.requests2, f.requestsSeconds = count/2, count/2*request
	f.count, f.last = count, now
}

// solve returns how many seconds each token takes and each request, neither below 0. What first tokens do not tell
// apart is told by what is assumed of a token.
func (f *fit) solve(assumedToken float64) (token, request float64) {
	tt := f.tokens2 + assumed*assumed
	ty := f.tokensSeconds + assumed*assumed*assumedToken
	if det := tt*f.requests2 - f.both*f.both; det > 0 {
		token = (ty*f.requests2 - f.both*f.requestsSeconds) / det
		request = (tt*f.requestsSeconds - f.both*ty) / det
	}
	if request <= 0 {
		token, request = ty/tt, 0
	}
	if token < 1/mostRate {
		token, request = 1/mostRate, f.requestsSeconds/f.requests2
	}
	return token, request
}
