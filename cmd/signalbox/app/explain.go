package app

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/admin/client"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	port        portFlags
	filter      filterFlags
	last        bool
	all, asJSON bool
}

func newExplain() *cobra.Command {
	o := &explainOptions{}
	c := &cobra.Command{
		Use:   "explain ID | --last",
		Short: "Say why a request went where it went",
		Long: "Say why a request went where it went: every message with its timing, every filter, every score of " +
			"every endpoint, the pick and its runner-up. ID is the x-signalbox-request-id of the answer, its " +
			"x-request-id, or the chatcmpl-... or cmpl-... that vLLM makes of that. Ids that a server makes by " +
			"itself (resp_...) are known in the full lane alone. --last is the newest request; with --model, " +
			"--status, --endpoint or --reason it is the newest of those.",
		Example: "  signalbox explain 5f0c3a1b2d4e6f70-42\n  signalbox explain --last --status 5xx",
		Args:    o.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.port.ask(func(c *client.Client) error { return o.run(cmd, c, args) })
		},
		ValidArgsFunction: completeFrom(&o.port, newestPage(completionIDs), requestIDs),
	}
	o.port.register(c.Flags())
	o.filter.register(c, &o.port)
	c.Flags().BoolVar(&o.last, "last", false, "the newest request, in the place of an ID")
	c.Flags().BoolVar(&o.all, "all", false, "the scores of every endpoint, however many")
	c.Flags().BoolVar(&o.asJSON, "json", false, "JSON instead of text")
	return c
}

// args returns an error unless an ID or --last is given.
func (o *explainOptions) args(cmd *cobra.Command, args []string) error {
	const one = "the ID, which is the x-signalbox-request-id of an answer; --last takes the newest request"
	switch {
	case o.last && len(args) > 0:
		return fmt.Errorf("%s: got %q and --last, want one of them", cmd.CommandPath(), args[0])
	case o.last:
		return nil
	case o.filter.set():
		return fmt.Errorf("%s: --model, --status, --endpoint and --reason want --last", cmd.CommandPath())
	case len(args) == 1 && strings.TrimSpace(args[0]) == "":
		return errors.New("no request id is given")
	}
	return oneArg(one)(cmd, args)
}

func (o *explainOptions) run(cmd *cobra.Command, c *client.Client, args []string) error {
	if o.last {
		id, err := o.newest(cmd.Context(), c)
		if err != nil {
			return err
		}
		args = []string{id}
	}
	page := client.Page{Path: []string{"requests", args[0]}, Values: url.Values{}}
	if o.all {
		page.Values.Set("all", "true")
	}
	if o.asJSON {
		return c.JSON(cmd.Context(), page, cmd.OutOrStdout())
	}
	return c.Text(cmd.Context(), page, cmd.OutOrStdout())
}

// newest returns the id of the newest request that meets the filters.
func (o *explainOptions) newest(ctx context.Context, c *client.Client) (string, error) {
	var p admin.RequestsPage
	if err := c.Decode(ctx, o.filter.page(1), &p); err != nil {
		return "", err
	}
	switch {
	case len(p.Requests) > 0:
		return p.Requests[0].ID, nil
	case o.filter.set():
		return "", errors.New("no request on record meets the filters; signalbox requests lists those on record")
	}
	return "", errors.New("no request has come yet")
}

// completionIDs is how many ids a shell offers.
const completionIDs = 20

func requestIDs(p *admin.RequestsPage) []string {
	var ids []string
	for i := range p.Requests {
		r := &p.Requests[i]
		ids = append(ids, r.ID+"\t"+admin.Clean(r.Model)+" "+r.Outcome())
	}
	return ids
}
