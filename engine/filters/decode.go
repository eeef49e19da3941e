package filters

import "github.com/signalbox-epp/signalbox/engine/schedule"

// Decode keeps the servers that generate tokens: label llm-d.ai/role is decode, prefill-decode, both or
// encode-prefill-decode, or the server has no such label.
type Decode struct{}

// Validate returns nil: there are no parameters.
func (Decode) Validate() error { return nil }

// Filter keeps candidates by their role.
func (Decode) Filter(in *schedule.Input, keep []bool) {
	for i, c := range in.Candidates().All() {
		keep[i] = Decodes(c)
	}
}

// Decodes reports whether a server generates tokens, by its role.
func Decodes(server schedule.Candidate) bool {
	switch role, labelled := server.Label(RoleLabel); role {
	case "decode", "prefill-decode", "both", "encode-prefill-decode":
		return true
	default:
		return !labelled
	}
}
