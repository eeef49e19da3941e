package profiles

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/deciders"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// PrefillDecode is the older way to write a disagg-profile-handler with two stages: servers of their own read the
// prompt, and generate tokens. Older still are files without a decider, in which threshold decides.
type PrefillDecode struct {
	// DecodeProfile is the profile that picks the server which generates tokens.
	DecodeProfile string `json:"decodeProfile"`
	// PrefillProfile is the profile that picks the server which reads the prompt.
	PrefillProfile string `json:"prefillProfile"`
	// DeciderPluginName names the plugin that says whether a prefill server reads the prompt; empty = the one that is
	// named prefix-based-pd-decider, or threshold if there is none.
	DeciderPluginName string `json:"deciderPluginName"`
	// Threshold is how many bytes of a prompt must be new to the decode server for a prefill server to read it, where
	// no plugin decides; 0 = a prefill server reads every prompt. Four bytes count as a token.
	Threshold int `json:"threshold"`
	// PrimaryPort is the port of the sidecar of data-parallel decode servers, 1 to 65535; 0 = requests go to the port
	// that was picked.
	PrimaryPort int `json:"primaryPort"`
	// PrefixMatchInfoProducerName names the approx-prefix-cache-producer; there is one index.
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName" effect:"warning"`
	// PrefixPluginType was the type of the prefix scorer.
	PrefixPluginType string `json:"prefixPluginType" effect:"warning"`
	// PrefixPluginName was the name of the prefix scorer.
	PrefixPluginName string `json:"prefixPluginName" effect:"warning"`
	// HashBlockSize was the size of a block in bytes.
	HashBlockSize int `json:"hashBlockSize" effect:"warning"`

	stages   Disagg
	uncached deciders.PrefixBased // decides where no plugin does
}

// Validate returns which parameters are out of range.
func (h *PrefillDecode) Validate() error {
	var errs []error
	if h.Threshold < 0 {
		errs = append(errs, fmt.Errorf("threshold: got %d, want 0 or more", h.Threshold))
	}
	if h.PrimaryPort < 0 || h.PrimaryPort > 65535 {
		errs = append(errs, fmt.Errorf("primaryPort: got %d, want 1 to 65535, or 0 for the port that was picked",
			h.PrimaryPort))
	}
	return errors.Join(errs...)
}

// Declare asks for the lead blocks that endpoints hold.
func (h *PrefillDecode) Declare(r *attributes.Reader) { h.uncached.Declare(r) }

// Arrange finds the profiles and the decider.
func (h *PrefillDecode) Arrange(profiles []string, plugin func(parameter, name string) any) error {
	if !slices.Contains(profiles, h.DecodeProfile) {
		return fmt.Errorf("decodeProfile: %w", noProfile(h.DecodeProfile, profiles))
	}
	h.stages = Disagg{
		StageOrder: decodeFirst, Profiles: DisaggProfiles{Decode: h.DecodeProfile, Prefill: h.PrefillProfile},
		Deciders: DisaggDeciders{Prefill: h.DeciderPluginName},
	}
	find := func(_, name string) any { return plugin("deciderPluginName", name) }
	if h.DeciderPluginName == "" {
		h.stages.Deciders.Prefill = "threshold"
		find = func(string, string) any { return h.decider() }
	}
	return errors.Join(h.stages.Validate(), h.stages.Arrange(profiles, find))
}

// Doubts says that no prefill server reads a prompt, if there is no profile of theirs.
func (h *PrefillDecode) Doubts() (doubts []error) {
	for _, e := range h.stages.Doubts() {
		doubts = append(doubts, fmt.Errorf("prefillProfile: %s", strings.TrimPrefix(e.Error(), "profiles.prefill: ")))
	}
	return doubts
}

// decider returns what decides by threshold.
func (h *PrefillDecode) decider() schedule.Decider {
	if h.Threshold == 0 {
		return new(deciders.Always)
	}
	h.uncached.NonCachedTokens = h.ThresholdTokens()
	return &h.uncached
}

// ThresholdTokens returns a threshold above 0 in tokens, rounded up.
func (h *PrefillDecode) ThresholdTokens() int {
	const tokenBytes = blockindex.BlockBytes / blockindex.BlockTokens
	return (h.Threshold-1)/tokenBytes + 1
}

// WithoutBody says until when the servers of the prefill stage have load.
func (h *PrefillDecode) WithoutBody() string { return h.stages.WithoutBody() }

// Next returns the profile of the next stage that is to run.
func (h *PrefillDecode) Next(c *schedule.Course) schedule.Run { return h.stages.Next(c) }

// Primary returns the run of the decode stage.
func (h *PrefillDecode) Primary(c *schedule.Course) int { return h.stages.Primary(c) }

// Finish names the prefill server to the sidecar, and sends the request there if it has a port of its own.
func (h *PrefillDecode) Finish(c *schedule.Course, f *schedule.Final) {
	h.stages.Finish(c, f)
	if h.PrimaryPort > 0 {
		sendToSidecar(c, f, h.PrimaryPort)
	}
}
