package messages

import "time"

// HealthMsg is what the health actor receives: it decides which endpoints are suspended.
//
//sumtype:decl
type HealthMsg interface{ healthMsg() }

// HealthStarted begins an incarnation of the health actor.
//
//	From:  runtime root
//	To:    health, first
//	Reply: none
type HealthStarted struct{}

// EvidenceSeen says that something went wrong with an endpoint.
//
//	From:  cycle, scraper
//	To:    health, at any time
//	Reply: none
type EvidenceSeen struct {
	Endpoint EndpointID
	Evidence Evidence
	Picked   time.Time // when the endpoint was picked for the request that met it; zero = it is news, or was no request
}

// ProbeEnded says what became of a request that tried an endpoint which something was held against.
//
//	From:  cycle, once for each probe that it took; and once more, or without one, if the endpoint answers well after all, or fails after that
//	To:    health
//	Reply: none
type ProbeEnded struct {
	Endpoint EndpointID
	Since    time.Time // begin of what was held against the endpoint when it was picked
	Answered bool      // the endpoint is well
	Evidence Evidence  // against it, if it did not answer; NoEvidence = the client left before anything was seen
}

// EndpointChecked says whether an endpoint took a TCP connection.
//
//	From:  checker
//	To:    health, once for each check that it began
//	Reply: none
type EndpointChecked struct {
	Endpoint  EndpointID
	Connected bool
}

// Evidence is what can be held against an endpoint. The set is closed.
type Evidence uint8

const (
	NoEvidence       Evidence = iota
	Overload                  // it answered 503: it comes last until it answers well
	OverloadInStream          // it answered 200, and an event of the answer named 503: likewise
	ServerError               // it answered with another 5xx
	ErrorInStream             // it answered 200, and an event of the answer named another 5xx
	ServedElsewhere           // the proxy passed it over, though it was the first of our list
	NoFirstToken              // it was silent for too long
	ConnectionBroken          // the proxy's access log says so
	ScrapeFailed              // its metrics could not be read
	EndedBare                 // a stream ended without a response: perhaps its client left, so this never counts alone
	ConnectFailed             // it takes no connection
)

// String is the evidence's name, as labels and explain have it.
func (e Evidence) String() string {
	if int(e) < len(evidenceNames) {
		return evidenceNames[e]
	}
	return "unknown"
}

var evidenceNames = [...]string{
	NoEvidence: "", Overload: "overload", OverloadInStream: "overload-in-stream", ServerError: "server-error", ErrorInStream: "error-in-stream", ServedElsewhere: "served-elsewhere", NoFirstToken: "no-first-token",
	ConnectionBroken: "connection-broken", ScrapeFailed: "scrape-failed", EndedBare: "ended-bare", ConnectFailed: "connect-failed",
}

// Busy says that the endpoint refused a request because it has too many.
func (e Evidence) Busy() bool { return e == Overload || e == OverloadInStream }

// InBody says that only a request whose response's body is shown can meet it.
func (e Evidence) InBody() bool { return e == OverloadInStream || e == ErrorInStream }

func (HealthStarted) healthMsg()   {}
func (EvidenceSeen) healthMsg()    {}
func (ProbeEnded) healthMsg()      {}
func (EndpointChecked) healthMsg() {}
