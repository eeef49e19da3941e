package app

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// The documents that tell of defaults of flags tell of those that the flags have.
func TestDocumentsHaveTheDefaultsOfTheFlags(t *testing.T) {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	newOptions(nil).register(flags)
	told := regexp.MustCompile("`--([a-z-]+)`(?: defaults to | \\()([0-9a-zA-Z.]+(?: (?:s|min|h|KiB|MiB|GiB)\\b)?)")
	checked := 0
	for _, name := range []string{"README.md", "ARCHITECTURE.md", "deploy/docs/differences.md",
		"deploy/docs/kubernetes.md", "deploy/docs/gateways.md", "deploy/docs/upgrade.md"} {
		text, err := os.ReadFile("../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range told.FindAllStringSubmatch(strings.Join(strings.Fields(string(text)), " "), -1) {
			f := flags.Lookup(found[1])
			if f == nil || !isValue(found[2]) {
				continue // of the reference, or a word in brackets
			}
			checked++
			if want := plainValue(found[2]); plainValue(f.DefValue) != want {
				t.Errorf("%s: --%s is said to default to %s, and defaults to %s", name, f.Name, found[2], f.DefValue)
			}
		}
	}
	if checked < 12 {
		t.Errorf("%d defaults are told of, want all of them", checked)
	}
}

// isValue reports whether what is told of a flag may be a default.
func isValue(told string) bool {
	return told == "true" || told == "false" || told[0] >= '0' && told[0] <= '9'
}

// plainValue returns a value as flags write it, however documents do.
func plainValue(v string) string {
	v = strings.Trim(strings.TrimSuffix(v, "."), "[]")
	number, unit, _ := strings.Cut(v, " ")
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		switch unit {
		case "KiB":
			return strconv.FormatInt(n<<10, 10)
		case "MiB":
			return strconv.FormatInt(n<<20, 10)
		case "GiB":
			return strconv.FormatInt(n<<30, 10)
		}
	}
	if d, err := time.ParseDuration(number + strings.Replace(unit, "min", "m", 1)); err == nil {
		return d.String()
	}
	return v
}
