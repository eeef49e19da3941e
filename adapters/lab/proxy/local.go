package proxy

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// localReply is a response the proxy makes itself, for its own reasons or because the EPP said so.
type localReply struct {
	status  int
	headers exchange.Headers
	body    string
	details string // one word, as in Envoy's RESPONSE_CODE_DETAILS
	grpc    *extprocv3.GrpcStatus
}

func (l *localReply) Error() string { return l.details + ": " + l.body }

// immediate turns an immediate response into a reply; a status below 200 becomes 200.
func immediate(r *extprocv3.ImmediateResponse, headers exchange.Headers) *localReply {
	status := int(r.GetStatus().GetCode())
	if status < http.StatusOK {
		status = http.StatusOK
	}
	details := strings.ReplaceAll(r.GetDetails(), " ", "_")
	return &localReply{status: status, headers: headers, body: string(r.GetBody()), details: details,
		grpc: r.GetGrpcStatus()}
}

func (l *localReply) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	for _, f := range l.headers {
		if f.Name[0] != ':' && f.Name != "content-length" && !hopByHop(f.Name) {
			h.Add(f.Name, f.Value)
		}
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		l.writeGRPC(w)
		return
	}
	if l.body != "" && h.Get("Content-Type") == "" {
		h.Set("Content-Type", "text/plain")
	}
	h.Set("Content-Length", strconv.Itoa(len(l.body)))
	w.WriteHeader(l.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(l.body)) // a client that is gone needs no reply
	}
}

// writeGRPC replies as gRPC clients expect: HTTP 200, the outcome in grpc-status, the body in grpc-message.
func (l *localReply) writeGRPC(w http.ResponseWriter) {
	code := grpcCode(l.status)
	if l.grpc != nil {
		code = int(l.grpc.GetStatus())
	}
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(code))
	if l.body != "" {
		h.Set("Grpc-Message", strings.ReplaceAll(url.QueryEscape(l.body), "+", "%20"))
	}
	w.WriteHeader(http.StatusOK)
}

// grpcCode is the mapping of HTTP status codes that the gRPC protocol defines.
func grpcCode(status int) int {
	switch status {
	case http.StatusOK:
		return 0
	case http.StatusBadRequest:
		return 13
	case http.StatusUnauthorized:
		return 16
	case http.StatusForbidden:
		return 7
	case http.StatusNotFound:
		return 12
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 14
	}
	return 2
}
