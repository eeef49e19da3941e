package clip_test

import (
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/clip"
)

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		s    string
		most int
		want string
	}{
		{"", 0, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"abc", 0, ""},
		{"aé", 2, "a"}, {"aé", 3, "aé"}, {"日本", 5, "日"}, {"日本", 2, ""},
		{"\x80\x80\x80", 2, ""}, // no character begins
	} {
		if got := clip.Bytes(c.s, c.most); got != c.want {
			t.Errorf("%q to %d bytes: got %q, want %q", c.s, c.most, got, c.want)
		}
	}
}

func TestValue(t *testing.T) {
	for s, want := range map[string]string{
		strings.Repeat("a", 80):              strings.Repeat("a", 80),
		strings.Repeat("a", 81):              strings.Repeat("a", 77) + "...",
		"a" + strings.Repeat("é", 40):        "a" + strings.Repeat("é", 38) + "...",
		"\xff" + strings.Repeat("a", 80):     strings.Repeat("a", 76) + "...",
		"short \xff, kept as it was written": "short \xff, kept as it was written",
	} {
		if got := clip.Value(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}
