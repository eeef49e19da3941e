package telemetry

import (
	"bufio"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/adapters/telemetry/terminaltest"
)

// A terminal gets lines for people, everything else gets JSON; a flag wins over both.
func TestLinesOnATerminalAreForPeople(t *testing.T) {
	const people, program = `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\S*  WARN  late  \{"wait": "1.234568s"\}\s*$`,
		`^\{"level":"warn","ts":"[^"]*","caller":"[^"]*","msg":"late","wait":1.234567891\}\s*$`
	for name, c := range map[string]struct {
		flags    []string
		terminal bool
		want     string
	}{
		"terminal":           {nil, true, people},
		"file":               {nil, false, program},
		"JSON on a terminal": {[]string{"--zap-encoder=json"}, true, program},
		"console in a file":  {[]string{"--zap-encoder=console"}, false, people},
		"time by the flag":   {[]string{"--zap-time-encoding=epoch"}, true, `^\d+\.\d+(e\+09)?  WARN  late  \{`},
		"development": {[]string{"--zap-devel", "--zap-stacktrace-level=panic"}, false,
			`  WARN  telemetry/terminal_linux_test.go:\d+  late  \{`},
		"development, with JSON": {[]string{"--zap-devel", "--zap-encoder=json", "--zap-stacktrace-level=panic"}, false,
			program},
	} {
		t.Run(name, func(t *testing.T) {
			in, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			defer out.Close()
			if c.terminal {
				in, out = terminaltest.Open(t)
				defer in.Close()
				defer out.Close()
			}
			var o LogOptions
			f := pflag.NewFlagSet("test", pflag.ContinueOnError)
			o.Register(f)
			if err := f.Parse(c.flags); err != nil {
				t.Fatal(err)
			}
			if err := o.Check(); err != nil {
				t.Fatal(err)
			}
			log, err := o.New(out)
			if err != nil {
				t.Fatal(err)
			}
			log.Warn("late", zap.Duration("wait", 1234567891*time.Nanosecond))
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(in).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if !regexp.MustCompile(c.want).MatchString(line) {
				t.Errorf("got %q, want %s", line, c.want)
			}
		})
	}
}
