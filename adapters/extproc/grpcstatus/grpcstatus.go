// Package grpcstatus says in the terms of gRPC what HTTP statuses say, and the other way round. Clients and servers of
// gRPC tell errors by the header or trailer grpc-status, under the HTTP status 200.
package grpcstatus

import (
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
)

// Names of headers and trailers, and the content type that an answer of gRPC has.
const (
	Key         = "grpc-status"
	MessageKey  = "grpc-message"
	ContentType = "application/grpc"
)

// IsType reports whether a content type is that of gRPC: application/grpc, alone or with a suffix such as +proto.
func IsType(contentType string) bool {
	if len(contentType) < len(ContentType) || !strings.EqualFold(contentType[:len(ContentType)], ContentType) {
		return false
	}
	rest := contentType[len(ContentType):]
	return rest == "" || rest[0] == '+' || rest[0] == ';' || rest[0] == ' '
}

// Of returns the status of gRPC that tells a client what an HTTP status of a refusal does. Clients of gRPC try again
// after Unavailable, and hold back after ResourceExhausted.
func Of(status int) codes.Code {
	switch status {
	case http.StatusOK:
		return codes.OK
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return codes.DeadlineExceeded
	case http.StatusPreconditionFailed:
		return codes.FailedPrecondition
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	}
	return codes.Internal
}

// byCode has the HTTP status that each status of gRPC stands for.
var byCode = map[codes.Code]int{
	codes.Canceled: 499, codes.Unknown: 500, codes.InvalidArgument: 400, codes.DeadlineExceeded: 504,
	codes.NotFound: 404, codes.AlreadyExists: 409, codes.PermissionDenied: 403, codes.ResourceExhausted: 429,
	codes.FailedPrecondition: 400, codes.Aborted: 409, codes.OutOfRange: 400, codes.Unimplemented: 501,
	codes.Internal: 500, codes.Unavailable: 503, codes.DataLoss: 500, codes.Unauthenticated: 401,
}

// HTTP returns the HTTP status that the value of grpc-status stands for; 0 = it tells of no error. What is no status
// stands for 500.
func HTTP(value []byte) int {
	code, err := strconv.ParseUint(string(value), 10, 32)
	switch status, known := byCode[codes.Code(code)]; {
	case err == nil && code == 0:
		return 0
	case err == nil && known:
		return status
	default:
		return http.StatusInternalServerError
	}
}

// Message returns a text as grpc-message has it: what is no printable ASCII is escaped, as is the sign of an escape.
func Message(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			const digits = "0123456789ABCDEF"
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}
