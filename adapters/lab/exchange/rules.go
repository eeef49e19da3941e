package exchange

import "fmt"

// Direction is one direction of an exchange. Order holds inside a direction only.
type Direction uint8

// The two directions of an exchange.
const (
	Request Direction = iota
	Response
)

func (d Direction) String() string {
	if d == Response {
		return "response"
	}
	return "request"
}

// Rule names what an answer broke. The text is stable: it is used in reports and as a metric label.
type Rule string

// Spurious answers: Envoy gives the exchange up for each of them.
const (
	// WrongDirection is an answer in a direction that has sent nothing yet.
	WrongDirection Rule = "wrong-direction"
	// DuplicateHeaders is a second headers answer in a direction.
	DuplicateHeaders Rule = "duplicate-headers"
	// BodyBeforeHeaders is a body answer while the headers answer is outstanding.
	BodyBeforeHeaders Rule = "body-before-headers"
	// BodyNotSent is a body answer although no body message waits for one.
	BodyNotSent Rule = "body-not-sent"
	// BodyBeforeTrailers is a body answer in a direction of headers and trailers only, even an empty one.
	BodyBeforeTrailers Rule = "body-before-trailers"
	// PlainBody is a body answer without streamed_response in FULL_DUPLEX_STREAMED or GRPC.
	PlainBody Rule = "plain-body"
	// StreamedBody is a streamed_response in a mode that has none. It is tolerated, and ignored, in BUFFERED_PARTIAL,
	// in BUFFERED if the message names no content-length, and in STREAMED if it answers the last chunk.
	StreamedBody Rule = "streamed-body"
	// AfterEnd is a body answer after the direction's end of stream.
	AfterEnd Rule = "after-end"
	// TrailersNotSent is a trailers answer that nothing asked for.
	// It is tolerated when the direction is complete and it is empty.
	TrailersNotSent Rule = "trailers-not-sent"
	// TrailersBeforeHeaders is a trailers answer while the headers answer is outstanding.
	TrailersBeforeHeaders Rule = "trailers-before-headers"
	// TrailersBeforeBody is a trailers answer while body answers are outstanding, outside full duplex.
	TrailersBeforeBody Rule = "trailers-before-body"
	// UnknownAnswer is an answer of no kind, or of a kind this side does not speak.
	UnknownAnswer Rule = "unknown-answer"
	// ImmediateDisabled is an immediate response where the configuration forbids them.
	ImmediateDisabled Rule = "immediate-disabled"
	// ReplaceInDuplex is CONTINUE_AND_REPLACE in FULL_DUPLEX_STREAMED or GRPC.
	ReplaceInDuplex Rule = "replace-in-duplex"
	// InvalidMutation is a header mutation that is rejected as a whole: bad characters, both values set, too many.
	// An Envoy that fails open refuses it all the same.
	InvalidMutation Rule = "invalid-mutation"
)

// Tolerated answers: Envoy goes on, but drops something or passes on something harmful.
const (
	// EarlyEnd is an end of stream in a direction whose input has not ended.
	EarlyEnd Rule = "early-end"
	// EndBeforeTrailers is an end of stream on a body chunk although trailers were sent: the trailers are lost.
	EndBeforeTrailers Rule = "end-before-trailers"
	// EndedEarly is an EPP that closed its stream while a direction still owed body bytes or an end.
	EndedEarly Rule = "ended-early"
	// AfterImmediate is anything after an immediate response.
	AfterImmediate Rule = "after-immediate"
	// ObservedAnswer is any answer in observability mode.
	ObservedAnswer Rule = "observed-answer"
	// LengthSet is a content-length where Envoy passes it on, although the body may be another.
	LengthSet Rule = "length-set"
	// IgnoredField is a field that has no effect where it stands.
	IgnoredField Rule = "ignored-field"
	// IgnoredHeader is a header that may not be changed (:method, host, x-envoy-* ...).
	IgnoredHeader Rule = "ignored-header"
	// ValueNotRaw is a header mutation that used value where only raw_value is read.
	ValueNotRaw Rule = "value-not-raw"
	// ConnectionHeader is a mutation of a header that belongs to the connection, such as transfer-encoding.
	ConnectionHeader Rule = "connection-header"
	// MetadataNamespace is dynamic metadata in a namespace that is not received, or one that is no struct.
	MetadataNamespace Rule = "metadata-namespace"
	// ChunkTooLarge is a body chunk of more than 64 KiB, the size other proxies may refuse.
	ChunkTooLarge Rule = "chunk-too-large"
	// DestinationInvalid is an endpoint that is not address:port.
	DestinationInvalid Rule = "destination-invalid"
	// DestinationMismatch is a destination header that differs from the destination in the metadata.
	DestinationMismatch Rule = "destination-mismatch"
)

// Violation is one answer that broke a rule. It is an error only when Fatal.
type Violation struct {
	Rule      Rule
	Direction Direction
	Fatal     bool   // the exchange is over, as it would be in Envoy
	Detail    string // what was seen, for people
}

func (v *Violation) Error() string {
	return fmt.Sprintf("ext_proc %s direction: %s: %s", v.Direction, v.Rule, v.Detail)
}

// Spurious reports whether an Envoy that fails open goes on after the violation. It does after any but an invalid
// mutation.
func (v *Violation) Spurious() bool { return v.Fatal && v.Rule != InvalidMutation }
