package app

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

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

// followEvery is how often a list that is followed is asked for, followed how many requests it may then have, and
// followedFor for how long it has each that has ended: an answer may be late.
const (
	followEvery = time.Second
	followed    = 1000
	followedFor = 5 * followEvery
)

// follow prints requests as they end, until ctx is done: first those of the page, then those that end later.
func follow(ctx context.Context, w io.Writer, c *client.Client, page client.Page) error {
	seen, heading, began := map[string]bool{}, true, time.Now()
	for {
		var p admin.RequestsPage
		if err := c.Decode(ctx, page, &p); err != nil && ctx.Err() == nil { // it was not interrupted
			return err
		}
		if news := p.News(seen); len(news.Requests) > 0 {
			text := news.Table(followColumns)
			if !heading {
				_, text, _ = strings.Cut(text, "\n")
			}
			heading = false
			if _, err := io.WriteString(w, text); err != nil {
				return err
			}
		}
		if p.LeftOut > 0 && page.Values.Has("ended_within") {
			_, _ = fmt.Fprintf(w, "%d more have ended of late and are not listed; --model, --status, --endpoint and "+
				"--reason list fewer\n", p.LeftOut)
		}
		if !sleep(ctx, followEvery) {
			return nil
		}
		page.Values.Set("limit", strconv.Itoa(followed))
		page.Values.Set("ended_within", min(time.Since(began), followedFor).String())
	}
}

// followColumns is how wide the lines of a list are that is followed.
const followColumns = 140

func newRequests() *cobra.Command {
	port, filter, asJSON, follows, limit, clientID := portFlags{}, filterFlags{}, false, false, 0, ""
	c := &cobra.Command{
		Use:   "requests",
		Short: "List the newest requests of a running signalbox, filtered by model, status, endpoint or reason",
		Long: "List the newest requests of a running signalbox, as /debug/requests does: where each went and how " +
			"it ended. A request must meet all filters that are given. It keeps some 4 000 requests in memory. " +
			"signalbox explain tells all about one.",
		Example: "  signalbox requests --status 5xx\n  signalbox requests --follow\n" +
			"  signalbox requests --model my-model --endpoint vllm-a",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page := filter.page(limit)
			if clientID != "" {
				page.Values.Set("x-request-id", clientID)
			}
			if follows {
				return port.ask(func(c *client.Client) error {
					return follow(cmd.Context(), cmd.OutOrStdout(), c, page)
				})
			}
			return port.printPage(cmd.Context(), cmd.OutOrStdout(), asJSON, page)
		},
	}
	port.register(c.Flags())
	filter.register(c, &port)
	c.Flags().IntVarP(&limit, "limit", "n", 50, "how many, up to 1000")
	c.Flags().StringVar(&clientID, "x-request-id", "", "only requests to which their client gave this id")
	c.Flags().BoolVar(&asJSON, "json", false, "JSON instead of text")
	c.Flags().BoolVarP(&follows, "follow", "f", false, "go on, and list each request once it has ended")
	c.MarkFlagsMutuallyExclusive("follow", "json")
	return c
}
