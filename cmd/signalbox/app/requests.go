package app

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/admin/client"
)

// filterFlags say which requests are meant. The process that is asked checks them.
type filterFlags struct{ model, status, endpoint, reason string }

// register adds the flags to a command that asks a port.
func (f *filterFlags) register(c *cobra.Command, port *portFlags) {
	c.Flags().StringVar(&f.model, "model", "", "only requests of this model")
	c.Flags().StringVar(&f.status, "status", "", "only requests with this HTTP status, or class of statuses: 503, 5xx")
	c.Flags().StringVar(&f.endpoint, "endpoint", "",
		"only requests that this endpoint served, or was picked for: its name, or its address")
	c.Flags().StringVar(&f.reason, "reason", "",
		"only requests that were not served for this reason; any is all reasons, none is what was served")
	for name, values := range map[string]cobra.CompletionFunc{
		"model": completeFrom(port, newestPage(completionRequests), modelNames),
		"status": cobra.FixedCompletions([]string{"2xx", "4xx", "5xx", "400", "429", "500", "502", "503", "504"},
			cobra.ShellCompDirectiveNoFileComp),
		"endpoint": completeFrom(port, endpointsPage, endpointNames),
		"reason":   cobra.FixedCompletions(admin.Reasons(), cobra.ShellCompDirectiveNoFileComp),
	} {
		_ = c.RegisterFlagCompletionFunc(name, values) // fails only for a flag that is not there
	}
}

func (f *filterFlags) set() bool { return *f != filterFlags{} }

// page returns the page of the newest requests that meet the filter.
func (f *filterFlags) page(limit int) client.Page {
	p := newestPage(limit)
	for name, value := range map[string]string{"model": f.model, "status": f.status, "endpoint": f.endpoint,
		"reason": f.reason} {
		if value != "" {
			p.Values.Set(name, value)
		}
	}
	return p
}

func newestPage(limit int) client.Page {
	return client.Page{Path: []string{"requests"}, Values: url.Values{"limit": {strconv.Itoa(limit)}}}
}

// completionRequests is how many requests are searched for the names that a shell offers.
const completionRequests = 200

func modelNames(p *admin.RequestsPage) []string {
	var names []string
	for i := range p.Requests {
		if m := p.Requests[i].Model; m != "" && !slices.Contains(names, m) {
			names = append(names, m)
		}
	}
	return names
}

func newRequests() *cobra.Command {
	port, filter, asJSON, limit, clientID := portFlags{}, filterFlags{}, false, 0, ""
	c := &cobra.Command{
		Use:   "requests",
		Short: "List the newest requests of a running signalbox, filtered by model, status, endpoint or reason",
		Long: "List the newest requests of a running signalbox, as /debug/requests does: where each went and how " +
			"it ended. A request must meet all filters that are given. It keeps some 4 000 requests in memory. " +
			"signalbox explain tells all about one.",
		Example: "  signalbox requests --status 5xx\n  signalbox requests --model my-model --endpoint vllm-a",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page := filter.page(limit)
			if clientID != "" {
				page.Values.Set("x-request-id", clientID)
			}
			return port.printPage(cmd.Context(), cmd.OutOrStdout(), asJSON, page)
		},
	}
	port.register(c.Flags())
	filter.register(c, &port)
	c.Flags().IntVarP(&limit, "limit", "n", 50, "how many, up to 1000")
	c.Flags().StringVar(&clientID, "x-request-id", "", "only requests to which their client gave this id")
	c.Flags().BoolVar(&asJSON, "json", false, "JSON instead of text")
	return c
}
