package app

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/signalbox-epp/signalbox/adapters/admin"
)

// plainStatus is the least time between two lines of status where there is no terminal. A change of the servers or of
// Envoy is written at once.
const plainStatus = 10 * time.Second

// console is the output of up: lines that stay and, on a terminal, a status line below them that is drawn over.
type console struct {
	mu     sync.Mutex
	out    io.Writer
	width  func() int // columns of the terminal; nil = out is no terminal
	status string     // status that was shown last
	shown  time.Time  // when it was shown, if out is no terminal
}

func newConsole(out io.Writer) *console {
	c := &console{out: out}
	f, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return c
	}
	c.width = func() int {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
		return 80
	}
	return c
}

// say writes a line that stays.
func (c *console) say(format string, args ...any) {
	_, _ = c.Write(fmt.Appendf(nil, format+"\n", args...))
}

// Write writes whole lines that stay, such as those of a log. The status is drawn anew below them.
func (c *console) Write(lines []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.width == nil {
		return c.out.Write(lines)
	}
	var b bytes.Buffer
	b.WriteString(clearLine)
	b.Write(lines)
	b.WriteString(c.line())
	if _, err := c.out.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(lines), nil
}

const clearLine = "\r\x1b[K"

// freeColumns is how many columns stay free behind the status: two for the ^C that a terminal shows, one for a terminal
// that wraps as soon as its last column is written.
const freeColumns = 3

// line returns the status cut to one row of the terminal.
func (c *console) line() string {
	if c.status == "" {
		return ""
	}
	return admin.Clip(c.status, max(c.width()-freeColumns, 1))
}

// show changes the status. An urgent status is written at once even where there is no terminal.
func (c *console) show(status string, urgent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.width != nil {
		c.status = status
		fmt.Fprint(c.out, clearLine+c.line())
		return
	}
	if status == "" || status == c.status || !urgent && time.Since(c.shown) < plainStatus {
		return
	}
	c.status, c.shown = status, time.Now()
	fmt.Fprintln(c.out, status)
}

// clear takes the status off the terminal.
func (c *console) clear() { c.show("", false) }
