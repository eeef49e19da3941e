package profiles

import (
	"testing"

	"github.com/signalbox-epp/signalbox/engine/deciders"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
)

// The older handler does what the present one does. The prompt has 256 tokens, 1024 bytes.
func TestPrefillDecodeRunsTwoStages(t *testing.T) {
	const two = "0@10.0.0.0:80 +1(prefill) x-prefiller-host-port=10.0.0.1:80 dp"
	const one = "0@10.0.0.0:80 d"
	for name, c := range map[string]struct {
		handler PrefillDecode
		prefill []int
		held    int // blocks of the prompt at the decode server
		want    string
	}{
		"every prompt":         {PrefillDecode{}, []int{1}, 4, two},
		"enough bytes are new": {PrefillDecode{Threshold: 768}, []int{1}, 1, two},
		"one byte too little":  {PrefillDecode{Threshold: 769}, []int{1}, 1, one},
		"a plugin goes before": {PrefillDecode{Threshold: 1 << 20, DeciderPluginName: "always"}, []int{1}, 1, two},
		"a plugin says no":     {PrefillDecode{DeciderPluginName: "never"}, []int{1}, 1, one},
		"no prefill server":    {PrefillDecode{}, nil, 0, "0@10.0.0.0:80 dp"},
		"a sidecar's port":     {PrefillDecode{PrimaryPort: 9000, DeciderPluginName: "never"}, nil, 0, sidecar + " d"},
		"a sidecar's port, prefill": {PrefillDecode{PrimaryPort: 9000}, []int{1}, 0, "0@10.0.0.0:9000 +1(prefill) " +
			"x-prefiller-host-port=10.0.0.1:80 x-data-parallel-host-port=10.0.0.0:80 dp"},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.handler
			h.DecodeProfile, h.PrefillProfile = "decode", "prefill"
			if err := h.Validate(); err != nil {
				t.Fatal(err)
			}
			out := scheduletest.Handle(t, scheduletest.Handled{Handler: &h,
				Deciders: map[string]schedule.Decider{"always": deciders.Always{}, "never": new(deciders.PrefixBased)},
				Profiles: []scheduletest.Profile{
					{Name: "prefill", Ranks: c.prefill}, {Name: "decode", Ranks: []int{0}},
				},
			}, scheduletest.Request(), scheduletest.Endpoint{PrefixBlocks: c.held}, scheduletest.Endpoint{})
			if got := told(out); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

const sidecar = "0@10.0.0.0:9000 x-data-parallel-host-port=10.0.0.0:80"
