package config

// ServedVerifier has responses name the server that served in the header x-conformance-test-served-endpoint: the one in
// the load balancer's metadata, or else that of the upstream connection. If the proxy tells neither, the header says
// so. It is for the conformance tests of gateways.
type ServedVerifier struct{}
