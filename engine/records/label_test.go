package records

import (
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"
)

func TestLabel(t *testing.T) {
	for _, s := range []string{"", "a", strings.Repeat("\xffa", 100), strings.Repeat("🙂", 40),
		"x" + strings.Repeat("🙂", 40), strings.Repeat("\x80", 500)} {
		got := Label(s)
		if len(got) > LabelBytes || !utf8.ValidString(got) {
			t.Errorf("Label(%q) is %q: %d bytes, want at most %d of UTF-8", s, got, len(got), LabelBytes)
		}
	}
}

// A label that was cut does not keep the rest of its text in memory.
func TestLabelLetsGo(t *testing.T) {
	long := strings.Repeat("x", 60<<10)
	if unsafe.StringData(Label(long)) == unsafe.StringData(long) {
		t.Error("the label of a long text keeps the text in memory")
	}
}
