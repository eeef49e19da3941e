package messages

import "time"

// RequestID identifies a request: we give it, it is unique in this process and never reused. What the client calls its
// request is a label, never a key.
type RequestID uint64

// ConnectionID identifies one gRPC connection of a proxy. It is unique in this process and never reused; 0 = unknown.
type ConnectionID uint64

// Address is ip:port; IPv6 addresses in brackets.
type Address string

// Header is a header of HTTP.
type Header struct {
	Name  string // lower case
	Value string
}

// Headers of a request that tell the sidecar of a model server where else to turn. Only a pick sets them: what a client
// sends by these names is removed.
const (
	PrefillHeader      = "x-prefiller-host-port"
	EncodeHeader       = "x-encoder-hosts-ports"
	DataParallelHeader = "x-data-parallel-host-port"
	CacheSourceHeader  = "x-kv-cache-source-host-port"
)

// ForcedHeader names the endpoint of a request whose client may choose it, ForcedTokenHeader says that it may.
const (
	ForcedHeader      = "x-signalbox-endpoint"
	ForcedTokenHeader = "x-signalbox-token"
)

// EndpointID identifies one incarnation of an endpoint. An endpoint that is removed and added again, or restarted, is
// another incarnation.
type EndpointID struct {
	Slot       uint32 // dense, from 0; given out again only after the prefix index has forgotten it
	Generation uint32 // from 1; 0 = no endpoint
}

// Request is a request as the adapter parsed it, once. Its strings are copies, never parts of the body.
type Request struct {
	ID       RequestID
	ClientID string  // x-request-id as the client sent it, cut to 128 bytes; "" = none
	Path     string  // without query, cut to 128 bytes
	Agent    string  // user-agent of the client, cut to 128 bytes; "" = none
	Model    string  // that serves it: as the body names it, unless it was rewritten; "" = none
	Salt     string  // cache_salt of the body; prompts with different salts share no prefix
	Stream   bool    // the answer will be server-sent events
	Usage    bool    // the answer will carry token usage, also when streamed
	IfCached bool    // it is to be refused unless the picked endpoint holds the beginning of its prompt
	Share    float64 // of what its priority may fill, that it may, above 1 by its band's least share; 0 = all
	Priority int     // of its objective: higher goes first, negative may be refused; 0 = none is known
	Fairness string  // the id of its flow; DefaultFairness = none was given

	Objective string        // the name that the client gives; "" = none
	TTFT      time.Duration // within which its client wants the first token; 0 = it did not say
	TPOT      time.Duration // that its client wants an output token to take; 0 = it did not say
	Visible   bool          // the body of the answer will be visible: the proxy shows it to the stream
	Form      AnswerForm

	BodyBytes    int64 // 0 = no body
	PromptTokens int   // estimate, 4 bytes a token; 0 = unknown
	Media        int   // images, sounds and files in the messages
	OutputTokens int   // the client's limit; 0 = none

	Hints  OutputHints  // of a chat completion
	Items  List[Medium] // the media, each once, at most 64; empty = there are none, or no plugin asks for them
	Blocks List[uint64] // chained hashes of the prompt's blocks, first block first; content only
	Rest   bool         // the last of Blocks is of less than a block
	Subset Subset
	Forced bool // its client, who may, names the only endpoint of Subset: filters and screeners do not apply

	// Headers holds the headers that plugins of the configuration read, by their slot; empty = the request has none.
	Headers List[HeaderValue]

	Rewrite Rewrite
}

// Medium is an image, a sound, a video or a file in a message.
type Medium struct {
	Hash uint64 // of its data, or of its URL
	Kind MediumKind
}

// MediumKind says what a medium is, as far as the keys and types around it tell. The set is closed.
type MediumKind uint8

const (
	UnknownMedium MediumKind = iota
	Image
	Audio
	Video
	File

	MediumKinds // their number
)

var mediumKindNames = [MediumKinds]string{
	UnknownMedium: "unknown", Image: "image", Audio: "audio", Video: "video", File: "file",
}

// String returns the kind's name, as metrics carry it.
func (k MediumKind) String() string {
	if k < MediumKinds {
		return mediumKindNames[k]
	}
	return "unknown"
}

// MediaCounts are numbers of media by their kind.
type MediaCounts [MediumKinds]int

// Sum returns the number of all.
func (c MediaCounts) Sum() (n int) {
	for _, of := range c {
		n += of
	}
	return n
}

// OutputHints is what a chat completion says of the length of its answer, beside the client's limit.
type OutputHints struct {
	Tools          bool // the model may call tools
	Thinking       bool // chat_template_kwargs.enable_thinking is true
	NoThinking     bool // it is false
	ThinkingTokens int  // chat_template_kwargs.thinking_budget; 0 = none
}

// Rewrite says what became of the model that a client named. The zero Rewrite means that it is the one that serves.
type Rewrite struct {
	Made bool   // another model serves
	From string // as the client named it; "" = it named none
	Left RewriteLeft
}

// RewriteLeft says why the model that a client named stays, though a header or a rule names another one, or, where the
// body is not shown, may do so. The set is closed.
type RewriteLeft uint8

const (
	NothingLeft RewriteLeft = iota // no other one is named, or it was put in place
	LeftGRPC                       // in a call of gRPC the lengths within its message would have to change too
	LeftUnseen                     // the proxy did not show the body
	LeftUnread                     // no model is known in a body of this format, or of which only a part came

	rewriteLefts
)

