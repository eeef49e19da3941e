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
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Root().Version)
			return err
		},
	}
}

// versionLine returns what the version command prints.
func (p *program) versionLine() string {
	b, info := built(), buildInfo()
	line := fmt.Sprintf("%s %s, commit %s of %s, %s %s/%s", ownName, b.Version, b.Commit, b.Date, goruntime.Version(),
		goruntime.GOOS, goruntime.GOARCH)
	if p.name == ownName {
		return line
	}
	return fmt.Sprintf("%s %s with %s", p.name, cmp.Or(p.version, info.Main.Version, unknown), line)
}

const unknown = "unknown"

func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{}
}

// built returns what the Signalbox in this binary was built from.
func built() telemetry.Build {
	return builtFrom(telemetry.Build{Version: linkedVersion, Commit: linkedCommit, Date: linkedDate}, buildInfo())
}

// ownModule is the path of the module that this package belongs to.
const ownModule = "github.com/signalbox-epp/signalbox"

// builtFrom takes what the linker was told, and the rest from what the go command stamps in. In the program of another
// module that stamps that one's commit, and our version among those of the modules it needs.
func builtFrom(linked telemetry.Build, info *debug.BuildInfo) telemetry.Build {
	stamped, version := map[string]string{}, info.Main.Version
	for _, s := range info.Settings {
		stamped[s.Key] = s.Value
	}
	for _, needed := range info.Deps {
		if needed.Path == ownModule {
			clear(stamped)
			version = needed.Version
		}
	}
	return telemetry.Build{
		Version: cmp.Or(linked.Version, version, unknown),
		Commit:  cmp.Or(linked.Commit, stamped["vcs.revision"], unknown),
		Date:    cmp.Or(linked.Date, stamped["vcs.time"], unknown),
	}
}
