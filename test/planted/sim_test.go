package planted

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// simTags are the build tags of test/sim that plant a fault, and how the simulation must complain about it.
var simTags = map[string]string{
	"mutation_release": "signalbox_prefix_placed_prompts",
	"mutation_answer":  "more than one answer",
	"mutation_stale":   "blocks, want",
	"mutation_stop":    "after it had stopped",
}

func TestSimFindsTaggedFaults(t *testing.T) {
	for tag, complaint := range simTags {
		t.Run(tag, func(t *testing.T) {
			t.Parallel()
			g := game{test: "TestNamedSeed", command: "go test -tags " + tag + " ./test/sim -seed 3 -requests 3000"}
			words := strings.Fields(g.command)
			cmd := exec.Command(words[0], slices.Concat(words[1:2], []string{"-vet=off"}, words[2:])...)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			g.complains(t, complaint, string(out), err)
		})
	}
}

// simFaults stand where they could have been made.
var simFaults = map[string]fault{
	"load is never given back": {
		file: "actors/cycle/wait.go", was: "c.unloadStages()\n\tc.letGo()\n", is: "c.unloadStages()\n",
		complaint: "load {",
	},
	"a cycle that falls answers again": {
		file: "actors/cycle/cycle.go", was: "if c.phase == queued {\n\t\tc.rec",
		is:        "if c.phase != created && c.phase != done {\n\t\tc.rec",
		complaint: "more than one answer",
	},
	"prefix takes any older generation": {
		file: "actors/prefix/prefix.go", was: "return e.Generation == *floor", is: "return e.Generation <= *floor",
		complaint: ", want",
	},
	"a stop comes after what is queued": {
		file: "engine/runtime/spawn.go", was: "{ t.stop() }",
		is:        "{ t.loop.post(item{kind: itemCall, msg: t.stop}, false) }",
		complaint: "after it had stopped",
	},
	"timers outlive their actor": {
		file: "engine/runtime/mailbox.go", was: "m.fallen.Add(1)\n\tm.cancelTimers()", is: "m.fallen.Add(1)",
		complaint: "timers",
	},
	"the prefix index has no size": {
		file: "picker.go", was: "blockindex.NewIndex(cfg.PrefixBlocks)", is: "blockindex.NewIndex(0)",
		complaint: "blocks, want 60",
	},
	"the access log is told to nothing": {
		file: "loops.go", was: "{ p.loopOf(m.Request).shard.Port().Post(m) }\n\n// Ongoing", is: "{}\n\n// Ongoing",
		complaint: "no cycle heard of one",
	},
	"entries of requests that run are told to nothing": {
		file: "loops.go", was: "Of(m.Request).shard.Port().Post(m) }\n\n// LogStreamEnded",
		is:        "Of(m.Request) }\n\n// LogStreamEnded",
		complaint: "was never told ExchangeOngoing",
	},
	"the end of a log is told to one shard": {
		file: "loops.go", was: "range p.loops {\n\t\tp.loops[i].shard", is: "range p.loops[:1] {\n\t\tp.loops[i].shard",
		complaint: "was never told LogStreamEnded",
	},
	"the pool is given one loop": {
		file: "loops.go", was: "range p.loops {\n\t\tall = append", is: "range p.loops[:1] {\n\t\tall = append",
		complaint: "was never told SnapshotReplaced",
	},
	"the scheduler is given no prefix index": {
		file: "loops.go", was: "Matcher: p.index, ", is: "",
		complaint: "no endpoint was ever known to hold a prompt",
	},
	"the outlier actor is given no settings": {
		file: "picker.go", was: "outlier.New(p.cfg.Outlier,", is: "outlier.New(outlier.Config{},",
		complaint: "no endpoint was ever ejected",
	},
	"scrapers are given no settings": {
		file: "configuration.go", was: "plan: plan, scraping: scraping,",
		is:        "plan: plan, scraping: messages.Scraping{Metrics: true},",
		complaint: "no list of models was ever asked for",
	},
	"refused requests are told to nothing": {
		file: "loops.go", was: "{ p.loopOf(m.Record.Request).shard.Port().Post(m) }", is: "{}",
		complaint: "none was reported",
	},
	"scrapes do not reach the load cell": {
		file: "engine/endpoints/writers.go", was: "w.load.sampleInForce(number)", is: "_ = number",
		complaint: "load {",
	},
	"failed scrapes do not reach the outlier actor": {
		file: "scrapers.go", was: "t.outlier.Tell(", is: "_ = any(",
		complaint: "was told of none",
	},
	"the announcer is not passed": {
		file: "picker.go", was: "Announcer: p.world.Announcer, ", is: "",
		complaint: "never told of endpoints",
	},
	"a stage is load for ever": {
		file: "actors/cycle/wait.go", was: "c.unhold()\n\tc.unloadStages()\n", is: "c.unhold()\n",
		complaint: "load {",
	},
	"a stage is load until the request ends": {
		file: "actors/cycle/cycle.go", was: "\tc.unloadStages()\n\tc.begin(ctx)",
		is:        "\tc.begin(ctx)",
		complaint: "load {",
	},
	"prompts stay at stages": {
		file: "actors/prefix/prefix.go", was: "range placed.stages {", is: "range placed.stages[:0] {",
		complaint: ", want",
	},
	"a plugin is not told of the end of requests that fail": {
		file: "actors/cycle/observation.go", was: "if c.plugins.due {",
		is:        "if c.plugins.due && c.rec.Reason == messages.NoReason {",
		complaint: "a plugin was not told once",
	},
	"a refused pick goes to the stream": {
		file: "engine/schedule/points.go", was: "\t\tout.refuse(refused)\n\t}\n\tout.Took",
		is:        "\t\t_ = refused\n\t}\n\tout.Took",
		complaint: "picked for by a plugin that failed",
	},
	"a plugin may refuse as if the client had left": {
		file: "engine/schedule/points.go", was: "case !refused.may():", is: "case !refused.may() && false:",
		complaint: "told something else",
	},
	"a plugin may set any header": {
		file: "engine/schedule/points.go", was: "if h.wrong == \"\" {", is: "if h.wrong != \"-\" {",
		complaint: "picked for by a plugin that failed",
	},
	"an address that was sent is taken for another server's": {
		file: "actors/cycle/holdings.go", was: "if len(c.sent) > 0 {", is: "if len(c.sent) > 9 {",
		complaint: "load {",
	},
	"requests run under the newest configuration": {
		file: "configuration.go", was: "c.roles[at], messages", is: "c.picker.InForce().roles[at], messages",
		complaint: "and ran profile",
	},
	"a message for a broken actor is not kept": {
		file: "engine/runtime/loop.go", was: "if box.suspended || box.inv == nil {", is: "if box.inv == nil {",
		complaint: "after a panic",
	},
}

var simGame = game{test: "TestNamedSeed", command: "go test ./test/sim -seed 5 -requests 3000"}

func TestSimFindsFaultsInTheSource(t *testing.T) { simGame.finds(t, simFaults) }
