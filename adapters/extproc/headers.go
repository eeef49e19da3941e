package extproc

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// Names of the protocol, and of ours.
const (
	destinationKey  = "x-gateway-destination-endpoint"
	servedKey       = "x-gateway-destination-endpoint-served"
	subsetKey       = "x-gateway-destination-endpoint-subset"
	lbNamespace     = "envoy.lb"
	subsetNamespace = "envoy.lb.subset_hint"
	reasonHeader    = "x-llm-d-request-dropped-reason"
	requestIDHeader = "x-signalbox-request-id"
	connectionKey   = "x-signalbox-connection"
	upstreamAddress = "upstream.address"
	codeDetails     = "response.code_details"
	viaUpstream     = "via_upstream"
	usualPath       = "/v1/chat/completions"
	usualType       = "application/json"
)

// Limits of what is read of a request's headers. None of them refuses: a proxy has limits of its own, and the headers
// go on as they are.
const (
	maxHeaders       = 4096 // Envoy's own limit is 100 unless configured
	maxPathBytes     = 8 << 10
	maxTypeBytes     = 2 << 10
	maxEncodingBytes = 256
	maxLabelBytes    = records.LabelBytes + utf8.UTFMax // all that records.Label looks at
	maxSubsetEntries = 4096
)

// unreadable is a content encoding that no parser knows, for a body of which we do not know what it is.
const unreadable = "*"

// facts are what the headers of a request say that we need. The first of several lines of one name counts, but for
// content encodings, which add up.
type facts struct {
	path, contentType, contentEncoding string
	clientID, fairness, oldFairness    string
	contentLength                      int64
	subset                             messages.Subset
}

func (f *facts) read(in *wire.Request) {
	count := 0
	in.Headers(func(key, value []byte) bool {
		if count++; count > maxHeaders {
			f.contentEncoding = unreadable // what the body is may stand further down
			return false
		}
		f.readHeader(key, value)
		return true
	})
}

func (f *facts) readHeader(key, value []byte) {
	switch string(key) {
	case ":path":
		path, _, _ := bytes.Cut(value, []byte{'?'})
		if first(&f.path, path, maxPathBytes); len(path) > maxPathBytes {
			f.contentEncoding = unreadable // its end says what the body is
		}
	case "content-type":
		first(&f.contentType, value, maxTypeBytes)
	case "content-encoding":
		f.addEncoding(value)
	case "content-length":
		if n, err := strconv.ParseInt(string(value), 10, 64); err == nil && f.contentLength == 0 {
			f.contentLength = n
		}
	case "x-request-id":
		first(&f.clientID, value, maxLabelBytes)
	case "x-llm-d-inference-fairness-id":
		first(&f.fairness, value, maxLabelBytes)
	case "x-gateway-inference-fairness-id":
		first(&f.oldFairness, value, maxLabelBytes)
	}
}

// addEncoding puts several lines together as HTTP reads them: one list.
func (f *facts) addEncoding(value []byte) {
	switch {
	case f.contentEncoding == "" && len(value) <= maxEncodingBytes:
		f.contentEncoding = string(value)
	case f.contentEncoding == unreadable || len(f.contentEncoding)+len(value) >= maxEncodingBytes:
		f.contentEncoding = unreadable
	default:
		f.contentEncoding += "," + string(value)
	}
}

// flow is the flow of the request: the new header name beats the old one.
func (f *facts) flow() messages.FlowKey {
	for _, id := range []string{f.fairness, f.oldFairness} {
		if id != "" {
			return messages.FlowKey{Fairness: records.Label(id)}
		}
	}
	return messages.FlowKey{Fairness: messages.DefaultFairness}
}

// first keeps the first value that is not empty, up to a length.
func first(dst *string, value []byte, most int) {
	if *dst != "" {
		return
	}
	switch string(value) { // what almost every request says is not copied each time
	case usualPath:
		*dst = usualPath
	case usualType:
		*dst = usualType
	default:
		*dst = string(value[:min(len(value), most)])
	}
}

// readSubset takes the subset hint of a message, if it has one: a list, or one string with commas. What is no ip:port
// is skipped; a hint that leaves nothing restricts the request to nothing.
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

// address is an ip:port as the pool writes it: an IPv4 address in IPv6 form is that IPv4 address. "" = it is none, or
// has a zone, which means nothing beyond its host.
func address(s string) messages.Address {
	a, err := netip.ParseAddrPort(strings.TrimSpace(s))
	if err != nil || a.Addr().Zone() != "" {
		return ""
	}
	var room [64]byte
	if b := netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).AppendTo(room[:0]); string(b) != s {
		return messages.Address(b)
	}
	return messages.Address(s)
}
