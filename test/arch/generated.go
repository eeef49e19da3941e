package arch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoMessages says that there is nothing to make the message table of.
var ErrNoMessages = errors.New("messages: no message here yet; write the messages first")

// MessageTable is the table of messages as ARCHITECTURE.md shows it, made from their doc comments. It leaves out those
// that begin an incarnation and those that an actor tells itself, of which no other actor need know.
func MessageTable(t *Tree) (string, error) {
	r := &report{tree: t}
	v := r.vocabulary("message-doc")
	if v == nil || len(v.messages) == 0 {
		return "", ErrNoMessages
	}
	var b strings.Builder
	b.WriteString("| receiver | message | from | reply | may be refused |\n|---|---|---|---|---|\n")
	for _, m := range v.messages {
		c := m.contract()
		if strings.HasSuffix(c["To"], ", first") || strings.HasSuffix(c["From"], ", to itself") {
			continue
		}
		refusable := ""
		if m.refusable {
			refusable = "yes"
		}
		from := c["From"]
		if until := c[reservedKey]; until != "" {
			from += "; reserved: " + until
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", m.in[0].receiver(), m.name, cell(from), cell(c["Reply"]),
			refusable)
	}
	return b.String(), nil
}

// cell makes text fit into a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// Block is a part of a document that is written from the code. It stands between the lines `<!-- name:begin -->` and
// `<!-- name:end -->`.
type Block struct {
	File string // path of the document
	Name string
	Want string // what stands between the lines; ends in a newline
}

// Check says what is wrong with the block in its document, and what to do; nil = nothing.
func (b Block) Check() error {
	_, got, _, err := b.split()
	if err != nil {
		return err
	}
	if got != b.Want {
		return fmt.Errorf("%s: the part between %s and %s differs from the code at its line %d; run `go test "+
			"./test/arch -update` and read the diff",
			filepath.Base(b.File), b.line("begin"), b.line("end"), firstDifference(got, b.Want))
	}
	return nil
}

// Update writes the block into its document.
func (b Block) Update() error {
	before, got, after, err := b.split()
	if err != nil || got == b.Want {
		return err
	}
	return os.WriteFile(b.File, []byte(before+b.Want+after), 0o644)
}

func (b Block) line(which string) string { return "<!-- " + b.Name + ":" + which + " -->" }

// split cuts the document into what stands before, in and behind the block.
func (b Block) split() (before, in, after string, err error) {
	data, err := os.ReadFile(b.File)
	if err != nil {
		return "", "", "", fmt.Errorf("no document to hold the %s: %w; write it, with the lines %s and %s", b.Name, err,
			b.line("begin"), b.line("end"))
	}
	text := string(data)
	begin, end := b.line("begin")+"\n", b.line("end")
	if strings.Count(text, begin) != 1 || strings.Count(text, end) != 1 ||
		strings.Index(text, end) < strings.Index(text, begin) {
		return "", "", "", fmt.Errorf("%s: want the lines %s and %s once each, in this order; add them where the %s "+
			"belong", filepath.Base(b.File), b.line("begin"), end, b.Name)
	}
	from := strings.Index(text, begin) + len(begin)
	to := strings.Index(text, end)
	return text[:from], text[from:to], text[to:], nil
}

// firstDifference is the number of the first line, 1 the first, in which two texts differ.
func firstDifference(a, b string) int {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return i + 1
		}
	}
	return min(len(as), len(bs)) + 1
}

// documentLimit is the length, in lines, up to which ARCHITECTURE.md is read whole.
const documentLimit = 300

// CheckLength says when a document has grown past what is read.
func CheckLength(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%w; write it", err)
	}
	if n := strings.Count(string(data), "\n"); n >= documentLimit {
		return fmt.Errorf("%s: %d lines, want fewer than %d; shorten what is not read", filepath.Base(file), n,
			documentLimit)
	}
	return nil
}
