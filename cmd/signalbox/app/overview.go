package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/admin/client"
)

// overview is what top shows of a process at one moment.
type overview struct {
	addr      string
	hint      string // how to end the view; "" = it is printed once
	at        time.Time
	endpoints admin.EndpointsPage
	newest    admin.RequestsPage // the newest requests, from which rate and times are computed
	unserved  admin.RequestsPage // the newest requests that were not served
	problem   error              // why there is no newer view; nil = this is the newest
	since     time.Time          // when the problem began
}

const (
	countedRequests = 200 // newest requests that rate and times are computed from
	rateWindow      = 10 * time.Second
	timesWindow     = time.Minute
	shownUnserved   = 5
	leastUnserved   = 2 // if the screen is small
	unservedHeading = 3 // lines above the first one: an empty line, the title, and the heading of the table
)

// look asks the process for all pages of the view.
func look(ctx context.Context, c *client.Client) (*overview, error) {
	v := &overview{addr: c.Addr(), at: time.Now()}
	refusals := client.Page{Path: []string{"requests"},
		Values: url.Values{"reason": {"any"}, "limit": {strconv.Itoa(shownUnserved)}}}
	for _, ask := range []struct {
		page client.Page
		into any
	}{{endpointsPage, &v.endpoints}, {newestPage(countedRequests), &v.newest}, {refusals, &v.unserved}} {
		if err := c.Decode(ctx, ask.page, ask.into); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// withProblem returns the same view with the reason why there is no newer one.
func (v *overview) withProblem(problem error) *overview {
	old := *v
	if old.problem == nil {
		old.since = time.Now()
	}
	old.problem = problem
	return &old
}

// lines returns the view, cut to so many columns and rows; 0 rows = as many as there are.
func (v *overview) lines(columns, rows int) []string {
	head := append(v.head(columns), "")
	unserved := []string{"", "not served, newest first:"}
	switch {
	case len(v.unserved.Requests) > 0:
		unserved = append(unserved, tableLines(v.unserved.Table(columns))...)
	case len(v.newest.Requests) > 0:
		unserved[1] = "no request on record was refused or broken off"
	default:
		unserved[1] = "no requests yet"
	}
	if rows == 0 {
		rows = math.MaxInt
	}
	if left := rows - len(head) - len(tableLines(v.endpoints.Table(columns))); left < len(unserved) {
		unserved = unserved[:min(len(unserved), max(left, unservedHeading+leastUnserved))]
	}
	all := slices.Concat(head, v.endpointLines(columns, rows-len(head)-len(unserved)), unserved)
	all = all[:min(len(all), rows)]
	for i := range all {
		all[i] = admin.Clip(all[i], columns)
	}
	return all
}

func tableLines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }

// head returns the lines that name the process and the time, and summarise endpoints and requests.
func (v *overview) head(columns int) []string {
	lines := wrapped([]string{fmt.Sprintf("signalbox at %s, %s", v.addr, v.at.Format(time.TimeOnly)), v.hint}, columns)
	if v.problem != nil {
		away := time.Since(v.since).Truncate(time.Second)
		lines = append(lines, wrapped([]string{fmt.Sprintf("no answer for %v", away), "this is the last one",
			admin.Clean(v.problem.Error())}, columns)...)
	}
	return append(lines, wrapped(append(v.sums(), v.rate(), v.firstToken()), columns)...)
}

// wrapped puts items on lines, as many on each as have room.
func wrapped(items []string, columns int) []string {
	var lines []string
	for _, item := range items {
		if item == "" {
			continue
		}
		if last := len(lines) - 1; last >= 0 && len([]rune(lines[last]))+len([]rune(item))+3 <= columns {
			lines[last] += " | " + item
			continue
		}
		lines = append(lines, item)
	}
	return lines
}

// sums returns how many endpoints there are, how many of them are in each state other than healthy, and how many
// requests are in flight.
func (v *overview) sums() []string {
	states, unread, inflight := map[string]int{}, 0, 0
	for i := range v.endpoints.Endpoints {
		e := &v.endpoints.Endpoints[i]
		inflight += e.InflightRequests
		if e.Outlier != nil {
			states[e.Outlier.State]++
		}
		if e.Failing {
			unread++
		}
	}
	text := counted(len(v.endpoints.Endpoints), "endpoint")
	for _, state := range slices.Sorted(maps.Keys(states)) {
		text += fmt.Sprintf(", %d %s", states[state], state)
	}
	if unread > 0 {
		text += fmt.Sprintf(", %d without metrics", unread)
	}
	return []string{text, counted(inflight, "request") + " in flight"}
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// rate returns how many requests a second came within rateWindow, counted from the newest records.
func (v *overview) rate() string {
	n, span := 0, rateWindow
	for i := range v.newest.Requests {
		age := v.newest.Requests[i].Age()
		if age > rateWindow {
			break
		}
		n++
		if n == countedRequests {
			span = max(age, time.Millisecond) // there may be more
		}
	}
	return fmt.Sprintf("%.3g requests/s", float64(n)/span.Seconds())
}

// firstToken returns how long clients waited for the first token within timesWindow, as far as it was seen.
func (v *overview) firstToken() string {
	var waits []time.Duration
	for i := range v.newest.Requests {
		r := &v.newest.Requests[i]
		if wait, seen := r.TTFT(); seen && r.Age() <= timesWindow {
			waits = append(waits, wait)
		}
	}
	if len(waits) == 0 {
		return "first token: none seen within a minute"
	}
	slices.Sort(waits)
	rank := func(part float64) time.Duration { return waits[int(math.Ceil(part*float64(len(waits))))-1] }
	return fmt.Sprintf("first token after %s, 95 %% within %s", admin.Short(rank(0.5)), admin.Short(rank(0.95)))
}

// endpointLines returns the table of endpoints. If it has more rows than there is room for, it shows first the
// endpoints that are not healthy, and then the busiest ones.
func (v *overview) endpointLines(columns, rows int) []string {
	page := v.endpoints
	all := tableLines(page.Table(columns))
	rows = max(rows, 3) // the heading, one endpoint and the line below
	if len(all) <= rows {
		return all
	}
	page.Endpoints = slices.Clone(page.Endpoints)
	slices.SortStableFunc(page.Endpoints, func(a, b admin.EndpointView) int {
		return cmp.Or(cmp.Compare(trouble(&b), trouble(&a)), cmp.Compare(b.InflightRequests, a.InflightRequests))
	})
	shown := rows - 2 // beside the heading and the line below
	more := len(page.Endpoints) - shown
	page.Endpoints = page.Endpoints[:shown]
	return append(tableLines(page.Table(columns))[:1+shown],
		fmt.Sprintf("… and %d more, which signalbox endpoints lists", more))
}

// trouble returns 2 for an endpoint that is an outlier, 1 for one whose metrics cannot be read, 0 for others.
func trouble(e *admin.EndpointView) int {
	switch {
	case e.Outlier != nil:
		return 2
	case e.Failing:
		return 1
	}
	return 0
}
