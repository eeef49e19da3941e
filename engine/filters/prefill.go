package filters

import "github.com/signalbox-epp/signalbox/engine/schedule"

// Prefill keeps the servers that read prompts for others: label llm-d.ai/role is prefill, encode-prefill,
// prefill-decode, both or encode-prefill-decode. A server without the label goes.
type Prefill struct{}

// Validate returns nil: there are no parameters.
func (Prefill) Validate() error { return nil }

// Filter keeps candidates by their role.
func (Prefill) Filter(in *schedule.Input, keep []bool) {
	for i := range in.Candidates().Len() {
		role, _ := in.Candidates().At(i).Label(roleLabel)
		switch role {
		case "prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode":
			keep[i] = true
		default:
			keep[i] = false
		}
	}
}
