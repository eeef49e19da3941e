package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// listing is a list of requests as text, one line each.
func listing(p *page) string {
	var b strings.Builder
	if len(p.Requests) == 0 {
		b.WriteString("no requests\n")
	} else {
		table(&b, "", "lrlllrrr", rows(p))
	}
	if p.LeftOut > 0 {
		fmt.Fprintf(&b, "%d more; ?n= shows more, at most %d\n", p.LeftOut, mostNewest)
	}
	if p.Partial {
		b.WriteString("incomplete: a part of the process did not answer in time\n")
	}
	return b.String()
}

const (
	addressColumns = 21 // any IPv4 address with a port
	outcomeColumns = 20
	modelColumns   = 40
)

func rows(p *page) [][]string {
	rows := [][]string{{"id", "age", "model", "endpoint", "outcome", "queue", "ttft", "took"}}
	for i := range p.Requests {
		r := &p.Requests[i]
		rows = append(rows, []string{
			r.ID, short(time.Duration(r.AgeSeconds)), orNone(clean(r.Model)), clip(r.Served.text(), addressColumns),
			clip(outcome(r), outcomeColumns), short(time.Duration(r.QueueWaitSeconds)), r.FirstTokenSeconds.text(), r.DurationSeconds.text(),
		})
	}
	const model = 2
	left := width
	for column := range rows[0] {
		most := 0
		for _, row := range rows {
			most = max(most, columnsOf(row[column]))
		}
		if column != model {
			left -= most + 2
		}
	}
	for _, row := range rows {
		row[model] = clip(row[model], min(max(left, 8), modelColumns))
	}
	return rows
}

// outcome is status and reason in few words.
func outcome(r *requestView) string {
	reason := strings.TrimPrefix(r.Reason, "rejected-")
	switch {
	case r.Status != 0 && reason != "":
		return strconv.Itoa(r.Status) + " " + reason
	case r.Status != 0 && r.Running:
		return strconv.Itoa(r.Status) + " running"
	case r.Status != 0:
		return strconv.Itoa(r.Status)
	case reason != "":
		return reason
	case r.Running:
		return "running"
	}
	return "no response"
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
