package app

import (
	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/engine/config"
)

func newPreflight(types *config.Catalogue) *cobra.Command {
	o, asJSON := newOptions(types), false
	c := &cobra.Command{
		Use:   "preflight",
		Short: "Look whether a picker would serve on Kubernetes, and say what to do about what is missing",
		Long: "Look whether a picker with the flags of serve would serve on Kubernetes: at the API server, the " +
			"definitions and their versions, the rights of the account, the InferencePool, its pods, their metrics " +
			"pages and the lease. Nothing is written: it gets and lists, and asks which rights it has by " +
			"SelfSubjectAccessReviews. The rights are those of the account that runs it.\n\n" +
			"Each line is a check: ok, a warning for what a picker serves without, or a problem, which keeps it " +
			"from serving. The exit status is 0 if there is no problem, else 1.",
		Example: "  signalbox preflight --pool-name llama --pool-namespace prod\n" +
			"  signalbox preflight --endpoint-selector app=vllm --endpoint-target-ports 8000 --json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.preflight(cmd.Context(), cmd.OutOrStdout(), asJSON)
		},
	}
	o.register(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "JSON instead of text")
	return c
}
