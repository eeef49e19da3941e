package extproc

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// Names of the protocol, and of ours.
const (
	destinationKey   = "x-gateway-destination-endpoint"
	servedKey        = "x-gateway-destination-endpoint-served"
	subsetKey        = "x-gateway-destination-endpoint-subset"
	lbNamespace      = "envoy.lb"
	subsetNamespace  = "envoy.lb.subset_hint"
	reasonHeader     = "x-llm-d-request-dropped-reason"
	requestIDHeader  = "x-signalbox-request-id"
	upstreamAddress  = "upstream.address"
	codeDetails      = "response.code_details"
	viaUpstream      = "via_upstream"
	defaultFairness  = "default-flow"
	usualPath        = "/v1/chat/completions"
	usualType        = "application/json"
	maxSubsetEntries = 4096
)

// facts are what the headers of a request say that we need. The first of several lines of one name counts.
type facts struct {
	path, contentType, contentEncoding string
	clientID, fairness, oldFairness    string
	contentLength                      int64
	subset                             messages.Subset
}

func (f *facts) read(in *wire.Request) {
	in.Headers(func(key, value []byte) bool {
		switch string(key) {
		case ":path":
			path, _, _ := bytes.Cut(value, []byte{'?'})
			first(&f.path, path)
		case "content-type":
			first(&f.contentType, value)
		case "content-encoding":
			first(&f.contentEncoding, value)
		case "content-length":
			if n, err := strconv.ParseInt(string(value), 10, 64); err == nil && f.contentLength == 0 {
				f.contentLength = n
			}
		case "x-request-id":
			first(&f.clientID, value)
		case "x-llm-d-inference-fairness-id":
			first(&f.fairness, value)
		case "x-gateway-inference-fairness-id":
			first(&f.oldFairness, value)
		}
		return true
	})
}

// flow is the flow of the request: the new header name beats the old one.
func (f *facts) flow() messages.FlowKey {
	for _, id := range []string{f.fairness, f.oldFairness} {
		if id != "" {
			return messages.FlowKey{Fairness: records.Label(id)}
		}
	}
	return messages.FlowKey{Fairness: defaultFairness}
}

func first(dst *string, value []byte) {
	if *dst != "" {
		return
	}
	switch string(value) { // what almost every request says is not copied each time
	case usualPath:
		*dst = usualPath
	case usualType:
		*dst = usualType
	default:
		*dst = string(value)
	}
}

// readSubset takes the subset hint of a message, if it has one: a list, or one string with commas. What is no ip:port is
// skipped; a hint that leaves nothing restricts the request to nothing.
func (f *facts) readSubset(in *wire.Request) {
	if f.subset.Given {
		return
	}
	var list []messages.Address
	kind := in.Meta(subsetNamespace, []string{subsetKey}, func(value []byte) bool {
		for part := range strings.SplitSeq(string(value), ",") {
			if a := address(part); a != "" && len(list) < maxSubsetEntries {
				list = append(list, a)
			}
		}
		return true
	})
	if kind != wire.MetaAbsent {
		f.subset = messages.Subset{Given: true, Addresses: messages.TakeList(list)}
	}
}

// readServed is who answered: by the load balancer's metadata, else by the connection's address.
func readServed(in *wire.Request) messages.Address {
	served := ""
	in.Meta(lbNamespace, []string{servedKey}, func(value []byte) bool {
		served = string(value)
		return false
	})
	if served == "" {
		served = in.Attr(upstreamAddress)
	}
	return address(served)
}

// readLocal is why Envoy made the response itself, "" if a model server made it or Envoy was not told to say.
func readLocal(in *wire.Request) string {
	if details := in.Attr(codeDetails); details != viaUpstream {
		return records.Label(details)
	}
	return ""
}

// address is an ip:port as the pool writes it: an IPv4 address in IPv6 form is that IPv4 address. "" = it is none.
func address(s string) messages.Address {
	a, err := netip.ParseAddrPort(strings.TrimSpace(s))
	if err != nil {
		return ""
	}
	var room [64]byte
	if b := netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).AppendTo(room[:0]); string(b) != s {
		return messages.Address(b)
	}
	return messages.Address(s)
}
