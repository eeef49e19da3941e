package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestCommandKnowsTheMemoryLimitOfItsCgroup starts the binary where /proc says that its cgroup may take 512 MiB.
func TestCommandKnowsTheMemoryLimitOfItsCgroup(t *testing.T) {
	if out, err := exec.Command("unshare", "-Urm", "true").CombinedOutput(); err != nil {
		t.Logf("LEFT OUT, nothing was checked: no mount namespace can be made here: %v %s", err, out)
		return
	}
	const limit = 512 << 20
	for name, c := range map[string]struct{ file, cgroup, mount string }{
		"version 2": {"memory.max", "0::/box\n", "- cgroup2 cgroup2 rw"},
		"version 1": {"memory.stat", "4:memory:/box\n", "- cgroup cgroup rw,memory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "box"), 0o700); err != nil {
				t.Fatal(err)
			}
			in := func(name string) string { return filepath.Join(dir, name) }
			writeFile(t, in("cgroup"), c.cgroup)
			writeFile(t, in("mountinfo"), fmt.Sprintf("30 23 0:26 / %s rw,nosuid %s\n", dir, c.mount))
			text := fmt.Sprintf("%d\n", limit)
			if c.file == "memory.stat" {
				text = fmt.Sprintf("hierarchical_memory_limit %d\n", limit)
			}
			writeFile(t, in("box/"+c.file), text)
			const inTheBox = `mount --bind "$1/mountinfo" /proc/$$/mountinfo && mount --bind "$1/cgroup" /proc/$$/cgroup && shift && exec "$@"`
			ports := freePorts(t, 3)
			file := filepath.Join(dir, "endpoints.yaml")
			writeFile(t, file, "endpoints: []\n")
			p := start(t, "signalbox", "unshare", "-Urm", "sh", "-c", inTheBox, "sh", dir, binary, "serve",
				"--endpoints", file,
				"--grpc-port", fmt.Sprint(ports[0]), "--grpc-health-port", fmt.Sprint(ports[1]), "--metrics-port",
				fmt.Sprint(ports[2]), "--drain-delay", "0s")
			eventually(t, 10*time.Second, "the limit is logged, and the metric has it", func() bool {
				metric := seriesSum(fmt.Sprintf("http://127.0.0.1:%d/metrics", ports[2]), "go_gc_gomemlimit_bytes")
				return containsAll(p.log.text(), []string{"memory limit of the garbage collector",
					fmt.Sprint(limit / 100 * 90), "max-held-bytes"}) &&
					metric == limit/100*90
			})
		})
	}
}
