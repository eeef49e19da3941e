package profiles

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/deciders"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// stage is a part of the work for a request that may have a server of its own.
type stage int

const (
	encode stage = iota
	prefill
	decode
	fallback // not a stage: the profile that runs in place of stages of which a required one picked nothing
	stages
)

// String returns the name of the stage in parameters.
func (s stage) String() string { return [...]string{"encode", "prefill", "decode", "fallback"}[s] }

// The orders of stages.
const (
	decodeFirst  = "decode-first"
	prefillFirst = "prefill-first"
)

// splits names how a request is split, by whether an encode and whether a prefill server work for it.
var splits = [2][2]string{{"decode-only", "prefill-decode"}, {"encode-decode", "encode-prefill-decode"}}

// aggregated is how a request is split for which the fallback picked: one server does all of it.
const aggregated = "aggregated-fallback"

// Disagg has servers of their own encode media, read the prompt, and generate tokens. The request goes to the picked
// decode server; headers tell its sidecar the others.
type Disagg struct {
	// StageOrder says in which order stages run: decode-first (decode, encode, prefill) or prefill-first (prefill,
	// encode, decode).
	StageOrder string `json:"stageOrder"`
	// Profiles names the profiles of the stages.
	Profiles DisaggProfiles `json:"profiles"`
	// Deciders names the plugins that say whether a stage runs.
	Deciders DisaggDeciders `json:"deciders"`
	// Required says what happens if no server is left for a stage that is to run.
	Required DisaggRequired `json:"required"`
	DisaggOlderNames

	order []stage
	at    [stages]int // index of the profile; -1 = there is none
	says  [stages]schedule.Decider

	doubts []error
}

// DisaggOlderNames has the parameters by their older names; nil = the file does not use the name. All are nil once
// the configuration is read.
type DisaggOlderNames struct {
	// DecodeProfile is the older name of profiles.decode.
	DecodeProfile *string `json:"decodeProfile" older:"profiles.decode"`
	// PrefillProfile is the older name of profiles.prefill.
	PrefillProfile *string `json:"prefillProfile" older:"profiles.prefill"`
	// EncodeProfile is the older name of profiles.encode.
	EncodeProfile *string `json:"encodeProfile" older:"profiles.encode"`
	// PrefillDeciderPluginName is the older name of deciders.prefill.
	PrefillDeciderPluginName *string `json:"prefillDeciderPluginName" older:"deciders.prefill"`
	// DeciderPluginName is a still older name of deciders.prefill.
	DeciderPluginName *string `json:"deciderPluginName" older:"deciders.prefill"`
	// EncodeDeciderPluginName is the older name of deciders.encode.
	EncodeDeciderPluginName *string `json:"encodeDeciderPluginName" older:"deciders.encode"`
}

// DisaggProfiles names the profile of each stage.
type DisaggProfiles struct {
	// Decode is the profile that picks the server which generates tokens.
	Decode string `json:"decode"`
	// Prefill is the profile that picks the server which reads the prompt.
	Prefill string `json:"prefill"`
	// Encode is the profile that picks the servers which encode media.
	Encode string `json:"encode"`
	// Fallback is the profile that picks one server for everything, if no decode server is left, or no prefill server
	// though its decider has said that the stage runs; empty = a request without a decode server is refused.
	Fallback string `json:"fallback"`
}

// DisaggDeciders names the decider of each stage that can be left out. A stage without a decider never runs, but for
// prefill in the order prefill-first, which then always does if it has a profile.
type DisaggDeciders struct {
	// Prefill is a prefix-based-pd-decider or an always-disagg-pd-decider.
	Prefill string `json:"prefill"`
	// Encode is an always-disagg-multimodal-decider.
	Encode string `json:"encode"`
}

// DisaggRequired says which stages a request cannot do without once its decider has said that they run.
type DisaggRequired struct {
	// Prefill is true if a request is refused where no prefill server is left; false = the decode server reads the
	// prompt itself, unless there is a fallback.
	Prefill bool `json:"prefill"`
}

// Validate returns which parameters are out of range.
func (h *Disagg) Validate() error {
	switch h.StageOrder {
	case decodeFirst:
		h.order = []stage{decode, encode, prefill}
	case prefillFirst:
		h.order = []stage{prefill, encode, decode}
	default:
		return fmt.Errorf("stageOrder: got %q, want decode-first or prefill-first", clip.Value(h.StageOrder))
	}
	return nil
}

// Arrange finds the profiles and the deciders. That of a stage which can be left out may be missing.
func (h *Disagg) Arrange(profiles []string, plugin func(parameter, name string) any) error {
	var errs []error
	for s, name := range [...]string{encode: h.Deciders.Encode, prefill: h.Deciders.Prefill} {
		if name == "" {
			continue
		}
		at := "deciders." + stage(s).String()
		x := plugin(at, name)
		decider, ok := x.(schedule.Decider)
		if x != nil && !ok {
			errs = append(errs, fmt.Errorf("%s: %s is no decider", at, clip.Value(name)))
		}
		h.says[s] = decider
	}
	if h.StageOrder == prefillFirst && h.says[prefill] == nil && slices.Contains(profiles, h.Profiles.Prefill) {
		h.says[prefill] = deciders.Always{}
	}
	for s := range h.at {
		h.at[s] = -1
	}
	for _, s := range []stage{decode, prefill, encode, fallback} {
		errs = append(errs, h.place(s, profiles))
	}
	return errors.Join(errs...)
}

