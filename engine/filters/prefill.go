package filters

import "github.com/signalbox-epp/signalbox/engine/schedule"

// Prefill keeps the servers that read prompts for others: label llm-d.ai/role is prefill, encode-prefill,
// prefill-decode, both or encode-prefill-decode. A server without the label goes.
type Prefill struct{}

// Validate returns nil: there are no parameters.
func (Prefill) Validate() error { return nil }

// Filter keeps candidates by their role.
func (Prefill) Filter(in *schedule.Input, keep []bool) {
	for i, c := range in.Candidates().All() {
		keep[i] = Prefills(c)
	}
}

// Prefills reports whether a server reads prompts for others, by its role.
func Prefills(server schedule.Candidate) bool {
	switch role, _ := server.Label(RoleLabel); role {
	case "prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode":
		return true
	}
	return false
}
