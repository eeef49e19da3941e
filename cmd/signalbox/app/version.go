package app

import (
	"cmp"
	"fmt"
	goruntime "runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/telemetry"
)

// What the linker is told by deploy/version.sh. A plain go build leaves them empty.
var linkedVersion, linkedCommit, linkedDate string

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and its date, and the Go version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
			return err
		},
	}
}

// version is the line of signalbox version.
func version() string {
	b := built()
	return fmt.Sprintf("signalbox %s, commit %s of %s, %s %s/%s", b.Version, b.Commit, b.Date, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH)
}

// built is what this binary was made from.
func built() telemetry.Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return builtFrom(telemetry.Build{Version: linkedVersion, Commit: linkedCommit, Date: linkedDate}, info)
}

// builtFrom takes what the linker was told, and the rest from what the go command stamps in.
func builtFrom(linked telemetry.Build, info *debug.BuildInfo) telemetry.Build {
	stamped := map[string]string{}
	for _, s := range info.Settings {
		stamped[s.Key] = s.Value
	}
	const unknown = "unknown"
	return telemetry.Build{
		Version: cmp.Or(linked.Version, info.Main.Version, unknown),
		Commit:  cmp.Or(linked.Commit, stamped["vcs.revision"], unknown),
		Date:    cmp.Or(linked.Date, stamped["vcs.time"], unknown),
	}
}
