package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// role is one kind of actor in the supervision tree.
type role struct {
	name, restart, lost, notices string
	children                     []role
}

// supervision is the tree as buildTree spawns it.
var supervision = role{
	name: "loop/0..n", restart: "always", lost: "its actors", notices: "nobody: it runs no code that can fail",
	children: []role{
		{name: "pool (loop 0)", restart: "always", lost: "nothing: the snapshot stays in force", notices: "nobody", children: []role{
			{name: "scraper/<endpoint>", restart: "always", lost: "the interval learnt; the sample stays and ages", notices: "readers, by the sample's age"},
		}},
		{name: "prefix (last loop)", restart: "always", lost: "the prefix index", notices: "pool, by its watch"},
		{name: "recorder (loop 0)", restart: "always", lost: "open queries, which are answered first", notices: "the asker, by a partial answer"},
		{name: "shard/0..n", restart: "always", lost: "its flow and its cycles", notices: "streams, each by its answer", children: []role{
			{name: "flow/0..n", restart: "always", lost: "the places of requests that run, which run on", notices: "nobody"},
			{name: "cycle/<request>", restart: "never", lost: "its request, which is answered 500", notices: "stream, by its answer"},
		}},
	},
}

func newTree() *cobra.Command {
	return &cobra.Command{
		Use: "tree", Short: "Print the supervision tree", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), supervision.print("", ""))
			return err
		},
	}
}

func (r role) print(head, tail string) string {
	s := fmt.Sprintf("%-32s restart %s; loses %s; noticed by %s\n", head+r.name, r.restart, r.lost, r.notices)
	for i, c := range r.children {
		if i == len(r.children)-1 {
			s += c.print(tail+"└─ ", tail+"   ")
			continue
		}
		s += c.print(tail+"├─ ", tail+"│  ")
	}
	return s
}
