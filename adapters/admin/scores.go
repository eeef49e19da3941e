package admin

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	fewRows  = 20 // endpoints that a table shows unless all are asked for; chosen ones always
	fewNames = 6  // endpoints that a line names unless all are asked for

	nameColumns   = 40 // of an endpoint in a table
	scorerColumns = 22 // of a scorer's name over its column
)

// chosen writes what one profile run did: filters, scores, pick.
func chosen(b *strings.Builder, p *profileView, served *endpoint, all bool) {
	fmt.Fprintf(b, "\nprofile %s\n", clip(clean(p.Profile), width-10))
	if p.Shadow {
		field(b, "  shadow", "it ran beside the pick, and changed nothing")
	}
	for _, s := range p.Stages {
		text := s.text() + " works for the request before the endpoint that serves it"
		if s.Probe {
			text += "; the request is its probe"
		}
		field(b, "  stage", text)
	}
	switch {
	case p.Failed != "" && p.Shadow:
		field(b, "  failed", clean(p.Failed))
	case p.Failed != "" && p.Optional:
		field(b, "  optional", clean(p.Failed)+"; the request is served without")
	}
	for i := range p.Filters {
		f := &p.Filters[i]
		text := fmt.Sprintf("%s kept %d of %d", clean(f.Plugin), f.Kept, f.Kept+len(f.Dropped))
		if f.Kept == 0 {
			text += ": none was left"
		}
		dropped(b, "  filter", text, f.Dropped, all)
	}
	if len(p.Stale) > 0 {
		dropped(b, "  freshness", "stale samples were left out, since others are fresh", p.Stale, all)
	}
	scored := 0
	for scored < len(p.Endpoints) && p.Endpoints[scored].Total != nil {
		scored++
	}
	if scored > 0 {
		b.WriteString("\n")
		rows := shown(p.Endpoints[:scored], served, all)
		scores(b, p, rows)
		if hidden := scored - len(rows); hidden > 0 {
			fmt.Fprintf(b, "  %s not shown (?all)\n", plural(hidden, "endpoint"))
		}
		if p.Within > 0 {
			field(b, "  precision", "scores ± "+number(p.Within)+
				", but exact for the first three that were ranked and for the runner-up; totals are exact")
		}
	}
	verdict(b, p)
}

func dropped(b *strings.Builder, label, text string, list []endpoint, all bool) {
	if len(list) == 0 {
		field(b, label, text)
		return
	}
	of := make([]string, 0, len(list))
	for i := range list {
		of = append(of, list[i].text())
	}
	field(b, label, text+"; dropped "+names(of, all))
}

// names joins a line of endpoints: the first few of them, unless all are asked for.
func names(list []string, all bool) string {
	if !all && len(list) > fewNames+1 {
		list = append(list[:fewNames:fewNames], fmt.Sprintf("and %d more (?all)", len(list)-fewNames))
	}
	return strings.Join(list, ", ")
}

// shown returns the rows of a table: the best candidates, and each that was chosen, was the runner-up, or served.
func shown(list []candidateView, served *endpoint, all bool) []*candidateView {
	var rows []*candidateView
	for i := range list {
		c := &list[i]
		if all || i < fewRows || c.Rank > 0 || c.runnerUp || (served != nil && c.endpoint == *served) {
			rows = append(rows, c)
		}
	}
	return rows
}

// scores writes the table of endpoints and scorers, in several parts if it is too wide for one.
func scores(b *strings.Builder, p *profileView, rows []*candidateView) {
	lead := leading(p, rows)
	narrow := 0
	for i := range lead[0] {
		narrow += 2 + widest(lead, i)
	}
	used := narrow
	var columns [][]string
	for i := range p.Scorers {
		column := scorer(p, i, rows)
		wide := 2 + widest([][]string{column}, -1)
		if used+wide > width && len(columns) > 0 {
			part(b, lead, columns)
			b.WriteString("\n")
			used, columns = narrow, nil
		}
		columns = append(columns, column)
		used += wide
	}
	part(b, lead, columns)
}

