package main

import (
	"time"

	"context"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/admin"
)

func newExplain() *cobra.Command {
	addr, asJSON := "", false
	c := &cobra.Command{
		Use:   "explain ID",
		Short: "Say why a request went where it went",
		Long: "Say why a request went where it went: every message with its timing, every filter, every score of every endpoint, the\n" +
			"pick and its runner-up. ID is the x-signalbox-request-id of the answer, or the client's x-request-id.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
			defer cancel()
			return admin.Fetch(ctx, addr, args[0], asJSON, cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&addr, "addr", "http://127.0.0.1:9090", "metrics port of the running signalbox")
	c.Flags().BoolVar(&asJSON, "json", false, "JSON instead of text")
	return c
}
