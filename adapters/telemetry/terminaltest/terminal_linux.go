package terminaltest

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Open returns both ends of a new pseudo-terminal. A program has inner as its terminal; a person types at outer, and
// reads there what the program writes. The caller closes both. Neither becomes the terminal of the test itself.
func Open(t *testing.T) (outer, inner *os.File) {
	t.Helper()
	outer, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(outer.Fd()), unix.TIOCSPTLCK, 0); err != nil { // unlocks inner
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(outer.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	inner, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return outer, inner
}

// Resize sets the size of a terminal by either of its ends. The programs on it are told by a signal if it changes.
func Resize(t *testing.T, end *os.File, columns, rows uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(end.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: rows, Col: columns}); err != nil {
		t.Fatal(err)
	}
}
