package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/discovery/kube"
	"github.com/signalbox-epp/signalbox/adapters/discovery/preflight"
	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/messages"
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

// preflight makes the checks and prints them.
func (o *options) preflight(ctx context.Context, w io.Writer, asJSON bool) error {
	if err := o.check(); err != nil {
		return err
	}
	cfg, err := o.load(ctx)
	if err != nil {
		return err
	}
	if cfg.Discovery.Path != "" {
		return fmt.Errorf("the endpoints come from the file %s: want --pool-name or --endpoint-selector without one",
			cfg.Discovery.Path)
	}
	cluster, err := kube.Cluster(o.kubeconfig)
	if err != nil {
		return err
	}
	look := preflight.Config{
		Cluster: cluster, Namespace: o.namespace(), Target: kube.Target{Selector: o.selector, Ports: o.targetPorts},
		Pool: kube.Pool{Name: o.poolName, Group: o.poolGroup}, Reviews: o.reviewsTokens(),
		Events: o.events,
	}
	if o.elects {
		look.Lease = o.lease()
	}
	fetcher, err := modelserver.NewFetcher(modelserver.Config{Pages: pagesOf(cfg.Config, wanted(cfg.Config))})
	if err != nil {
		return err
	}
	defer fetcher.Close()
	if notScraped(cfg.Config) == "" {
		from := attributes.Source{Select: cfg.Metrics.Select}
		look.Metrics = func(e messages.EndpointSpec) error {
			if !from.Selects(maps.Collect(e.Labels.All())) {
				return nil // its page is not read
			}
			if failure := fetcher.Look(e).NoMetrics; failure != "" {
				return errors.New(failure)
			}
			return nil
		}
	}
	checks, err := preflight.Run(ctx, look)
	if err != nil {
		return err
	}
	return printChecks(w, checks, asJSON)
}

// printChecks prints the checks, and returns an error if there is a problem among them.
func printChecks(w io.Writer, checks []preflight.Check, asJSON bool) error {
	problems := 0
	text := ""
	for _, c := range checks {
		if c.Result == preflight.Problem {
			problems++
		}
		text += fmt.Sprintf("%-8s %s: %s\n", c.Result, c.Name, c.Found)
		if c.Remedy != "" {
			text += fmt.Sprintf("%-8s %s\n", "", c.Remedy)
		}
	}
	if asJSON {
		form, err := json.MarshalIndent(struct {
			Serves bool              `json:"serves"`
			Checks []preflight.Check `json:"checks"`
		}{problems == 0, checks}, "", "  ")
		if err != nil {
			return err
		}
		text = string(form) + "\n"
	}
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	if problems > 0 {
		return fmt.Errorf("problems: %d", problems)
	}
	return nil
}
