package flow_test

import (
	"testing"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

// Requests are of one class only if nothing tells them apart.
func TestClassesDiffer(t *testing.T) {
	subset := func(of ...messages.Address) messages.Subset {
		return messages.Subset{Given: true, Addresses: messages.ListOf(of...)}
	}
	same := func() flow.Class {
		return flow.ClassOf("m", subset("a", "b"), flow.Reach{Pool: 1, Configuration: 1, Would: 1})
	}
	seen := map[flow.Class]bool{}
	for _, c := range []flow.Class{
		same(), flow.ClassOf("n", subset("a", "b"), flow.Reach{Pool: 1, Configuration: 1, Would: 1}),
		flow.ClassOf("m", subset("ab"), flow.Reach{Pool: 1, Configuration: 1, Would: 1}),
		flow.ClassOf("m", subset(), flow.Reach{Pool: 1, Configuration: 1, Would: 1}),
		flow.ClassOf("m", messages.Subset{}, flow.Reach{Pool: 1, Configuration: 1, Would: 1}),
		flow.ClassOf("m", subset("a", "b"), flow.Reach{Pool: 2, Configuration: 1, Would: 1}),
		flow.ClassOf("m", subset("a", "b"), flow.Reach{Pool: 1, Configuration: 2, Would: 1}),
		flow.ClassOf("m", subset("a", "b"), flow.Reach{Pool: 1, Configuration: 1, Would: 2}),
	} {
		if seen[c] {
			t.Errorf("class %x comes twice", c)
		}
		seen[c] = true
	}
	if c := same(); !seen[c] {
		t.Errorf("the same requests are of class %x, too", c)
	}
}
