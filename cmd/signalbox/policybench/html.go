package policybench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the page shows. Positions are in pixels of a chart.
type page struct {
	Denominator string
	Seeds       int
	Margin      float64 // percent
	Dots, Lines []chart
	Scenarios   []string
	Rows        []heatRow
	Text        string
}

type chart struct {
	Title         string
	Width, Height int
	Ticks, Loads  []tick
	Series        []series
}

type tick struct {
	At   float64
	Text string
}

// series is a policy in a chart: a dot with an interval, or a line.
type series struct {
	Name, Text string
	Hue        int
	Held       bool // with flow control
	Label      float64

	X, Y, Low, High float64
	Points          string
}

type heatRow struct {
	Name  string
	Cells []heatCell
}

type heatCell struct {
	Class verdict
	Text  string
}

// WriteHTML writes all as one page with charts, which needs nothing else.
func (r *Results) WriteHTML(w io.Writer) error {
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		return err
	}
	p := page{Denominator: denominator, Seeds: r.Options.Seeds, Margin: 100 * margin, Text: text.String()}
	for _, g := range append(r.groups(), "") {
		if some := r.of(g); len(some) > 0 {
			p.Dots = append(p.Dots, r.dots(g, some))
		}
	}
	var names []string
	for _, s := range r.Scenarios {
		p.Scenarios = append(p.Scenarios, s.Name)
		if !slices.Contains(names, s.name) {
			names = append(names, s.name)
		}
	}
	for _, name := range names {
		if c := r.lines(name); len(c.Loads) > 1 {
			p.Lines = append(p.Lines, c)
		}
	}
	for k, c := range r.Policies {
		p.Rows = append(p.Rows, r.heat(k, c.Name))
	}
	return pageTemplate.Execute(w, p)
}

// hue parts the policies by colour; one with flow control has that of the one without.
func (r *Results) hue(policy int) int {
	name := strings.TrimSuffix(r.Policies[policy].Name, heldSuffix)
	first := slices.IndexFunc(
		r.Policies,
		func(c Contender) bool { return strings.TrimSuffix(c.Name, heldSuffix) == name },
	)
	return first * 137 % 360
}

// axis places values on a logarithmic axis.
type axis struct{ least, most, from, to float64 }

func (a axis) at(v float64) float64 {
	v = min(max(v, a.least), a.most)
	return math.Round(a.from + (a.to-a.from)*math.Log(v/a.least)/math.Log(a.most/a.least))
}

func (a axis) ticks(values ...float64) (some []tick) {
	for _, v := range values {
		if v >= a.least && v <= a.most {
			some = append(some, tick{a.at(v), fmt.Sprint(v)})
		}
	}
	return some
}

// dots shows the policies' ratios in some scenarios.
func (r *Results) dots(group string, scenarios []int) chart {
	const row = 18
	c := chart{Title: group, Width: 560, Height: 26 + row*len(r.Policies)}
	if group == "" {
		c.Title = "all but " + groupLight
	}
	x := axis{.5, 16, 130, 540}
	c.Ticks = x.ticks(.5, .7, 1, 1.4, 2, 4, 8, 16)
	for k, policy := range r.Policies {
		v := interval(r.ratios(meanTTFT, k, 0, scenarios))
		y := float64(26 + row*k + row/2)
		c.Series = append(c.Series, series{
			Name: policy.Name, Text: r.cell(meanTTFT, k, scenarios), Hue: r.hue(k), Label: y + 4,
			X: x.at(v.Mean), Y: y, Low: x.at(v.Low), High: x.at(v.High),
		})
	}
	return c
}

// lines shows the policies' times over the loads of a setting.
func (r *Results) lines(setting string) chart {
	const top, bottom, least, most = 20, 380, .01, 100
	c := chart{Title: setting, Width: 560, Height: bottom + 24}
	y := axis{least, most, bottom, top}
	c.Ticks = y.ticks(.01, .1, 1, 10, 100)
	loads := axis{math.Inf(1), 0, 60, 400}
	var some []int
	for i, s := range r.Scenarios {
		if s.name == setting {
			some = append(some, i)
			loads.least, loads.most = min(loads.least, s.Load), max(loads.most, s.Load)
		}
	}
	for _, i := range some {
		c.Loads = append(c.Loads, loads.ticks(r.Scenarios[i].Load)...)
	}
	for k, policy := range r.Policies {
		one := series{Name: policy.Name, Hue: r.hue(k), Held: policy.Baseline != ""}
		for _, i := range some {
			one.Label = y.at(r.mean(i, k, meanTTFT))
			one.Points += fmt.Sprintf("%.0f,%.0f ", loads.at(r.Scenarios[i].Load), one.Label)
		}
		c.Series = append(c.Series, one)
	}
	slices.SortStableFunc(c.Series, func(a, b series) int { return int(b.Label - a.Label) })
	for i := range c.Series { // from the bottom up, so that no name hides another
		c.Series[i].Label += 4
		if i > 0 {
			c.Series[i].Label = min(c.Series[i].Label, c.Series[i-1].Label-12)
		}
	}
	return c
}

func (r *Results) heat(policy int, name string) heatRow {
	row := heatRow{Name: name}
	for i := range r.Scenarios {
		ratio, is := r.verdict(i, policy)
		row.Cells = append(row.Cells, heatCell{is, fmt.Sprintf("%.2f", ratio)})
	}
	return row
}
