package planted

import "testing"

// simTags are the build tags of test/sim that plant a fault, and how the simulation must complain about it.
var simTags = map[string]string{
	"mutation_release": "signalbox_flow_places",
	"mutation_answer":  "more than one answer",
	"mutation_stale":   "blocks, want",
	"mutation_stop":    "after it had stopped",
}

func TestSimFindsTaggedFaults(t *testing.T) {
	for tag, complaint := range simTags {
		t.Run(tag, func(t *testing.T) {
			t.Parallel()
			game{test: "TestNamedSeed", command: "go test -tags " + tag + " ./test/sim -seed 3 -requests 3000"}.complains(t, complaint)
		})
	}
}

// simFaults stand where they could have been made.
var simFaults = map[string]fault{
	"load is never given back": {
		file: "actors/cycle/end.go", was: "c.letGo()\n\tif c.placed", is: "if c.placed",
		complaint: "load {",
	},
	"a cycle that falls answers again": {
		file: "actors/cycle/end.go", was: "c.stream != nil && !c.answered", is: "c.stream != nil && !c.finished",
		complaint: "more than one answer",
	},
	"prefix takes any older generation": {
		file: "actors/prefix/prefix.go", was: "return e.Generation == *floor", is: "return e.Generation <= *floor",
		complaint: ", want",
	},
	"a stop comes after what is queued": {
		file: "engine/runtime/spawn.go", was: "{ t.stop() }", is: "{ t.loop.post(item{kind: itemCall, msg: t.stop}, false) }",
		complaint: "after it had stopped",
	},
	"timers outlive their actor": {
		file: "engine/runtime/mailbox.go", was: "m.fallen.Add(1)\n\tm.cancelTimers()", is: "m.fallen.Add(1)",
		complaint: "timers",
	},
	"a message for a broken actor is not kept": {
		file: "engine/runtime/loop.go", was: "if box.suspended || box.inv == nil {", is: "if box.inv == nil {",
		complaint: "after a panic",
	},
}

func TestSimFindsFaultsInTheSource(t *testing.T) {
	game{test: "TestNamedSeed", command: "go test ./test/sim -seed 3 -requests 3000"}.finds(t, simFaults)
}