var rewriteLeftNames = [rewriteLefts]string{
	NothingLeft: "", LeftGRPC: "grpc", LeftUnseen: "body-not-shown", LeftUnread: "body-not-read",
}

// String returns the cause's name, as metrics, the log and JSON carry it; "" = nothing is left.
func (l RewriteLeft) String() string {
	if l < rewriteLefts {
		return rewriteLeftNames[l]
	}
	return "unknown"
}

// RewriteLefts returns every cause but NothingLeft.
func RewriteLefts() []RewriteLeft { return []RewriteLeft{LeftGRPC, LeftUnseen, LeftUnread} }

// HeaderValue is the value of a header of a request.
type HeaderValue struct {
	Text  string // cut to 128 bytes
	Given bool   // false = the request does not have the header
}

// AnswerForm is what a request asks of its answer that decides how many bytes the answer takes for each token. Answers
// of one model and one form can be compared by their bytes.
type AnswerForm struct {
	API         API
	Stream      bool  // server-sent events
	UsageInEach bool  // every event carries token usage
	Structured  bool  // tools, or a response format: the answer may be a tool call, or JSON within JSON
	RepeatsMore bool  // the answer repeats parts of the prompt, so that its bytes say nothing of the output alone
	LogProbs    uint8 // tokens listed at each position, of which the chosen one is the first; 0 = none
	Choices     uint8 // answers to generate, of all prompts together; 255 = 255 or more
	IDLength    uint8 // of the client's request id, in steps of 8 bytes: servers repeat it in every event
}

// API is the format of a request's body. The zero API is that of a body that was not read.
type API uint8

const (
	UnknownAPI API = iota
	ChatAPI
	CompletionAPI
	ResponsesAPI // responses of OpenAI
	MessagesAPI  // messages of Anthropic
	TokensAPI    // /inference/v1/generate of vLLM
	GenerateAPI  // /generate of SGLang
	EngineAPI    // Generate of vLLM, for gRPC
	// EngineEmbedAPI is Embed of vLLM, for gRPC. Its answers have no output tokens.
	EngineEmbedAPI
	VertexChatAPI      // chat completions in a call to Vertex, for gRPC
	VertexResponsesAPI // responses in a call to Vertex, for gRPC
)

// String returns what people call the API; "" = the body was not read.
func (a API) String() string {
	if int(a) < len(apiNames) {
		return apiNames[a]
	}
	return ""
}

var apiNames = [...]string{
	ChatAPI: "chat", CompletionAPI: "completions", ResponsesAPI: "responses", MessagesAPI: "messages",
	TokensAPI: "tokens", GenerateAPI: "generate", EngineAPI: "grpc-generate", EngineEmbedAPI: "grpc-embed",
	VertexChatAPI: "vertex-chat", VertexResponsesAPI: "vertex-responses",
}

// Subset restricts a request to some endpoints of the pool.
type Subset struct {
	Given     bool // false = the whole pool, whatever Addresses holds
	Addresses List[Address]
}

// DefaultFairness is the flow of requests that name none.
const DefaultFairness = "default-flow"

// FlowKey names a flow: requests that wait in one queue.
type FlowKey struct {
	Fairness string // tenant, as the fairness header says; never empty
	Priority int    // higher goes first; negative may be shed
}

// Reason says why a request is not served. The set is closed. adapters/extproc gives each reason its HTTP status, and
// is the only place that does.
type Reason uint8

const (
	NoReason       Reason = iota // it is served
	InvalidRequest               // its headers or body cannot be read
	BodyTooLarge                 // its body exceeds the limit
	BodyTimeout                  // its body did not come whole in time
	NoEndpoints                  // the pool or the subset is empty, or filters left no endpoint
	NoCapacity                   // the pool is full
	TTLExpired                   // it waited too long in the queue
	Displaced                    // it waited, and made way for a request of higher priority
	QueuePressure                // it waited, and made way for a request of a flow with less waiting
	Preempted                    // it ran, and was ended for a request of higher priority
	PickTimeout                  // it was dispatched, but no pick was made in time
	ResponseIdle                 // the model server went silent
	RequestTimeout               // the whole request took too long
	Overloaded                   // our inbox or memory is full
	ShuttingDown                 // we are about to end
	Unsupported                  // the proxy sends bodies in a mode that we do not support
	Internal                     // a fault of ours
	ClientGone                   // the client left: no answer is given
	ServerGone                   // the model server's connection broke: the proxy answered the client
	Lost                         // its response outlived its stream, and the access log never told its end
	NotCached                    // it asked for an endpoint that holds the beginning of its prompt, and none was picked
)

// String returns the reason's name, as reason headers and labels carry it.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "unknown"
}

var reasonNames = [...]string{
	NoReason: "", InvalidRequest: "invalid-request", BodyTooLarge: "body-too-large", BodyTimeout: "body-timeout",
	NoEndpoints: "rejected-no-endpoints", NoCapacity: "rejected-saturated", TTLExpired: "rejected-ttl-expired",
	Displaced: "evicted-priority", QueuePressure: "evicted-queue-pressure",
	Preempted: "evicted", PickTimeout: "pick-timeout", ResponseIdle: "response-idle", RequestTimeout: "request-timeout",
	Overloaded:   "overloaded",
	ShuttingDown: "rejected-shutting-down", Unsupported: "unsupported-mode", Internal: "internal",
	ClientGone: "rejected-context-cancelled", ServerGone: "model-server-gone", Lost: "lost",
	NotCached: "not-cached",
}
