package app

import (
	"regexp"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/adapters/telemetry"
)

func TestBuildIsWhatWasLinkedElseWhatWasStamped(t *testing.T) {
	stamped := &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20261122163424-c058d50aaaaa"},
		Settings: []debug.BuildSetting{
			{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "c058d50"},
			{Key: "vcs.time", Value: "2026-11-22T16:34:24Z"}}}
	other := &debug.BuildInfo{Main: debug.Module{Path: "example.com/other", Version: "v9.9.9"},
		Settings: stamped.Settings,
		Deps:     []*debug.Module{{Path: "example.com/more", Version: "v3.0.0"}, {Path: ownModule, Version: "v0.1.2"}}}
	linked := telemetry.Build{Version: "v0.1.0", Commit: "abc", Date: "2026-11-23T00:00:00Z"}
	for name, c := range map[string]struct {
		linked telemetry.Build
		info   *debug.BuildInfo
		want   telemetry.Build
	}{
		"linked": {linked, stamped, linked},
		"stamped": {telemetry.Build{}, stamped,
			telemetry.Build{Version: "v0.0.0-20261122163424-c058d50aaaaa", Commit: "c058d50",
				Date: "2026-11-22T16:34:24Z"}},
		"both": {telemetry.Build{Version: "v0.1.0"}, stamped,
			telemetry.Build{Version: "v0.1.0", Commit: "c058d50", Date: "2026-11-22T16:34:24Z"}},
		"within another module": {telemetry.Build{}, other, telemetry.Build{Version: "v0.1.2", Commit: "unknown",
			Date: "unknown"}},
		"linked there": {linked, other, linked},
		"nothing said": {telemetry.Build{}, &debug.BuildInfo{}, telemetry.Build{Version: "unknown", Commit: "unknown",
			Date: "unknown"}},
	} {
		if diff := cmp.Diff(c.want, builtFrom(c.linked, c.info)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestVersionIsOneLine(t *testing.T) {
	line := regexp.MustCompile(`^signalbox \S+, commit \S+ of \S+, go\S+ [a-z0-9]+/[a-z0-9]+\n$`)
	for _, args := range []string{"version", "--version"} {
		if got := said(t, args); !line.MatchString(got) {
			t.Errorf("signalbox %s: got %q, want %s", args, got, line)
		}
	}
}
