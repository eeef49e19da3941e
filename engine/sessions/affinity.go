// Package sessions finds the server of a request's session: by a header that responses have, or by what is kept of
// earlier requests with the same session id. It never says what that means for a pick: a filter and a scorer do.
package sessions

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// Strategies.
const (
	encodedEndpoint = "encoded_endpoint_header"
	sessionID       = "session_id"
)

// Affinity is what a plugin knows of sessions. Plugins embed it, with its parameters.
type Affinity struct {
	// Strategy says how the server of a session is known. With encoded_endpoint_header each response has a header that
	// names the server, and later requests bring that header. With session_id requests bring an id of their own, and
	// Signalbox keeps the server that served each last. At first, after a time without requests, and while the server
	// is ejected, any server may be picked.
	Strategy string `json:"strategy"`
	// EncodedEndpointHeaderConfig is for encoded_endpoint_header.
	EncodedEndpointHeaderConfig EncodedEndpointHeader `json:"encodedEndpointHeaderConfig"`
	// SessionIDConfig is for session_id.
	SessionIDConfig SessionID `json:"sessionIdConfig"`
	// ProfileName names the profile whose server counts, such as prefill; empty = the one that serves.
	ProfileName string `json:"profileName"`
	// HeaderName is the older name of encodedEndpointHeaderConfig.header.
	HeaderName *string `json:"headerName" older:"encodedEndpointHeaderConfig.header"`

	token attributes.HeaderSlot
	ids   []id // by source
	kept  memory.Sessions
}

// id is where the id of a session may be.
type id struct {
	finder Finder // nil = in header
	header attributes.HeaderSlot
}

// EncodedEndpointHeader is a header of requests and responses.
type EncodedEndpointHeader struct {
	// Header is the name of the header of requests and responses, in any case. Clients must not rely on what it holds.
	Header string `json:"header"`
}

// SessionID says where the id of a session is, and how long its server counts.
type SessionID struct {
	// Sources are where the id is, tried in their order; without any it is the header x-session-id. Of an id the first
	// 128 bytes count.
	Sources []Source `json:"sources"`
	// EvictionTTLSeconds is how long the server of a session counts after a request; more than 0.
	EvictionTTLSeconds float64 `json:"evictionTtlSeconds"`
	// EvictionSweepSeconds is how often ended sessions are looked for; here one that has ended does not count at once.
	EvictionSweepSeconds float64 `json:"evictionSweepSeconds" effect:"warning"`
}

// Source is where the id of a session may be.
type Source struct {
	// Header is the name of a header of requests.
	Header string `json:"header"`
	// Attribute is one that another plugin finds, in place of a header: agent-identity of an agent-identity, or
	// SessionIDDataKey of a session-id-producer.
	Attribute string `json:"attribute"`
	// Producer names that plugin; empty = the one that is called by the type.
	Producer string `json:"producer"`
}

// Finder is a plugin that finds the id of a request's session.
type Finder interface {
	schedule.Reader
	// Attribute reports whether the plugin calls the id by this name.
	Attribute(name string) bool
	// Session returns the id; "" = the request has none.
	Session(of points.Request) string
}

// producers are the plugins that emit an attribute, by their types, if a source names none.
var producers = map[string]string{
	"agent-identity": "agent-identity", "SessionIDDataKey": "session-id-producer", "SessionID": "session-id-producer",
}

// Standard returns an affinity with its defaults.
func Standard() Affinity {
	return Affinity{
		Strategy:                    encodedEndpoint,
		EncodedEndpointHeaderConfig: EncodedEndpointHeader{Header: "x-session-token"},
		SessionIDConfig:             SessionID{EvictionTTLSeconds: 300, EvictionSweepSeconds: 10},
	}
}

// Adapt writes the name of the header as proxies send it.
func (a *Affinity) Adapt() (warnings []error) {
	a.EncodedEndpointHeaderConfig.Header = strings.ToLower(a.EncodedEndpointHeaderConfig.Header)
	return nil
}

// Validate returns which parameters are out of range.
func (a *Affinity) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if a.Strategy != encodedEndpoint && a.Strategy != sessionID {
		fail("strategy: got %q, want %s or %s", clip.Value(a.Strategy), encodedEndpoint, sessionID)
	}
	if name := a.EncodedEndpointHeaderConfig.Header; !attributes.SettableHeader(name, "") {
		fail("encodedEndpointHeaderConfig.header: got %q, want the name of a header that a response may have",
			clip.Value(name))
	}
	for i, s := range a.SessionIDConfig.Sources {
		at := fmt.Sprintf("sessionIdConfig.sources[%d]", i)
		switch {
		case s.Header != "" && s.Attribute != "":
			fail("%s.attribute: stands beside header, want one of them", at)
		case s.Header == "" && s.Attribute == "":
			fail("%s.header: missing, and so is attribute; want one of them", at)
		case s.Header != "" && s.Producer != "":
			fail("%s.producer: got %s, which only an attribute has", at, clip.Value(s.Producer))
		case s.Attribute != "" && s.Producer == "" && producers[s.Attribute] == "":
			fail("%s.producer: missing; name the plugin that emits %s", at, clip.Value(s.Attribute))
		}
	}
	if ttl := a.SessionIDConfig.EvictionTTLSeconds; !(ttl > 0 && ttl <= float64(mostSeconds)) {
		fail("sessionIdConfig.evictionTtlSeconds: got %v, want more than 0, at most %d", ttl, mostSeconds)
	}
	return errors.Join(errs...)
}

