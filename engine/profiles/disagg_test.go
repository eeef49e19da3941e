package profiles

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/deciders"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/messages"
)

// told returns what came of a request: the destinations, and what else works for it.
func told(out schedule.Outcome) string {
	if out.Reason != messages.NoReason {
		return fmt.Sprintf("%v: %s", out.Reason, out.Detail)
	}
	var b strings.Builder
	for i, e := range out.Ranked {
		fmt.Fprintf(&b, "%d@%s ", e.ID.Slot, out.Sent[i])
	}
	for i, s := range out.Stages {
		fmt.Fprintf(&b, "+%d(%s) ", s.ID.Slot, out.Decision.Profiles.At(out.Decision.Stages.At(i).Run).Profile)
	}
	for _, h := range out.Decision.Headers.All() {
		fmt.Fprintf(&b, "%s=%s ", h.Name, h.Value)
	}
	for _, run := range out.Decision.Profiles.All() {
		b.WriteString(run.Profile[:1])
	}
	return b.String()
}

func TestDisaggRunsItsStages(t *testing.T) {
	named := map[string]schedule.Decider{
		"always": deciders.Always{}, "new": &deciders.PrefixBased{NonCachedTokens: 129},
		"long":  &deciders.PrefixBased{NonCachedTokens: 1, PromptTokens: 257},
		"never": new(deciders.PrefixBased),
	}
	const two = "0@10.0.0.0:80 +1(prefill) x-prefiller-host-port=10.0.0.1:80 "
	for name, c := range map[string]struct {
		change          func(*Disagg)
		decode, prefill []int
		held            int // blocks of the prompt at the decode server
		want            string
	}{
		"both":          {nil, []int{0}, []int{1}, 0, two + "dp"},
		"prefill first": {func(h *Disagg) { h.StageOrder = "prefill-first" }, []int{0}, []int{1}, 0, two + "pd"},
		"prefill first, undecided": {func(h *Disagg) { h.Deciders.Prefill, h.StageOrder = "", "prefill-first" },
			[]int{0}, []int{1}, 0, two + "pd"},
		"no decider":         {func(h *Disagg) { h.Deciders.Prefill = "" }, []int{0}, []int{1}, 0, "0@10.0.0.0:80 d"},
		"one server is both": {nil, []int{0}, []int{0}, 0, "0@10.0.0.0:80 dp"},
		"fallbacks": {nil, []int{0, 2}, []int{1, 2}, 0, strings.Replace(two, " +", " 2@10.0.0.2:80 +", 1) +
			"dp"},
		"no prefill server": {nil, []int{0}, nil, 0, "0@10.0.0.0:80 dp"},
		"no decode server":  {nil, nil, []int{1}, 0, "rejected-no-endpoints: filter ranks left no endpoint"},
		"prefill is required": {func(h *Disagg) { h.Required.Prefill = true }, []int{0}, nil, 0,
			"rejected-no-endpoints: filter ranks left no endpoint"},
		"fallback for prefill": {fallBack, []int{0}, nil, 0, "2@10.0.0.2:80 dpf"},
		"fallback for decode":  {fallBack, nil, []int{1}, 0, "2@10.0.0.2:80 df"},
		"fallback unused":      {fallBack, []int{0}, []int{1}, 0, two + "dp"},
		"fallback alone": {func(h *Disagg) { h.Profiles.Fallback = "full" }, []int{0}, nil, 0,
			"2@10.0.0.2:80 dpf"},
		"fallback, prefill not due": {func(h *Disagg) {
			h.Profiles.Fallback, h.Deciders.Prefill = "full", "never"
		}, []int{0}, nil, 0, "0@10.0.0.0:80 d"},
		"enough is new":       {decided("new"), []int{0}, []int{1}, 1, two + "dp"},
		"too little is new":   {decided("new"), []int{0}, []int{1}, 2, "0@10.0.0.0:80 d"},
		"all counts as new":   {prefillFirstBy("new"), []int{0}, []int{1}, 2, two + "pd"},
		"the prompt is short": {decided("long"), []int{0}, []int{1}, 0, "0@10.0.0.0:80 d"},
		"a threshold of 0":    {decided("never"), []int{0}, []int{1}, 0, "0@10.0.0.0:80 d"},
	} {
		t.Run(name, func(t *testing.T) {
			h := Types["disagg-profile-handler"]().(*Disagg)
			h.Deciders.Prefill = "always"
			if c.change != nil {
				c.change(h)
			}
			if err := h.Validate(); err != nil {
				t.Fatal(err)
			}
			out := scheduletest.Handle(t, scheduletest.Handled{Handler: h, Deciders: named,
				Profiles: []scheduletest.Profile{
					{Name: "prefill", Ranks: c.prefill}, {Name: "decode", Ranks: c.decode},
					{Name: "full", Ranks: []int{2}},
				}}, scheduletest.Request(), scheduletest.Endpoint{PrefixBlocks: c.held}, scheduletest.Endpoint{},
				scheduletest.Endpoint{})
			if got := told(out); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// What is less than a block after all whole ones may have been read with them or not.
func TestDisaggTakesTheRestOfACachedPromptForCached(t *testing.T) {
	for name, c := range map[string]struct {
		tokens, held int
		want         string
	}{
		"all whole blocks are held": {4*64 + 63, 4, "decode-only"},
		"with the rests of parts":   {4*64 + 150, 4, "decode-only"},
		"all that is ever hashed":   {9000 * 64, blockindex.MaxBlocks, "prefill-decode"},
		"one whole block is new":    {4*64 + 63, 3, "prefill-decode"},
		"just a block is new":       {4 * 64, 3, "prefill-decode"},
		"none is held":              {63, 0, "prefill-decode"},
		"too little at all":         {15, 0, "decode-only"},
	} {
		t.Run(name, func(t *testing.T) {
			h := Types["disagg-profile-handler"]().(*Disagg)
			h.Deciders.Prefill = "new"
			if err := h.Validate(); err != nil {
				t.Fatal(err)
			}
			req := scheduletest.Request()
			req.PromptTokens = c.tokens
			req.Blocks = messages.ListOf(make([]uint64, max(4, c.held))...)
			out := scheduletest.Handle(t, scheduletest.Handled{Handler: h,
				Deciders: map[string]schedule.Decider{"new": &deciders.PrefixBased{NonCachedTokens: 16}},
				Profiles: []scheduletest.Profile{{Name: "prefill", Ranks: []int{1}}, {Name: "decode", Ranks: []int{0}}},
			}, req, scheduletest.Endpoint{PrefixBlocks: c.held}, scheduletest.Endpoint{})
			if out.Split != c.want {
				t.Errorf("got %q, want %q; %s", out.Split, c.want, told(out))
			}
		})
	}
}

func fallBack(h *Disagg) { h.Profiles.Fallback, h.Required.Prefill = "full", true }

func decided(by string) func(*Disagg) { return func(h *Disagg) { h.Deciders.Prefill = by } }

func prefillFirstBy(by string) func(*Disagg) {
	return func(h *Disagg) { h.Deciders.Prefill, h.StageOrder = by, "prefill-first" }
}

// A stage counts if a server of its own works for the request: not if its run picked nothing, or the decode server.
func TestDisaggNamesTheStagesThatHaveServers(t *testing.T) {
	for name, c := range map[string]struct {
		encode, prefill []int // servers; nil = the stage does not run
		change          func(*Disagg)
		want            string
	}{
		"decode":             {nil, nil, nil, "decode-only"},
		"prefill":            {nil, []int{1}, nil, "prefill-decode"},
		"encode":             {[]int{1}, nil, nil, "encode-decode"},
		"both":               {[]int{1, 2}, []int{2}, nil, "encode-prefill-decode"},
		"one for both":       {[]int{1}, []int{1}, nil, "encode-prefill-decode"},
		"no prefill server":  {nil, []int{}, nil, "decode-only"},
		"the decode server":  {[]int{0}, []int{0}, nil, "decode-only"},
		"encoders beside it": {[]int{0, 1}, []int{0}, nil, "encode-decode"},
		"fallback":           {[]int{1}, []int{}, fallBack, "aggregated-fallback"},
	} {
		t.Run(name, func(t *testing.T) {
			h := Types["disagg-profile-handler"]().(*Disagg)
			named := map[string]schedule.Decider{"always": deciders.Always{}}
			if c.encode != nil {
				h.Deciders.Encode = "always"
			}
			if c.prefill != nil {
				h.Deciders.Prefill = "always"
			}
			if c.change != nil {
				c.change(h)
			}
			if err := h.Validate(); err != nil {
				t.Fatal(err)
			}
			out := scheduletest.Handle(t, scheduletest.Handled{Handler: h, Deciders: named,
				Profiles: []scheduletest.Profile{
					{Name: "prefill", Ranks: c.prefill}, {Name: "encode", Ranks: c.encode},
					{Name: "decode", Ranks: []int{0}},
					{Name: "full", Ranks: []int{2}},
				}}, scheduletest.Request(), scheduletest.Endpoint{}, scheduletest.Endpoint{}, scheduletest.Endpoint{})
			if out.Split != c.want {
				t.Errorf("got %q, want %q; %s", out.Split, c.want, told(out))
			}
		})
	}
}

func TestDisaggWantsItsProfiles(t *testing.T) {
	h := Types["disagg-profile-handler"]().(*Disagg)
	h.Deciders.Prefill, h.Profiles.Fallback = "d", "f"
	err := h.Arrange([]string{"x"}, func(_, name string) any { return deciders.Always{} })
	want := "profiles.decode: no profile is named \"decode\", want one of x\n" +
		"profiles.fallback: no profile is named \"f\", want one of x"
	if fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	err = h.Arrange([]string{"prefill", "decode", "f"}, func(_, name string) any { return h })
	if want = "deciders.prefill: d is no decider"; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A stage without a profile of its own is left out, as long as requests can do without it.
func TestDisaggLeavesOutStagesWithoutAProfile(t *testing.T) {
	for name, c := range map[string]struct {
		profiles []string
		change   func(*Disagg)
		doubts   string
		want     string // what becomes of a request; "" = the file is refused
	}{
		"no prefill": {[]string{"decode", "encode"}, nil,
			`[profiles.prefill: no profile is named "prefill", so the stage never runs]`, "0@10.0.0.0:80 de"},
		"neither": {[]string{"decode"}, nil, `[profiles.prefill: no profile is named "prefill", so the stage never ` +
			`runs profiles.encode: no profile is named "encode", so the stage never runs]`, "0@10.0.0.0:80 d"},
		"prefill is decode": {[]string{"decode", "encode"}, func(h *Disagg) { h.Profiles.Prefill = "decode" },
			"[profiles.prefill: decode is profiles.decode, too, so the stage never runs]", "0@10.0.0.0:80 de"},
		"encode is prefill": {[]string{"decode", "prefill"}, func(h *Disagg) { h.Profiles.Encode = "prefill" },
			"[profiles.encode: prefill is profiles.prefill, too, so the stage never runs]", "0@10.0.0.0:80 dp"},
		"encode is decode, and is not asked for": {[]string{"decode", "prefill"},
			func(h *Disagg) { h.Profiles.Encode, h.Deciders.Encode = "decode", "" }, "[]", "0@10.0.0.0:80 dp"},
		"encode has no decider": {[]string{"decode", "prefill", "encode"}, func(h *Disagg) { h.Deciders.Encode = "" },
			"[profiles.encode: deciders.encode names no decider, so the stage never runs]", "0@10.0.0.0:80 dp"},
		"prefill is required": {[]string{"decode"}, func(h *Disagg) { h.Required.Prefill = true }, "", ""},
		"no decode":           {[]string{"prefill", "encode"}, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := Types["disagg-profile-handler"]().(*Disagg)
			h.Deciders.Prefill, h.Deciders.Encode = "always", "always"
			if c.change != nil {
				c.change(h)
			}
			if err := h.Validate(); err != nil {
				t.Fatal(err)
			}
			always := func(_, _ string) any { return deciders.Always{} }
			if c.want == "" {
				if err := h.Arrange(c.profiles, always); err == nil {
					t.Error("it is accepted, and can never serve")
				}
				return
			}
			handled := scheduletest.Handled{Handler: h, Deciders: map[string]schedule.Decider{
				"always": deciders.Always{},
			}}
			for _, p := range c.profiles {
				handled.Profiles = append(handled.Profiles, scheduletest.Profile{Name: p, Ranks: []int{0}})
			}
			out := scheduletest.Handle(t, handled, scheduletest.Request(), scheduletest.Endpoint{})
			if got := told(out); got != c.want || fmt.Sprint(h.Doubts()) != c.doubts {
				t.Errorf("got  %s, with %v\nwant %s, with %s", got, h.Doubts(), c.want, c.doubts)
			}
		})
	}
}

func TestDataParallelSendsToTheSidecar(t *testing.T) {
	out := scheduletest.Handle(t, scheduletest.Handled{
		Handler:  Types["data-parallel-profile-handler"](),
		Profiles: []scheduletest.Profile{{Name: "p", Ranks: []int{1, 0}}},
	}, scheduletest.Request(), scheduletest.Endpoint{}, scheduletest.Endpoint{})
	if got, want := told(out), "1@10.0.0.1:8000 x-data-parallel-host-port=10.0.0.1:80 p"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
