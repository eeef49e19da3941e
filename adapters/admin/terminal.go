package admin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// width is how many columns a page takes at most.
const width = 120

// seen reports whether a terminal shows a character as one sign and obeys nothing in it. It is false for marks, which
// pile up on the sign before them, and whose width differs between terminals.
func seen(r rune) bool { return strconv.IsPrint(r) && !unicode.Is(unicode.M, r) }

// clean returns text that is harmless for a terminal: a character that is not seen, or a byte that is not UTF-8,
// becomes an escape as in Go.
func clean(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case seen(r):
			b.WriteString(s[:n])
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// Clean returns text that is harmless for a terminal, as all pages show it.
func Clean(s string) string { return clean(s) }

// Clip shortens text to n columns of a terminal and shows that it did.
func Clip(s string, n int) string { return clip(s, n) }

// Short returns a duration in at most seven columns, as all pages show it.
func Short(d time.Duration) string { return short(d) }

// terminal is one whose locale is not East Asian: characters of ambiguous width take one column.
var terminal = &runewidth.Condition{}

func columnsOf(s string) int { return terminal.StringWidth(s) }

// split cuts s where it reaches n columns. The head is empty only if s is.
func split(s string, n int) (head, tail string) {
	used := 0
	for i, r := range s {
		used += terminal.RuneWidth(r)
		if used > n && i > 0 {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// clip shortens s to n columns and shows that it did.
func clip(s string, n int) string { return terminal.Truncate(s, n, "…") }

// field writes a "label  text" line; long text goes on below itself, at a space if there is one near.
func field(b *strings.Builder, label, text string) {
	const at = 14
	lead := fmt.Sprintf("%-*s", at, label)
	for {
		head, tail := split(text, width-at)
		if i := strings.LastIndexByte(head, ' '); tail != "" && i > len(head)/2 {
			head, tail = text[:i], text[i+1:]
		}
		b.WriteString(strings.TrimRight(lead+head, " ") + "\n")
		if tail == "" {
			return
		}
		lead, text = strings.Repeat(" ", at), tail
	}
}

// table writes rows in columns two spaces apart. sides has an l or an r for each column: the side to which it is set.
func table(b *strings.Builder, indent, sides string, rows [][]string) {
	wide := make([]int, len(sides))
	for _, row := range rows {
		for i, cell := range row {
			wide[i] = max(wide[i], columnsOf(cell))
		}
	}
	for _, row := range rows {
		line := indent
		for i, cell := range row {
			if i > 0 {
				line += "  "
			}
			pad := strings.Repeat(" ", wide[i]-columnsOf(cell))
			if sides[i] == 'r' {
				cell = pad + cell
			} else {
				cell += pad
			}
			line += cell
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// fit leaves out columns of a table until it is not wider than most. drop holds the headings of the columns that may
// go, the first to go first.
func fit(rows [][]string, sides string, most int, drop ...string) (fitting [][]string, theirs string) {
	for _, heading := range drop {
		if tableColumns(rows) <= most {
			break
		}
		i := slices.Index(rows[0], heading)
		narrower := make([][]string, len(rows))
		for n, row := range rows {
			narrower[n] = slices.Delete(slices.Clone(row), i, i+1)
		}
		rows, sides = narrower, sides[:i]+sides[i+1:]
	}
	return rows, sides
}

// tableColumns returns how wide a table is.
func tableColumns(rows [][]string) int {
	total := -2
	for column := range rows[0] {
		total += columnOf(rows, column) + 2
	}
	return total
}

// columnOf returns how wide a column of a table is.
func columnOf(rows [][]string, column int) int {
	most := 0
	for _, row := range rows {
		most = max(most, columnsOf(row[column]))
	}
	return most
}

// short returns a duration in three significant digits, in at most seven columns up to 100 days.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + short(-d)
	case d == 0:
		return "0"
	case d < time.Microsecond:
		return fmt.Sprintf("%dns", d)
	case d < time.Millisecond:
		return digits(float64(d)/float64(time.Microsecond)) + "µs"
	case d < time.Second:
		return digits(float64(d)/float64(time.Millisecond)) + "ms"
	case d < time.Minute:
		return digits(d.Seconds()) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

func digits(v float64) string {
	switch {
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// size returns a number of bytes for people.
func size(bytes int64) string {
	switch {
	case bytes < 1<<10:
		return plural(int(bytes), "byte")
	case bytes < 1<<20:
		return digits(float64(bytes)/(1<<10)) + " KiB"
	}
	return digits(float64(bytes)/(1<<20)) + " MiB"
}

// plural returns a number and what it counts.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
