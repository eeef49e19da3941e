package filters

import (
	"strings"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// HeaderBasedTesting keeps the servers that the header test-epp-endpoint-selection of a request names, by their address
// with or without port, separated by commas. A request without that header is refused. It is for tests of gateways: any
// client could choose its server. Of the header the first 128 bytes count.
type HeaderBasedTesting struct{ header attributes.HeaderSlot }

// Declare asks for the header.
func (f *HeaderBasedTesting) Declare(r *attributes.Reader) {
	f.header = r.Header("test-epp-endpoint-selection")
}

// Filter looks for the address of each candidate in the header.
func (f *HeaderBasedTesting) Filter(in *schedule.Input, keep []bool) {
	list, _ := in.Header(f.header)
	for i, c := range in.Candidates().All() {
		keep[i] = names(list, string(c.Address()))
	}
}

// names reports whether a list has an address, with its port or without.
func names(list, address string) bool {
	host := strings.Trim(address[:max(strings.LastIndexByte(address, ':'), 0)], "[]")
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		if item != "" && (item == address || strings.Trim(item, "[]") == host) {
			return true
		}
	}
	return false
}
