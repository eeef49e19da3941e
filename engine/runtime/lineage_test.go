package runtime_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
)

func TestLineagesAreWhatWasSpawned(t *testing.T) {
	s := start(t, runtime.Config{Loops: 2})
	parent, child := role(new(journal), runtime.RestartOnPanic, nil), role(new(journal), runtime.StopOnPanic, nil)
	child.Name = "child"
	p, _ := runtime.Start(s.Root(1), parent, noteMsg(note{}))
	for range 3 {
		runtime.Start(p, child, noteMsg(note{}))
	}
	runtime.Start(s.Root(1), child, noteMsg(note{}))
	got, err := runtimetest.Inspect(s).Lineages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []runtime.Lineage{
		{Loop: 0, Name: "loop", Policy: runtime.RestartOnPanic},
		{Loop: 1, Name: "loop", Policy: runtime.RestartOnPanic},
		{Loop: 1, Name: "logger", Parent: "loop", Policy: runtime.RestartOnPanic},
		{Loop: 1, Name: "child", Parent: "logger", Policy: runtime.StopOnPanic},
		{Loop: 1, Name: "child", Parent: "loop", Policy: runtime.StopOnPanic},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want -, got +\n%s", d)
	}
}

func TestLineagesOfABusyLoopGiveUpWithTheirContext(t *testing.T) {
	s := stepped(t) // nobody steps
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := runtimetest.Inspect(s).Lineages(ctx); err == nil {
		t.Error("no error")
	}
}
