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
	Picked   time.Time // when the endpoint was picked for the request that met it; zero = it was no request
}

// ProbeEnded says what became of a request for which a suspended endpoint was picked.
//
//	From:  cycle, once for each probe that it took; and once more, or without one, if the endpoint answers well after all
//	To:    health
//	Reply: none
type ProbeEnded struct {
	Endpoint EndpointID
	Since    time.Time // begin of the suspension under which the endpoint was picked
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
	Overload                  // it answered 503: it is preferred less
	ServerError               // it answered with another 5xx
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
	NoEvidence: "", Overload: "overload", ServerError: "server-error", ServedElsewhere: "served-elsewhere", NoFirstToken: "no-first-token",
	ConnectionBroken: "connection-broken", ScrapeFailed: "scrape-failed", EndedBare: "ended-bare", ConnectFailed: "connect-failed",
}

func (HealthStarted) healthMsg()   {}
func (EvidenceSeen) healthMsg()    {}
func (ProbeEnded) healthMsg()      {}
func (EndpointChecked) healthMsg() {}
