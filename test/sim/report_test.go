package sim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// outcome is what a run came to. Hash and summary must be equal for equal seeds and numbers of requests.
type outcome struct {
	seed    uint64
	hash    uint64
	summary string
	drawn   map[string]int // faults, by kind
	served  int
}

func (o outcome) String() string {
	return fmt.Sprintf("seed %d, ring hash %#016x: %s", o.seed, o.hash, o.summary)
}

// repeat is the command that plays the same run again.
func repeat(seed uint64, requests int) string {
	tags := ""
	if tagged.tag != "" {
		tags = "-tags " + tagged.tag + " "
	}
	return fmt.Sprintf("go test %s./test/sim -seed %d -requests %d", tags, seed, requests)
}

// announce prints for a reader who named a seed and wants to see what came of it. The go command keeps the output of a
// package that passes to itself unless it was told -v, so without that the text goes to the go command's own standard
// error. Where the system has no way there, -v is needed.
func announce(t *testing.T, o outcome, requests int) {
	if testing.Verbose() || t.Failed() {
		return // t.Log said it
	}
	text := fmt.Sprintf("played by %s, and the same in every run:\n%s\nfaults %s", repeat(o.seed, requests), o,
		sorted(o.drawn))
	parent := fmt.Sprintf("/proc/%d", os.Getppid())
	comm, err := os.ReadFile(filepath.Join(parent, "comm"))
	if err != nil || strings.TrimSpace(string(comm)) != "go" || link(parent) == link("/proc/self") {
		fmt.Println(text)
		return
	}
	out, err := os.OpenFile(filepath.Join(parent, "fd/2"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		fmt.Println(text)
		return
	}
	defer out.Close()
	fmt.Fprintln(out, text)
}

// link is what the standard output of a process is.
func link(process string) string {
	to, err := os.Readlink(filepath.Join(process, "fd/1"))
	if err != nil {
		return ""
	}
	return to
}