// leading returns the columns that every part of the table has: what was chosen, the endpoint, its total.
func leading(p *profileView, rows []*candidateView) [][]string {
	out := [][]string{{"", "endpoint", "total"}, {"", "", ""}}
	for _, c := range rows {
		out = append(out, []string{mark(c), clip(c.text(), nameColumns), number(*c.Total)})
	}
	if len(p.Scorers) > 0 {
		out[1][2] = "weight"
	}
	return out
}

func mark(c *candidateView) string {
	switch {
	case c.Rank == 1:
		return "pick"
	case c.Rank > 1 && c.runnerUp:
		return fmt.Sprintf("%d. runner-up", c.Rank)
	case c.Rank > 1:
		return fmt.Sprintf("%d.", c.Rank)
	case c.runnerUp:
		return "runner-up"
	}
	return ""
}

// scorer returns one column: the name, the weight, then score and weighted score of each row.
func scorer(p *profileView, i int, rows []*candidateView) []string {
	s := p.Scorers[i]
	out := []string{clip(strings.TrimSuffix(clean(s.Plugin), "-scorer"), scorerColumns), "× " + weight(s.Weight)}
	for _, c := range rows {
		if v := c.Scores[i]; v != nil {
			out = append(out, number(*v)+" = "+number(*v*s.Weight))
		} else {
			out = append(out, "not asked")
		}
	}
	return out
}

// widest returns the width of column i of rows; with -1 that of the widest cell.
func widest(rows [][]string, i int) int {
	most := 0
	for _, row := range rows {
		cells := row
		if i >= 0 {
			cells = row[i : i+1]
		}
		for _, cell := range cells {
			most = max(most, columnsOf(cell))
		}
	}
	return most
}

func part(b *strings.Builder, lead, columns [][]string) {
	rows := make([][]string, len(lead))
	for i := range lead {
		rows[i] = append(rows[i], lead[i]...)
		for _, column := range columns {
			rows[i] = append(rows[i], column[i])
		}
	}
	table(b, "  ", "llr"+strings.Repeat("r", len(columns)), rows)
}

// verdict writes which endpoint was picked, and by how much.
func verdict(b *strings.Builder, p *profileView) {
	if p.Picked == nil {
		b.WriteString("  no pick\n")
		return
	}
	b.WriteString("\n")
	field(b, "  pick", p.Picked.text())
	reading(b, p, func(r *readView) *float32 { return r.Pick }, p.PickAge)
	switch {
	case p.RunnerUp == nil:
		field(b, "  runner-up", "none: the pick was alone")
	case p.Margin == nil:
		field(b, "  runner-up", p.RunnerUp.text())
	case *p.Margin == 0:
		field(b, "  runner-up", p.RunnerUp.text()+", with the same total")
	case *p.Margin < 0:
		field(b, "  runner-up", p.RunnerUp.text()+", ahead by "+number(-*p.Margin)+
			": this picker does not always take the best")
	default:
		field(b, "  runner-up", p.RunnerUp.text()+", behind by "+number(*p.Margin))
	}
	if p.RunnerUp != nil {
		reading(b, p, func(r *readView) *float32 { return r.RunnerUp }, p.RunnerAge)
	}
}

// reading writes what plugins read of one endpoint, and how old its sample was; nil = there was none.
func reading(b *strings.Builder, p *profileView, of func(*readView) *float32, sample *float64) {
	if len(p.Read) == 0 {
		return
	}
	var parts []string
	for i := range p.Read {
		value := "unknown"
		if x := of(&p.Read[i]); x != nil {
			value = readable(float64(*x))
		}
		parts = append(parts, clean(p.Read[i].Attribute)+" "+value)
	}
	if sample != nil {
		parts = append(parts, "sample "+short(time.Duration(*sample*float64(time.Second)))+" old")
	}
	field(b, "", strings.Join(parts, ", "))
}

// readable returns a whole number as it is, and any other with four significant digits.
func readable(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e9 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// number returns v with three decimals, or with two significant digits if it is smaller than 0.001.
func number(v float32) string {
	if v != 0 && v < 0.001 {
		return strconv.FormatFloat(float64(v), 'g', 2, 32)
	}
	return strconv.FormatFloat(float64(v), 'f', 3, 32)
}

func weight(v float32) string { return strconv.FormatFloat(float64(v), 'g', -1, 32) }
