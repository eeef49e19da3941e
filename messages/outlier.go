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
	Pick     Pick // that met the failure; zero = no request did, or it counts as newer than any pick
	// Client is the fairness id of the client that left; "" = it named none, or none left.
	Client string
	Prompt Prompt // of the request of a client that left
}

// Prompt says how long a prompt is, in estimated tokens.
type Prompt struct {
	Tokens   int
	Computed int // those that were to be computed: what requests that run have in common counts once
}

// SuccessReported says that an ejected or degraded endpoint answered a request well.
//
//	From:  cycle, at most once for each endpoint that it tried
//	To:    outlier
//	Reply: none
type SuccessReported struct {
	Endpoint EndpointID
	Incident uint64 // under which the request tried the endpoint, or which is silence that it saw end; never 0
}

// ProbeAbandoned says that a probe ended without a result, because its client left for example.
//
//	From:  cycle, instead of FailureReported and SuccessReported, once for each probe that it took
//	To:    outlier
//	Reply: none
type ProbeAbandoned struct {
	Endpoint EndpointID
	Incident uint64 // under which the request tried the endpoint; never 0
}

// EndpointChecked reports whether an endpoint accepted a TCP connection.
//
//	From:  checker
//	To:    outlier, once for each check that it began
//	Reply: none
type EndpointChecked struct {
	Endpoint  EndpointID
	Connected bool
}

// Pick is what a report of a failure or success says of the request's pick.
type Pick struct {
	At       time.Time // when the pick was made; zero = the report does not depend on the order of picks and failures
	Incident uint64    // the endpoint's incident that the request is the probe of, or whose end it reported; 0 = none
}

// FailureKind is what can go wrong with an endpoint. The set is closed.
type FailureKind uint8

const (
	NoFailure        FailureKind = iota
	Overload                     // it answered 503: it comes last until it answers well
	OverloadInStream             // it answered 200, and an event of the answer named 503: likewise
	ServerError                  // it answered with another 5xx
	ErrorInStream                // it answered 200, and an event of the answer named another 5xx
	ServedElsewhere              // it was the first destination, and the proxy took another one
	NoFirstToken                 // a request waited for its first token, and it gave none to any, for too long
	ConnectionBroken             // its connection broke during a response, as the proxy says
	ScrapeFailed                 // its metrics page could not be read
	EndedBare                    // a stream ended without a response; never counts alone, for the client may have left
	ConnectFailed                // it accepted no TCP connection
	ClientsLeft                  // clients left before their first tokens, while other endpoints gave theirs soon
	Asleep                       // its metrics page says that an engine sleeps; the last: no failure reports it
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
	ConnectFailed: "connect-failed", ClientsLeft: "clients-left", Asleep: "asleep",
}

// Busy reports whether the kind means that the endpoint refused a request because it has too many.
func (k FailureKind) Busy() bool { return k == Overload || k == OverloadInStream }

// Silent reports whether any first token of the endpoint shows that the kind is over.
func (k FailureKind) Silent() bool { return k == NoFirstToken || k == ClientsLeft }

// InBody reports whether only a visible response body can show a failure of this kind.
func (k FailureKind) InBody() bool { return k == OverloadInStream || k == ErrorInStream }

func (OutlierStarted) outlierMsg()  {}
func (FailureReported) outlierMsg() {}
func (SuccessReported) outlierMsg() {}
func (ProbeAbandoned) outlierMsg()  {}
func (EndpointChecked) outlierMsg() {}