// place finds the profile of a stage. A stage without one of its own never runs, but for decode and the fallback.
func (h *Disagg) place(s stage, profiles []string) error {
	name := [...]string{encode: h.Profiles.Encode, prefill: h.Profiles.Prefill, decode: h.Profiles.Decode,
		fallback: h.Profiles.Fallback}[s]
	at := slices.Index(profiles, name)
	if s != decode && h.says[s] == nil && (s != fallback || name == "") {
		if at >= 0 && !slices.Contains(h.at[:], at) {
			h.leaveOut(s, "deciders.%v names no decider", s)
		}
		return nil
	}
	before := slices.Index(h.at[:], at)
	switch needed := s == decode || s == fallback || s == prefill && h.Required.Prefill; {
	case at < 0 && needed:
		return fmt.Errorf("profiles.%v: %w", s, noProfile(name, profiles))
	case at < 0:
		h.leaveOut(s, "no profile is named %q", clip.Value(name))
	case before >= 0 && needed:
		return fmt.Errorf("profiles.%v: got %q, which profiles.%v is too, want another", s, clip.Value(name),
			stage(before))
	case before >= 0:
		h.leaveOut(s, "%s is profiles.%v, too", clip.Value(name), stage(before))
	default:
		h.at[s] = at
	}
	return nil
}

// leaveOut has a stage never run.
func (h *Disagg) leaveOut(s stage, why string, args ...any) {
	h.says[s] = nil
	h.doubts = append(h.doubts, fmt.Errorf("profiles.%v: %s, so the stage never runs", s, fmt.Sprintf(why, args...)))
}

// Doubts says which stages never run.
func (h *Disagg) Doubts() []error { return h.doubts }

// WithoutBody says until when the servers of other stages have load.
func (h *Disagg) WithoutBody() string {
	if h.says[encode] == nil && h.says[prefill] == nil {
		return ""
	}
	return "prefill and encode servers have a request's load until the headers of its response, not until its first " +
		"token"
}

// Next returns the profile of the next stage that is to run, or the fallback once a required one has picked nothing.
func (h *Disagg) Next(c *schedule.Course) schedule.Run {
	begin := 0
	if c.Results().Len() > 0 {
		last := h.stage(newest(c))
		if last == fallback {
			return schedule.Run{Profile: -1}
		}
		if h.failed(c) {
			return schedule.Run{Profile: h.at[fallback], Alone: true}
		}
		begin = slices.Index(h.order, last) + 1
	}
	for _, s := range h.order[begin:] {
		if s == decode || h.says[s] != nil && h.says[s].Decide(c, h.picked(c, decode)) {
			return schedule.Run{Profile: h.at[s], Optional: !h.required(s) || h.at[fallback] >= 0}
		}
	}
	return schedule.Run{Profile: -1}
}

// required reports whether a stage cannot be left out.
func (h *Disagg) required(s stage) bool {
	return s == decode || s == fallback || s == prefill && (h.Required.Prefill || h.at[fallback] >= 0)
}

// failed reports whether a required stage has picked nothing.
func (h *Disagg) failed(c *schedule.Course) bool {
	last := newest(c)
	return last.Reason != messages.NoReason && h.required(h.stage(last))
}

// stage returns the stage of a result.
func (h *Disagg) stage(r schedule.Result) stage { return stage(slices.Index(h.at[:], r.Index)) }

// picked returns the place of the endpoint that a stage ranked first; -1 = it has not run, or picked nothing.
func (h *Disagg) picked(c *schedule.Course, s stage) int {
	for _, r := range c.Results().All() {
		if h.stage(r) == s && r.Ranked.Len() > 0 {
			return int(r.Ranked.At(0))
		}
	}
	return -1
}

// Primary returns the run of the fallback, if it was needed, or that of the decode stage.
func (h *Disagg) Primary(c *schedule.Course) int {
	for i, r := range c.Results().All() {
		if s := h.stage(r); s == fallback || s == decode && !h.fellBack(c) {
			return i
		}
	}
	return -1
}

func (h *Disagg) fellBack(c *schedule.Course) bool {
	return h.stage(newest(c)) == fallback
}

// newest returns the result of the newest run.
func newest(c *schedule.Course) schedule.Result { return c.Results().At(c.Results().Len() - 1) }

// Finish names the servers of the other stages to the sidecar. A stage whose server is the decode server needs no name:
// it works there as without stages.
func (h *Disagg) Finish(c *schedule.Course, f *schedule.Final) {
	f.Split = splits[0][0]
	if h.fellBack(c) {
		f.Split = aggregated
		return
	}
	var works [stages]int // 1 = a server of the stage's own works for the request
	for i, r := range c.Results().All() {
		name, most, s := "", 0, h.stage(r)
		switch s {
		case prefill:
			name, most = messages.PrefillHeader, 1
		case encode:
			name, most = messages.EncodeHeader, r.Ranked.Len()
		}
		var list []string
		for k, at := range r.Ranked.All() {
			if k >= most || int(at) == f.Destinations[0].At {
				continue
			}
			f.Stages = append(f.Stages, schedule.Stage{Run: i, At: int(at), Prompt: name == messages.PrefillHeader})
			list = append(list, string(c.Endpoint(int(at)).Address()))
		}
		if len(list) > 0 {
			works[s] = 1
			f.Headers = append(f.Headers, messages.Header{Name: name, Value: strings.Join(list, ",")})
		}
	}
	f.Split = splits[works[encode]][works[prefill]]
}
