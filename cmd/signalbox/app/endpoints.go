package app

import (
	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/admin/client"
)

var endpointsPage = client.Page{Path: []string{"endpoints"}}

func newEndpoints() *cobra.Command {
	port, asJSON := portFlags{}, false
	c := &cobra.Command{
		Use:   "endpoints",
		Short: "Show the endpoints of a running signalbox: samples, load, outlier states",
		Long: "Show the endpoints of a running signalbox, as /debug/endpoints does: the newest sample of each and " +
			"its age, the requests in flight there, and its state: healthy, or an outlier with the cause.",
		Example: "  signalbox endpoints\n  signalbox endpoints --addr http://10.0.0.5:9090 --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return port.printPage(cmd.Context(), cmd.OutOrStdout(), asJSON, endpointsPage)
		},
	}
	port.register(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "JSON instead of text")
	return c
}

// endpointNames are the names and addresses of a page.
func endpointNames(p *admin.EndpointsPage) []string {
	var names []string
	for _, e := range p.Endpoints {
		names = append(names, e.Name+"\t"+e.Address, e.Address+"\t"+e.Name)
	}
	return names
}
