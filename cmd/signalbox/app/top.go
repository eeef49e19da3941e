package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/signalbox-epp/signalbox/adapters/admin/client"
)

// topOptions are the flags of top.
type topOptions struct {
	port     portFlags
	once     bool
	interval time.Duration
}

// shortestInterval is the least time between two looks of top. Each look asks for three pages.
const shortestInterval = time.Second

func newTop() *cobra.Command {
	o := &topOptions{}
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch a running signalbox in the terminal",
		Long: "Watch a running signalbox in the terminal: its endpoints with their load, samples and outlier " +
			"states, the rate of requests, the time to the first token where it is known, and the newest " +
			"requests that were not served. q or Ctrl-C ends it. It goes on trying while the process is away. " +
			"Without a terminal, or with --once, it prints this once.",
		Example: "  signalbox top\n  signalbox top --once",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.interval < shortestInterval {
				return fmt.Errorf("--interval: got %v, want %v or more", o.interval, shortestInterval)
			}
			return o.port.ask(func(c *client.Client) error {
				return o.run(cmd.Context(), c, cmd.InOrStdin(), cmd.OutOrStdout())
			})
		},
	}
	o.port.register(c.Flags())
	c.Flags().BoolVar(&o.once, "once", false, "print it once and end")
	c.Flags().DurationVar(&o.interval, "interval", shortestInterval, "time between two looks, 1s or more")
	return c
}

// run takes a first look before it touches the terminal: a problem that is there from the beginning is an error.
func (o *topOptions) run(ctx context.Context, c *client.Client, in io.Reader, out io.Writer) error {
	first, err := look(ctx, c)
	if err != nil {
		return err
	}
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return printLines(out, first.lines(widthOfPages, 0))
	}
	if o.once || os.Getenv("TERM") == "dumb" {
		columns, _ := sizeOf(file)
		return printLines(out, first.lines(columns, 0))
	}
	s, err := openScreen(in, file)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(ctx, s.restoreKeys)() // also if the terminal takes no more output
	s.keys(end)
	return o.watch(ctx, c, s, first)
}

// watch draws until ctx is done. Without an answer it draws the answer before, and says why.
func (o *topOptions) watch(ctx context.Context, c *client.Client, s *screen, v *overview) error {
	for ctx.Err() == nil {
		v.hint = "q ends"
		if err := s.draw(v); err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
		pause := time.NewTimer(o.interval) // from the end of a drawing: two are never closer
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			continue
		}
		if next, err := look(ctx, c); err != nil {
			v = v.withProblem(o.port.withFlag(err))
		} else {
			v = next
		}
	}
	return nil
}

// widthOfPages is how many columns a view has that does not go to a terminal.
const widthOfPages = 140

func printLines(out io.Writer, lines []string) error {
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// sizeOf returns the size of a terminal, or 80 by 24 if the terminal does not tell it.
func sizeOf(f *os.File) (columns, rows int) {
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		return 80, 24
	}
	return columns, rows
}

// screen is a terminal that top has to itself. At the end the terminal shows again what it showed before.
type screen struct {
	in          io.Reader
	out         *os.File
	restoreKeys func() // gives the keyboard back; only its first call has an effect
}

// Sequences that terminals have obeyed since the VT100, and xterm's second screen, which all of today's have.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l" // the second screen, without a cursor, without wrapping
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	toTheTop    = "\x1b[H"
	clearToEnd  = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// openScreen takes the terminal. Keys come one by one and unseen if in is a terminal too; Ctrl-C is a key then.
func openScreen(in io.Reader, out *os.File) (*screen, error) {
	s := &screen{in: in, out: out, restoreKeys: func() {}}
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		before, err := term.MakeRaw(int(f.Fd()))
		if err != nil {
			return nil, fmt.Errorf("terminal: %w", err)
		}
		s.restoreKeys = sync.OnceFunc(func() { _ = term.Restore(int(f.Fd()), before) })
	} else {
		s.in = nil
	}
	if _, err := io.WriteString(out, enterScreen); err != nil {
		s.restoreKeys()
		return nil, fmt.Errorf("terminal: %w", err)
	}
	return s, nil
}

func (s *screen) close() {
	s.restoreKeys()
	_, _ = io.WriteString(s.out, leaveScreen) // fails only if the terminal is gone
}

// keys calls end at q, Ctrl-C or Ctrl-D, and when the terminal is gone. It reads until the process ends: a read of a
// terminal cannot be called off.
func (s *screen) keys(end func()) {
	if s.in == nil {
		return
	}
	go func() {
		defer end()
		buffer := make([]byte, 64)
		for {
			n, err := s.in.Read(buffer)
			if err != nil || strings.ContainsAny(string(buffer[:n]), "qQ\x03\x04") {
				return
			}
		}
	}()
}

// draw fills the screen with the view, as large as the screen is now.
func (s *screen) draw(v *overview) error {
	columns, rows := sizeOf(s.out)
	frame := toTheTop + strings.Join(v.lines(columns, rows), clearToEnd+"\r\n") + clearToEnd + clearBelow
	_, err := io.WriteString(s.out, frame)
	return err
}
