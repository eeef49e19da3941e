package app

import (
	"cmp"
	"io"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// The tree that `signalbox tree` prints is the one that a running Signalbox has: kinds, parents, policies and loops.
func TestSupervisionIsWhatIsSpawned(t *testing.T) {
	defer goleak.VerifyNone(t)
	const loops = 3 // so that the last one is neither the first nor each other one
	tr, end := quietTree(t, io.Discard, "--shards", "3")
	defer end()
	for id := range messages.RequestID(loops) { // one on each loop
		tr.request(t, id, 200)
	}
	got, err := runtimetest.Inspect(tr.picker.System()).Lineages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(byLoop(lineages(supervision, "", 0, loops)), byLoop(got)); diff != "" {
		t.Errorf("printed -, spawned +; correct supervision in supervision.go, then `go test ./test/arch -update`:\n%s",
			diff)
	}
}

// lineages are what a role and those under it spawn on loops from first to before.
func lineages(r role, parent string, first, before int) []runtime.Lineage {
	switch r.on {
	case firstLoop:
		before = 1
	case lastLoop:
		first = before - 1
	}
	var all []runtime.Lineage
	for i := first; i < before; i++ {
		all = append(all, runtime.Lineage{Loop: i, Name: r.name, Parent: parent, Policy: r.policy})
	}
	for _, c := range r.children {
		all = append(all, lineages(c, r.name, first, before)...)
	}
	return all
}

func byLoop(all []runtime.Lineage) []runtime.Lineage {
	slices.SortFunc(all, func(a, b runtime.Lineage) int {
		return cmp.Or(cmp.Compare(a.Loop, b.Loop), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Parent, b.Parent),
			cmp.Compare(a.Policy, b.Policy))
	})
	return all
}
