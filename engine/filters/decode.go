package filters

import "github.com/signalbox-epp/signalbox/engine/schedule"

// Decode keeps the servers that generate tokens: label llm-d.ai/role is decode, prefill-decode, both or
// encode-prefill-decode, or the server has no such label.
type Decode struct{}

// Validate returns nil: there are no parameters.
func (Decode) Validate() error { return nil }

// Filter keeps candidates by their role.
func (Decode) Filter(in *schedule.Input, keep []bool) {
	for i := range in.Candidates().Len() {
		role, labelled := in.Candidates().At(i).Label(roleLabel)
		switch role {
		case "decode", "prefill-decode", "both", "encode-prefill-decode":
			keep[i] = true
		default:
			keep[i] = !labelled
		}
	}
}
