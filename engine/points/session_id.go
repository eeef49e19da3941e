package points

import (
	"errors"
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
)

// SessionID says where requests have the id of their session, for the plugins that name it as the producer of an
// attribute. Of an id the first 128 bytes count.
type SessionID struct {
	// HeaderName is the header that has the id; either this or cookieName is required.
	HeaderName string `json:"headerName"`
	// CookieName is the cookie that has it.
	CookieName string `json:"cookieName"`

	slot attributes.HeaderSlot
}

// Validate returns which parameters are missing.
func (s *SessionID) Validate() error {
	switch {
	case s.HeaderName == "" && s.CookieName == "":
		return errors.New("headerName: missing, and so is cookieName; want one of them")
	case s.HeaderName != "" && s.CookieName != "":
		return errors.New("cookieName: stands beside headerName, want one of them")
	case s.CookieName != "" && !attributes.CookieName(s.CookieName):
		return fmt.Errorf("cookieName: got %q, want the name of a cookie", clip.Value(s.CookieName))
	}
	return nil
}

// Declare asks for the header or the cookie.
func (s *SessionID) Declare(r *attributes.Reader) {
	if s.CookieName != "" {
		s.slot = r.Cookie(s.CookieName)
		return
	}
	s.slot = r.Header(s.HeaderName)
}

// Attribute reports whether the plugin emits an attribute of requests.
func (s *SessionID) Attribute(name string) bool {
	return name == "SessionIDDataKey" || name == "SessionID"
}

// Session returns the id of a request's session; "" = it has none.
func (s *SessionID) Session(of Request) string {
	id, _ := of.Header(s.slot)
	return id
}
