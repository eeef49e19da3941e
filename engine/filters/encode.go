package filters

import "github.com/signalbox-epp/signalbox/engine/schedule"

// Encode keeps the servers that encode media for others: label llm-d.ai/role is encode, encode-prefill or
// encode-prefill-decode. A server without the label goes.
type Encode struct{}

// Validate returns nil: there are no parameters.
func (Encode) Validate() error { return nil }

// Filter keeps candidates by their role.
func (Encode) Filter(in *schedule.Input, keep []bool) {
	for i := range in.Candidates().Len() {
		role, _ := in.Candidates().At(i).Label(RoleLabel)
		switch role {
		case "encode", "encode-prefill", "encode-prefill-decode":
			keep[i] = true
		default:
			keep[i] = false
		}
	}
}
