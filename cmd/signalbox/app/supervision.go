package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/engine/runtime"
)

// role is one kind of actor in the supervision tree.
type role struct {
	name     string // as runtime.Role has it
	on       string // for what there is one, as the tree shows it: a place, or a thing on the loop of its parent
	policy   runtime.Policy
	lost     string // when it restarts
	notices  string // what notices a restart
	children []role
}

// Where actors live: the loops that carry them, as the tree shows it.
const (
	eachLoop  = "/0..n"
	firstLoop = " (loop 0)"
	lastLoop  = " (last loop)"
)

// supervision is the tree as buildTree and its actors spawn it: TestSupervisionIsWhatIsSpawned compares both.
var supervision = role{
	"loop", eachLoop, runtime.RestartOnPanic, "its actors", "no actor: it runs no code that can fail", []role{
		{"pool", firstLoop, runtime.RestartOnPanic, "who is away; the snapshot stays in force", "no actor", []role{
			{"scraper", "/<endpoint>", runtime.RestartOnPanic, "the interval learnt; the sample stays and ages",
				"the sample's age", nil},
		}},
		{"prefix", lastLoop, runtime.RestartOnPanic, "the prefix index", "pool, by its watch", nil},
		{"memory", lastLoop, runtime.RestartOnPanic, "the endpoints of sessions, and what else plugins keep",
			"no actor", nil},
		{"outlier", firstLoop, runtime.RestartOnPanic, "what is known of failures: all endpoints are healthy",
			"no actor", nil},
		{"window", firstLoop, runtime.RestartOnPanic,
			"what was learned of endpoints but their windows, which stay in force", "no actor", nil},
		{"recorder", firstLoop, runtime.RestartOnPanic, "open queries, which are answered first",
			"the asker, by a partial answer", nil},
		{"capacity", firstLoop, runtime.RestartOnPanic,
			"the line, whose requests are answered 500, and what may be evicted", "no actor", nil},
		{"shard", eachLoop, runtime.RestartOnPanic, "its cycles", "streams, each by its answer", []role{
			{"cycle", "/<request>", runtime.StopOnPanic, "its request, which is answered 500", "stream, by its answer",
				nil},
		}},
	},
}

func newTree() *cobra.Command {
	return &cobra.Command{
		Use: "tree", Short: "Print the supervision tree", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), supervision.print("", ""))
			return err
		},
	}
}

// print returns a line for the role and each role below it. Its own line begins with head, those below with tail.
func (r role) print(head, tail string) string {
	restart := "always"
	if r.policy == runtime.StopOnPanic {
		restart = "never"
	}
	s := fmt.Sprintf("%-32s restart %s; loses %s; noticed by %s\n", head+r.name+r.on, restart, r.lost, r.notices)
	for i, c := range r.children {
		if i == len(r.children)-1 {
			s += c.print(tail+"└─ ", tail+"   ")
			continue
		}
		s += c.print(tail+"├─ ", tail+"│  ")
	}
	return s
}
