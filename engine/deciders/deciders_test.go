package deciders_test

import (
	"fmt"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/deciders"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// What prefix-based-pd-decider reads of endpoints is tested with the handler that asks it.
func TestMultimodal(t *testing.T) {
	d := deciders.Types["always-disagg-multimodal-decider"]()
	for media, want := range map[int]bool{0: false, 1: true} {
		if got := d.Decide(schedule.NewCourse(&messages.Request{Media: media}, nil), -1); got != want {
			t.Errorf("with %d media: %t, want %t", media, got, want)
		}
	}
}

func TestPrefixBasedSaysThatALengthAloneHasNoEffect(t *testing.T) {
	for _, c := range []struct {
		of   deciders.PrefixBased
		want string
	}{
		{deciders.PrefixBased{PromptTokens: 1}, "[promptTokens: has no effect, for nonCachedTokens is 0: no prefill " +
			"server reads a prompt]"},
		{deciders.PrefixBased{PromptTokens: 1, NonCachedTokens: 1}, "[]"},
		{deciders.PrefixBased{}, "[]"},
	} {
		if got := fmt.Sprint(c.of.Adapt()); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.of, got, c.want)
		}
	}
}

func TestPrefixBasedRefusesNegativeNumbers(t *testing.T) {
	d := deciders.PrefixBased{NonCachedTokens: -1, PromptTokens: -2}
	want := "nonCachedTokens: got -1, want 0 or more\npromptTokens: got -2, want 0 or more"
	if err := d.Validate(); fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
