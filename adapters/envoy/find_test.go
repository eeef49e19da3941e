package envoy

import (
	"path/filepath"
	"testing"
)

// TestFindSaysWhatIsWrongWithTheVariable and what to do about it.
func TestFindSaysWhatIsWrongWithTheVariable(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	for asked, why := range map[string]string{
		filepath.Join(folder, "nope"): "no such file or directory",
		"no-such-envoy":               "executable file not found in $PATH",
		folder:                        "is a directory",
	} {
		t.Setenv("ENVOY", asked)
		want := "$ENVOY: got \"" + asked + "\": " + why + "; unset it, or run `make envoy` and name .envoy/envoy"
		if _, err := Find(""); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
