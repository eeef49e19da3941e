package chaos

// What a client does in the end, or in the middle.
const (
	stays      = "stays"
	cancels    = "cancels"
	halfCloses = "half-closes"
	stalls     = "stalls"
	breaks     = "breaks its connection"
	deaf       = "reads nothing"
)

// The points of the protocol at which a client may leave: each is where it stands before its next step.
const (
	beforeRequest  = "before the request's headers"
	requestHeaders = "after the request's headers"
	requestBegins  = "before the request's body"
	requestBody    = "in the request's body"
	requestTrails  = "before the request's trailers"
	requestSent    = "after the request"
	answerCame     = "after the answer"

	responseHeaders = "after the response's headers"
	responseBegins  = "before the response's body"
	responseBody    = "in the response's body"
	responseTrails  = "before the response's trailers"
	responseSent    = "after the response"
	allAnswered     = "after all answers"
)

var points = []string{
	beforeRequest, requestHeaders, requestBegins, requestBody, requestTrails, requestSent, answerCame,
	responseHeaders, responseBegins, responseBody, responseTrails, responseSent, allAnswered,
}

// within are the points inside a direction.
type within struct{ headers, begins, body, trails string }

var (
	inRequest  = within{requestHeaders, requestBegins, requestBody, requestTrails}
	inResponse = within{responseHeaders, responseBegins, responseBody, responseTrails}
)

// deck is a number of requests, of which each fate has its share. Of the rest, clients stay.
const deck = 1000

var shares = []struct {
	fate string
	of   int
}{{cancels, 150}, {halfCloses, 50}, {stalls, 30}, {deaf, 10}, {breaks, 8}}

// deal says what becomes of a request's client, and where. Each fate has its share, and within it the points take
// turns, so that each comes as often as any other. 953 has no factor of the deck, so that each card comes once; and
// neighbours in the deck are 617 requests apart, so that one that breaks a connection seldom does it to another one.
func deal(seed uint64, n int) (fate, at string) {
	number := n / deck
	card := (n%deck*953 + diceOf(seed, "deck", uint64(number)).IntN(deck)) % deck
	for _, share := range shares {
		if card < share.of {
			return share.fate, points[(number*share.of+card)%len(points)]
		}
		card -= share.of
	}
	return stays, ""
}

// leavers are the fates of clients that leave at a point.
var leavers = []string{cancels, halfCloses, stalls, breaks}

const (
	tries        = 10 // of latecomers, for each fate and point
	lateRequests = tries * 4 * 13
)

// left is a kind of fault: what a client did, and where.
func left(fate, at string) string { return "client " + fate + " " + at }
