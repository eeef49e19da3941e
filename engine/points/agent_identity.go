package points

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
)

// AgentIdentity finds which agent sent a request: the first of its own headers, and of x-claude-code-session-id,
// x-session-affinity, session-id and session_id, that the request has. Those without a fairness id then belong to the
// flow of that name, and plugins for sessions can read it as the attribute agent-identity.
type AgentIdentity struct {
	// AdditionalSessionHeaders are headers that are tried before those, in their order; their names may be in any case.
	AdditionalSessionHeaders []string `json:"additionalSessionHeaders"`

	slots []attributes.HeaderSlot
}

// agentHeaders are those of agents that are known.
var agentHeaders = []string{"x-claude-code-session-id", "x-session-affinity", "session-id", "session_id"}

// Adapt writes the names of headers as proxies send them.
func (a *AgentIdentity) Adapt() (warnings []error) {
	for i, name := range a.AdditionalSessionHeaders {
		a.AdditionalSessionHeaders[i] = strings.ToLower(name)
	}
	return nil
}

// Validate returns which parameters are wrong.
func (a *AgentIdentity) Validate() error {
	var errs []error
	for i, name := range a.AdditionalSessionHeaders {
		if !attributes.SettableHeader(name, "") {
			errs = append(errs, fmt.Errorf("additionalSessionHeaders[%d]: got %q, want the name of a header", i,
				clip.Value(name)))
		}
	}
	return errors.Join(errs...)
}

// Declare asks for the headers.
func (a *AgentIdentity) Declare(r *attributes.Reader) {
	a.slots = a.slots[:0]
	for _, name := range a.Headers() {
		a.slots = append(a.slots, r.Header(name))
	}
}

// Headers returns the headers in the order in which they are tried.
func (a *AgentIdentity) Headers() []string {
	return slices.Concat(a.AdditionalSessionHeaders, agentHeaders)
}

// Attribute reports whether the plugin emits an attribute of requests.
func (a *AgentIdentity) Attribute(name string) bool { return name == "agent-identity" }

// Session returns which agent sent a request; "" = it is unknown.
func (a *AgentIdentity) Session(of Request) string {
	for _, slot := range a.slots {
		if id, _ := of.Header(slot); id != "" {
			return id
		}
	}
	return ""
}
