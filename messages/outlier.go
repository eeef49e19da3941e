package messages

import "time"

// OutlierMsg is what the outlier actor receives: it decides which endpoints are ejected.
//
//sumtype:decl
type OutlierMsg interface{ outlierMsg() }

// OutlierStarted begins an incarnation of the outlier actor.
//
//	From:  runtime root
//	To:    outlier, first
//	Reply: none
type OutlierStarted struct{}

// FailureReported says that something went wrong with an endpoint.
//
//	From:  cycle, scraper
//	To:    outlier, at any time
//	Reply: none
type FailureReported struct {
	Endpoint EndpointID
	Kind     FailureKind
	Pick     Pick // that met it; the zero Pick is none: it is news, or was no request
}

// SuccessReported says that an endpoint answered a request well that tried it.
//
//	From:  cycle, at most once
//	To:    outlier
//	Reply: none
type SuccessReported struct {
	Endpoint EndpointID
	Incident uint64 // under which the request tried the endpoint; never 0
}

// ProbeAbandoned says that a probe ended before anything was known: its client left.
//
//	From:  cycle, instead of FailureReported and SuccessReported, once for each probe that it took
//	To:    outlier
//	Reply: none
type ProbeAbandoned struct {
	Endpoint EndpointID
	Incident uint64 // under which the request tried the endpoint; never 0
}

// EndpointChecked says whether an endpoint took a TCP connection.
//
//	From:  checker
//	To:    outlier, once for each check that it began
//	Reply: none
type EndpointChecked struct {
	Endpoint  EndpointID
	Connected bool
}

// Pick is a pick as what came of it refers to it.
type Pick struct {
	At       time.Time // when; zero = whatever At is, it says nothing about the order of picks and failures
	Incident uint64    // the endpoint's incident that this request is the probe of, or whose end it told; 0 = none
}

// FailureKind is what can go wrong with an endpoint. The set is closed.
type FailureKind uint8

const (
	NoFailure        FailureKind = iota
	Overload                     // it answered 503: it comes last until it answers well
	OverloadInStream             // it answered 200, and an event of the answer named 503: likewise
	ServerError                  // it answered with another 5xx
	ErrorInStream                // it answered 200, and an event of the answer named another 5xx
	ServedElsewhere              // the proxy took another endpoint, though it was the first of our list
	NoFirstToken                 // it was silent for too long
	ConnectionBroken             // the proxy's access log says so
	ScrapeFailed                 // its metrics could not be read
	// a stream ended without a response: perhaps its client left, so this never counts alone
	EndedBare
	ConnectFailed // it takes no connection
)

// String returns the kind's name, as labels and explain have it.
func (k FailureKind) String() string {
	if int(k) < len(failureNames) {
		return failureNames[k]
	}
	return "unknown"
}

var failureNames = [...]string{
	NoFailure: "", Overload: "overload", OverloadInStream: "overload-in-stream", ServerError: "server-error",
	ErrorInStream: "error-in-stream", ServedElsewhere: "served-elsewhere", NoFirstToken: "no-first-token",
	ConnectionBroken: "connection-broken", ScrapeFailed: "scrape-failed", EndedBare: "ended-bare",
	ConnectFailed: "connect-failed",
}

// Busy reports whether the endpoint refused a request because it has too many.
func (k FailureKind) Busy() bool { return k == Overload || k == OverloadInStream }

// InBody reports whether only a request whose response's body is visible can meet it.
func (k FailureKind) InBody() bool { return k == OverloadInStream || k == ErrorInStream }

func (OutlierStarted) outlierMsg()  {}
func (FailureReported) outlierMsg() {}
func (SuccessReported) outlierMsg() {}
func (ProbeAbandoned) outlierMsg()  {}
func (EndpointChecked) outlierMsg() {}
