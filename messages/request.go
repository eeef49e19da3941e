package messages

// RequestID is ours, unique in this process, never reused. What the client calls its request is a label, never a key.
type RequestID uint64

// ConnectionID is one gRPC connection of a proxy, unique in this process, never reused; 0 = unknown.
type ConnectionID uint64

// Address is ip:port; IPv6 addresses in brackets.
type Address string

// EndpointID is one incarnation of an endpoint: removed and added again, or restarted, it is another one.
type EndpointID struct {
	Slot       uint32 // dense, from 0; given out again only after the prefix index has forgotten it
	Generation uint32 // from 1; 0 = no endpoint
}

// Request is what the adapter parsed, once. Immutable; strings are copies, never parts of the body.
type Request struct {
	ID       RequestID
	ClientID string // x-request-id as the client sent it, cut to 128 bytes; "" = none
	Path     string // without query, cut to 128 bytes
	Model    string // as the body names it; "" = none
	Salt     string // cache_salt of the body; prompts with different salts share no prefix
	Stream   bool   // the answer will be server-sent events
	Usage    bool   // the answer will carry token usage, also when streamed
	Shown    bool   // the body of the answer will be shown to the stream
	Form     AnswerForm

	BodyBytes    int64 // 0 = no body
	PromptTokens int   // estimate, 4 bytes a token; 0 = unknown
	OutputTokens int   // the client's limit; 0 = none

	Blocks List[uint64] // chained hashes of the whole prompt blocks, first block first; content only
	Subset Subset
}

// AnswerForm is what a request asks of its answer that changes how many bytes the answer takes, besides its tokens.
// Two answers of one model and one form compare.
type AnswerForm struct {
	API         API
	Stream      bool  // server-sent events
	UsageInEach bool  // every event carries token usage
	Structured  bool  // tools, or a response format: the answer may be a tool call, or JSON within JSON
	RepeatsMore bool  // the answer repeats parts of the prompt, so that its bytes say nothing of the output alone
	LogProbs    uint8 // tokens that are told at each position, 1 for the one that was chosen; 0 = none
	Choices     uint8 // answers to generate, of all prompts together; 255 = that or more
	IDLength    uint8 // of the client's request id, in steps of 8 bytes: servers repeat it in every event
}

// API is the format of a request's body. The zero API is one that was not read.
type API uint8

const (
	UnknownAPI API = iota
	ChatAPI
	CompletionAPI
)

// Subset restricts a request to some endpoints of the pool.
type Subset struct {
	Given     bool // false = the whole pool, whatever Addresses holds
	Addresses List[Address]
}

// DefaultFairness is the flow of requests that name none.
const DefaultFairness = "default-flow"

// FlowKey names a flow: requests that wait in one line.
type FlowKey struct {
	Fairness string // tenant, as the fairness header says; never empty
	Priority int    // higher goes first; negative may be shed
}

// Reason says why a request is not served. The set is closed: each has its HTTP status in adapters/extproc, and
// nowhere else.
type Reason uint8

const (
	NoReason Reason = iota
	InvalidRequest
	BodyTooLarge
	BodyTimeout
	NoEndpoints  // pool empty, all filtered, subset empty or unknown
	NoCapacity   // the pool is full
	TTLExpired   // waited too long in line
	PickTimeout  // dispatched, but no pick in time
	ResponseIdle // the model server went silent
	RequestTimeout
	Overloaded // we are full: inbox or memory
	ShuttingDown
	Unsupported // a body mode that we do not speak
	Internal    // a fault of ours
	ClientGone  // nobody waits any more: no answer is given
	ServerGone  // the model server broke off: the client was answered by the proxy
)

// String is the reason's name, as reason headers and labels carry it.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "unknown"
}

var reasonNames = [...]string{
	NoReason: "", InvalidRequest: "invalid-request", BodyTooLarge: "body-too-large", BodyTimeout: "body-timeout",
	NoEndpoints: "rejected-no-endpoints", NoCapacity: "rejected-saturated", TTLExpired: "rejected-ttl-expired",
	PickTimeout: "pick-timeout", ResponseIdle: "response-idle", RequestTimeout: "request-timeout",
	Overloaded:   "overloaded",
	ShuttingDown: "rejected-shutting-down", Unsupported: "unsupported-mode", Internal: "internal",
	ClientGone: "rejected-context-cancelled", ServerGone: "model-server-gone",
}
