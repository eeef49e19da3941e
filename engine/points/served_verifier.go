package points

import "github.com/signalbox-epp/signalbox/engine/schedule"

// ServedVerifier names the server that served in the response header x-conformance-test-served-endpoint. It is for the
// conformance tests of gateways.
type ServedVerifier struct{}

// ResponseHeaders sets the header for a destination, which is used if that one has served.
func (ServedVerifier) ResponseHeaders(p *schedule.Picked, destination int, set *schedule.Headers) {
	_, sent := p.Destination(destination)
	set.Set("x-conformance-test-served-endpoint", string(sent))
}
