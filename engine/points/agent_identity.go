package points

import (
	"errors"
	"fmt"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
)

// AgentIdentity finds which agent sent a request: the first of the headers x-claude-code-session-id,
// x-session-affinity, session-id and session_id that the request has. Requests without a fairness id then belong to the
// flow of that name, and plugins for sessions can read it as the attribute agent-identity.
type AgentIdentity struct {
	// AdditionalSessionHeaders are headers that are tried after those, in their order.
	AdditionalSessionHeaders []string `json:"additionalSessionHeaders"`

	slots []attributes.HeaderSlot
}

// agentHeaders are those of agents that are known.
var agentHeaders = []string{"x-claude-code-session-id", "x-session-affinity", "session-id", "session_id"}

// Validate returns which parameters are wrong.
func (a *AgentIdentity) Validate() error {
	var errs []error
	for i, name := range a.AdditionalSessionHeaders {
		if !attributes.SettableHeader(name, "") {
			errs = append(errs, fmt.Errorf("additionalSessionHeaders[%d]: got %q, want the name of a header in lower "+
				"case", i, clip.Value(name)))
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
	return slices.Concat(agentHeaders, a.AdditionalSessionHeaders)
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