// mostSeconds is what a time.Duration can hold.
const mostSeconds = int(math.MaxInt64 / time.Second)

// CountsIn returns the name of the profile whose server counts; "" = the one that serves.
func (a *Affinity) CountsIn() (profile string) { return a.ProfileName }

// Refer finds the plugins that emit the attributes of sources.
func (a *Affinity) Refer(plugin func(parameter, name string) any) error {
	var errs []error
	a.ids = nil
	for i, s := range a.SessionIDConfig.Sources {
		var from id
		if s.Attribute != "" && a.Strategy == sessionID {
			at := fmt.Sprintf("sessionIdConfig.sources[%d].", i)
			x := plugin(at+"producer", cmp.Or(s.Producer, producers[s.Attribute]))
			finder, ok := x.(Finder)
			if x != nil && (!ok || !finder.Attribute(s.Attribute)) {
				errs = append(errs, fmt.Errorf("%sattribute: the producer has no attribute %s", at,
					clip.Value(s.Attribute)))
			}
			from.finder = finder
		}
		a.ids = append(a.ids, from)
	}
	return errors.Join(errs...)
}

// Declare asks for the headers, or for the table of sessions.
func (a *Affinity) Declare(r *attributes.Reader) {
	if a.Strategy != sessionID {
		a.token = r.Header(a.EncodedEndpointHeaderConfig.Header)
		return
	}
	a.kept = memory.NewSessions(r)
	sources := a.SessionIDConfig.Sources
	if len(sources) == 0 {
		sources = []Source{{Header: "x-session-id"}}
	}
	a.ids = append(a.ids, make([]id, max(len(sources)-len(a.ids), 0))...)
	for i, s := range sources {
		if finder := a.ids[i].finder; finder != nil {
			finder.Declare(r)
		} else if s.Header != "" {
			a.ids[i].header = r.Header(s.Header)
		}
	}
}

// Bound returns which candidate is the server of the request's session; -1 = the request has no session, or its server
// is no candidate or ejected: a session whose server fails moves.
func (a *Affinity) Bound(in *schedule.Input) int {
	if a.Strategy == sessionID {
		return a.keptAt(in)
	}
	token, given := in.Header(a.token)
	if !given {
		return -1
	}
	named, err := base64.StdEncoding.DecodeString(token)
	if err != nil {
		return -1
	}
	for i, c := range in.Candidates().All() {
		if string(c.Address()) == string(named) && !in.Ejected(i) {
			return i
		}
	}
	return -1
}

// keptAt returns which candidate was picked for an earlier request with the same session id; -1 = none was, or it is
// ejected.
func (a *Affinity) keptAt(in *schedule.Input) int {
	session := a.session(in)
	if session == "" {
		return -1
	}
	endpoint, known := a.kept.Endpoint(in.Memory(), session)
	if !known {
		return -1
	}
	for i, c := range in.Candidates().All() {
		if c.ID() == endpoint && !in.Ejected(i) {
			return i
		}
	}
	return -1
}

// session returns the id of the request's session; "" = it has none.
func (a *Affinity) session(of points.Request) string {
	for i := range a.ids {
		if session := a.ids[i].of(of); session != "" {
			return session
		}
	}
	return ""
}

func (i *id) of(r points.Request) string {
	if i.finder != nil {
		return i.finder.Session(r)
	}
	session, _ := r.Header(i.header)
	return session
}

// PreRequest keeps the server of a session that has an id. A probe leaves the session where it was.
func (a *Affinity) PreRequest(p *schedule.Picked, _ *schedule.Headers) schedule.Refusal {
	if a.Strategy != sessionID || p.Probe() {
		return schedule.Refusal{}
	}
	if session := a.session(p); session != "" {
		if endpoint, ok := a.server(p, 0); ok {
			lasts := time.Duration(a.SessionIDConfig.EvictionTTLSeconds * float64(time.Second))
			a.kept.Keep(p.Notes(), session, endpoint.ID(), lasts)
		}
	}
	return schedule.Refusal{}
}

// ResponseHeaders names the server of a session in the response, if requests are to bring it.
func (a *Affinity) ResponseHeaders(p *schedule.Picked, destination int, set *schedule.Headers) {
	if a.Strategy == sessionID {
		return
	}
	if endpoint, ok := a.server(p, destination); ok {
		set.Set(a.EncodedEndpointHeaderConfig.Header, base64.StdEncoding.EncodeToString([]byte(endpoint.Address())))
	}
}

// server returns the server of the session if a destination serves; false = the profile that counts picked none.
func (a *Affinity) server(p *schedule.Picked, destination int) (schedule.Candidate, bool) {
	if a.ProfileName == "" || a.ProfileName == p.Primary().Profile {
		endpoint, _ := p.Destination(destination)
		return endpoint, true
	}
	for _, r := range p.Results().All() {
		if r.Profile == a.ProfileName && r.Ranked.Len() > 0 {
			return p.Endpoint(int(r.Ranked.At(0))), true
		}
	}
	return schedule.Candidate{}, false
}
