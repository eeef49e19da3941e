package records

import (
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

func TestIDReadings(t *testing.T) {
	long := strings.Repeat("a", 200)
	for id, want := range map[string][2][]string{
		"mine":                            {{"mine"}, nil},
		"mine-1-0a1b2c3d":                 {{"mine-1-0a1b2c3d"}, nil}, // no id of a response
		"chatcmpl-mine":                   {{"chatcmpl-mine", "mine"}, nil},
		"cmpl-mine":                       {{"cmpl-mine", "mine"}, nil},
		"embd-mine":                       {{"embd-mine", "mine"}, nil},
		"resp_0123456789abcdef":           {{"resp_0123456789abcdef", "0123456789abcdef"}, nil},
		"chatcmpl-":                       {{"chatcmpl-"}, nil},
		"chatcmpl-chatcmpl-mine":          {{"chatcmpl-chatcmpl-mine", "chatcmpl-mine"}, nil},
		"cmpl-mine-0-0a1b2c3d":            {{"cmpl-mine-0-0a1b2c3d", "mine-0-0a1b2c3d"}, {"mine"}},
		"cmpl-mine-12":                    {{"cmpl-mine-12", "mine-12"}, {"mine"}},
		"chatcmpl-mine-0a1b2c3d":          {{"chatcmpl-mine-0a1b2c3d", "mine-0a1b2c3d"}, {"mine"}},
		"chatcmpl-mine_1-0a1b2c3d":        {{"chatcmpl-mine_1-0a1b2c3d", "mine_1-0a1b2c3d"}, {"mine"}},
		"chatcmpl-5f2c-9c1e-0123456789ab": {{"chatcmpl-5f2c-9c1e-0123456789ab", "5f2c-9c1e-0123456789ab"}, nil},
		"chatcmpl-" + long:                {{("chatcmpl-" + long)[:LabelBytes], long[:LabelBytes]}, nil},
	} {
		first, second := IDReadings(id)
		if !slices.Equal(first, want[0]) || !slices.Equal(second, want[1]) {
			t.Errorf("%s is read as %q, then %q, want %q", id, first, second, want)
		}
	}
}

func TestHasID(t *testing.T) {
	r := messages.Record{ClientID: "mine", ResponseID: "resp_1"}
	for _, c := range []struct {
		ids  []string
		want bool
	}{{nil, true}, {[]string{"mine"}, true}, {[]string{"x", "resp_1"}, true}, {[]string{"x"}, false}} {
		if got := HasID(&r, messages.ListOf(c.ids...)); got != c.want {
			t.Errorf("%q is an id of %+v: %t, want %t", c.ids, r, got, c.want)
		}
	}
	if HasID(&messages.Record{}, messages.ListOf("")) {
		t.Error("a request without ids has an empty one")
	}
}

func TestOfFirstReading(t *testing.T) {
	all := func() []messages.Record {
		return []messages.Record{{Request: 1, ClientID: "a-0"}, {Request: 2, ClientID: "a"},
			{Request: 3, ResponseID: "cmpl-a-0"}}
	}
	for first, want := range map[string]int{"a-0": 2, "none": 3} {
		if got := OfFirstReading(all(), []string{"cmpl-" + first, first}); len(got) != want {
			t.Errorf("%d records for the reading %s, want %d", len(got), first, want)
		}
	}
}
