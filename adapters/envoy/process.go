package envoy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// endWithin is how long a process may take to end after SIGTERM, before it is killed.
const endWithin = 2 * time.Second

// Config says how an Envoy is started.
type Config struct {
	Binary    string
	Bootstrap string       // its text: no file is left behind, however this process ends
	Flags     []string     // further flags of Envoy
	Line      func(string) // is called with each line of Envoy's log, warnings and above; may be nil
}

// Process is one run of Envoy.
type Process struct {
	cfg   Config
	cmd   *exec.Cmd
	at    atomic.Pointer[string] // where the admin page is; nil = Envoy has not said it
	said  lines
	ended chan struct{}
	how   error // valid after ended; nil = exit status 0
}

// adminPath is where a child finds the first of its further files, to which Envoy writes where its admin page is.
const adminPath = "/dev/fd/3"

// Start starts Envoy, and does not wait until it serves, which Ready does. Envoy has a process group of its own, so
// that a terminal's Ctrl-C does not reach it, and the requests that it holds can be drained first.
func Start(cfg Config) (*Process, error) {
	told, tells, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &Process{cfg: cfg, ended: make(chan struct{}), said: lines{each: cfg.Line}}
	flags := []string{
		"--config-yaml", cfg.Bootstrap, "--disable-hot-restart", "--admin-address-path", adminPath,
		"-l", "warning", "--log-format", "%l, %n: %v",
	}
	p.cmd = exec.Command(cfg.Binary, append(flags, cfg.Flags...)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	p.cmd.ExtraFiles = []*os.File{tells}
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = endsWithUs()
	started := make(chan error, 1)
	go p.run(started, told)
	err = <-started
	tells.Close()
	if err != nil {
		told.Close()
		return nil, fmt.Errorf("%s: %w", cfg.Binary, err)
	}
	go p.listen(told)
	return p, nil
}

// listen reads where the admin page is, which Envoy says in one write. It returns then, or when told is closed.
func (p *Process) listen(told io.ReadCloser) {
	defer told.Close()
	var text [256]byte
	n, _ := told.Read(text[:])
	if address := string(bytes.TrimSpace(text[:n])); address != "" {
		p.at.Store(&address)
	}
}

// run starts the process and waits for its end. It keeps its thread locked, because the system ends the child when the
// thread that started it ends, not when the process does.
func (p *Process) run(started chan<- error, told io.Closer) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	running.Store(p, true)
	started <- nil
	p.how = p.cmd.Wait()
	running.Delete(p)
	p.said.flush()
	told.Close()
	close(p.ended)
}

// running holds the processes that have not ended.
var running sync.Map

// KillAll kills every process that was started, and does not wait for their ends. It is for a program that ends at
// once on a system that does not end its children with it.
func KillAll() {
	running.Range(func(p, _ any) bool {
		_ = p.(*Process).cmd.Process.Kill() // fails for one that is gone
		return true
	})
}

// endsWithUs returns attributes by which the system ends a child whose parent was killed, where the system can
// (Linux), and keeps the terminal's signals from it. A system without these fields does neither.
func endsWithUs() *syscall.SysProcAttr {
	attributes := new(syscall.SysProcAttr)
	fields := reflect.ValueOf(attributes).Elem()
	if field := fields.FieldByName("Pdeathsig"); field.IsValid() {
		field.SetInt(int64(syscall.SIGKILL))
	}
	if field := fields.FieldByName("Setpgid"); field.IsValid() {
		field.SetBool(true)
	}
	return attributes
}

// ID returns the number by which the system knows the process.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Ended returns a channel that is closed once the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Gone reports whether the process is gone.
func (p *Process) Gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// How returns how the process ended, such as "signal: killed". It waits for the end.
func (p *Process) How() string {
	<-p.ended
	if p.how == nil {
		return "exit status 0"
	}
	return p.how.Error()
}

// LastLines returns the last lines of Envoy's log.
func (p *Process) LastLines() []string { return p.said.tail() }

// End sends SIGTERM, at which Envoy cuts its requests off, and kills the process after two seconds. It returns when
// the process is gone.
func (p *Process) End() {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err == nil {
		patience := time.NewTimer(endWithin)
		defer patience.Stop()
		select {
		case <-p.ended:
		case <-patience.C:
		}
	}
	p.Kill()
}

// Kill ends the process at once and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails for one that is gone
	<-p.ended
}

// admin returns the URL of the admin page. It returns false until Envoy has one.
func (p *Process) admin() (string, bool) {
	address := p.at.Load()
	if address == nil {
		return "", false
	}
	return "http://" + *address, true
}

// errGone says that there is no process to ask.
var errGone = errors.New("envoy has ended")

// await calls held every 20 ms until it is true, ctx is done, or the process is gone.
func (p *Process) await(ctx context.Context, held func() bool) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !held() {
		select {
		case <-look.C:
		case <-p.ended:
			return errGone
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
