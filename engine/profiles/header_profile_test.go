package profiles

import (
	"fmt"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestHeaderProfileRunsWhatTheHeaderNames(t *testing.T) {
	two := []scheduletest.Profile{{Name: "a", Ranks: []int{0}}, {Name: "b", Ranks: []int{1}}}
	const standard, refused = "0@10.0.0.0:80 a", "invalid-request: the header epp-profile is "
	for name, c := range map[string]struct {
		profiles []scheduletest.Profile
		standard string
		unknown  string // onUnknown
		header   *string
		want     string
	}{
		"a profile":             {two, "a", "Refuse", new("b"), "1@10.0.0.1:80 b"},
		"unknown":               {two, "a", "Refuse", new("c"), refused + `"c", want the name of a profile`},
		"another case":          {two, "a", "Refuse", new("B"), refused + `"B", want the name of a profile`},
		"unknown, let in":       {two, "a", "Default", new("c"), standard},
		"empty":                 {two, "a", "Refuse", new(""), standard},
		"absent":                {two, "a", "Refuse", nil, standard},
		"absent, no default":    {two, "decode", "Refuse", nil, refused + `"", want the name of a profile`},
		"a profile, no default": {two, "decode", "Refuse", new("b"), "1@10.0.0.1:80 b"},
		"one profile":           {two[:1], "decode", "Refuse", nil, standard},
		"one, and another name": {two[:1], "decode", "Refuse", new("c"), standard},
	} {
		t.Run(name, func(t *testing.T) {
			h := Types["header-profile-handler"]().(*HeaderProfile)
			h.DefaultProfile, h.OnUnknown = c.standard, c.unknown
			req := scheduletest.Request()
			if c.header != nil {
				req.Headers = messages.ListOf(messages.HeaderValue{Text: *c.header, Given: true})
			}
			out := scheduletest.Handle(t, scheduletest.Handled{Handler: h, Profiles: c.profiles}, req,
				scheduletest.Endpoint{}, scheduletest.Endpoint{})
			if got := told(out); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestHeaderProfileSaysWhatIsRefused(t *testing.T) {
	const missing = `defaultProfile: no profile is named "decode"`
	for name, c := range map[string]struct {
		unknown  string
		profiles []string
		wrong    string
		doubts   string
	}{
		"one": {"Refuse", []string{"a"}, "<nil>", "[]"},
		"two": {"Refuse", []string{"a", "decode"}, "<nil>", "[]"},
		"no default": {"Refuse", []string{"a", "b"}, "<nil>",
			"[" + missing + ", so requests without the header EPP-Profile are refused]"},
		"no default here": {"Default", []string{"a", "b"}, missing + ", want one of a, b, and onUnknown is Default",
			""},
	} {
		h := Types["header-profile-handler"]().(*HeaderProfile)
		h.OnUnknown = c.unknown
		if err := h.Arrange(c.profiles, nil); fmt.Sprint(err) != c.wrong {
			t.Errorf("%s: got %v, want %s", name, err, c.wrong)
		} else if err == nil && fmt.Sprint(h.Doubts()) != c.doubts {
			t.Errorf("%s: doubts %v, want %s", name, h.Doubts(), c.doubts)
		}
	}
	h := Types["header-profile-handler"]().(*HeaderProfile)
	h.HeaderName, h.OnUnknown = "", "Pass"
	if warned := fmt.Sprint(h.Adapt()); warned != "[headerName: empty, which counts as EPP-Profile]" ||
		h.HeaderName != "EPP-Profile" {
		t.Errorf("an empty header: %s, %q", warned, h.HeaderName)
	}
	if err := fmt.Sprint(h.Validate()); err != `onUnknown: got "Pass", want Refuse or Default` {
		t.Errorf("got %s", err)
	}
}
