package filters

import (
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// SessionAffinity keeps the requests of a session at one server. Each response has a header that names the server that
// served it, and a request that brings this header goes to that server. If the header names none of the servers that
// are left, all stay, and the response names another one. Clients must not rely on what the header holds.
type SessionAffinity struct {
	// Strategy is encoded_endpoint_header.
	Strategy string `json:"strategy"`
	// EncodedEndpointHeaderConfig says which header it is.
	EncodedEndpointHeaderConfig SessionHeader `json:"encodedEndpointHeaderConfig"`

	token attributes.HeaderSlot
}

// SessionHeader is a header of requests and responses.
type SessionHeader struct {
	// Header is its name.
	Header string `json:"header"`
}

// Validate returns which parameters are out of range.
func (s *SessionAffinity) Validate() error {
	var errs []error
	if s.Strategy != "encoded_endpoint_header" {
		errs = append(errs, fmt.Errorf("strategy: got %q, want encoded_endpoint_header", clip.Value(s.Strategy)))
	}
	if name := s.EncodedEndpointHeaderConfig.Header; !attributes.SettableHeader(name, "") {
		errs = append(errs,
			fmt.Errorf("encodedEndpointHeaderConfig.header: got %q, want the name of a header in lower "+
				"case that a response may have", clip.Value(name)))
	}
	return errors.Join(errs...)
}

// Declare asks for the header.
func (s *SessionAffinity) Declare(r *attributes.Reader) {
	s.token = r.Header(s.EncodedEndpointHeaderConfig.Header)
}

// Filter keeps the server that the request names, if it is a candidate.
func (s *SessionAffinity) Filter(in *schedule.Input, keep []bool) {
	token, given := in.Header(s.token)
	if !given {
		return
	}
	named, err := base64.StdEncoding.DecodeString(token)
	if err != nil {
		return
	}
	for at, c := range in.Candidates().All() {
		if string(c.Address()) == string(named) {
			clear(keep)
			keep[at] = true
			return
		}
	}
}

// ResponseHeaders names the server of a destination.
func (s *SessionAffinity) ResponseHeaders(p *schedule.Picked, destination int, set *schedule.Headers) {
	endpoint, _ := p.Destination(destination)
	set.Set(s.EncodedEndpointHeaderConfig.Header, base64.StdEncoding.EncodeToString([]byte(endpoint.Address())))
}
