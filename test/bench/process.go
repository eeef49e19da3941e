package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// mallocsSeries is how many objects a process has allocated.
const mallocsSeries = "go_memstats_mallocs_total"

// process is a server under load, in a process of its own.
type process struct {
	cmd     *exec.Cmd
	log     bytes.Buffer
	address string // of ext_proc
	metrics string // address of its metrics page
	ended   chan error
}

// launch starts a server on some cores and waits until its port answers.
func launch(cores, address, metrics string, command ...string) (*process, error) {
	p := &process{address: address, metrics: metrics, ended: make(chan error, 1)}
	p.cmd = exec.Command("taskset", append([]string{"-c", cores}, command...)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("taskset: %w", err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	for look := time.NewTicker(20 * time.Millisecond); ; {
		if c, err := net.Dial("tcp", address); err == nil {
			look.Stop()
			return p, c.Close()
		}
		select {
		case <-look.C:
		case err := <-p.ended:
			return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(command[0]), err, p.log.String())
		case <-deadline.C:
			return nil, errors.Join(fmt.Errorf("%s does not listen on %s", command[0], address), p.stop())
		}
	}
}

// stop ends the process and waits for it.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	kill := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	<-p.ended
	return nil
}

// cpu is what all threads of the process have run. Threads of Go programs do not end by themselves.
func (p *process) cpu() (time.Duration, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil || len(tasks) == 0 {
		return 0, fmt.Errorf("no schedstat of process %d: %w", p.cmd.Process.Pid, err)
	}
	var sum time.Duration
	for _, t := range tasks {
		b, err := os.ReadFile(t)
		if err != nil {
			return 0, err
		}
		ran, _, _ := strings.Cut(string(b), " ")
		n, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n)
	}
	return sum, nil
}

// rss is the memory of the process, in bytes.
func (p *process) rss() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("no VmRSS")
}

// series reads one value of the process's metrics page.
func (p *process) series(name string) (float64, error) {
	answer, err := http.Get("http://" + p.metrics + "/metrics")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			_, _ = io.Copy(io.Discard, answer.Body) // read to its end, the connection can be used again
			return strconv.ParseFloat(rest, 64)
		}
	}
	return 0, fmt.Errorf("no series %s on the page of %s", name, p.metrics)
}

// freePorts are ports on which nothing listens at this moment.
func freePorts(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out = append(out, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return out, nil
}

// lab is what the servers under load are made of.
type lab struct {
	folder    string // for files, removed at the end
	self      string // this program
	signalbox string // the binary
	endpoints *endpoints
	running   []*process
}

func (l *lab) floor(cores string, tuned bool) (*process, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	address, metrics := "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	return l.keep(launch(cores, address, metrics, l.self, "-floor", address, "-floor-metrics", metrics, "-tuned="+
		strconv.FormatBool(tuned)))
}

// box starts Signalbox with a pool of n endpoints, as a user would, but for TLS.
func (l *lab) box(cores string, n int, more ...string) (*process, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(l.folder, fmt.Sprintf("endpoints-%d.yaml", n))
	if err := os.WriteFile(file, []byte(l.endpoints.file(n)), 0o600); err != nil {
		return nil, err
	}
	command := append([]string{
		l.signalbox, "serve", "--endpoints", file, "--secure-serving=false", "--grpc-port", ports[0],
		"--grpc-health-port", ports[1],
		"--metrics-port", ports[2], "--drain-delay", "0s", "--drain-timeout", "2s",
	}, more...)
	return l.keep(launch(cores, "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[2], command...))
}

func (l *lab) keep(p *process, err error) (*process, error) {
	if err == nil {
		l.running = append(l.running, p)
	}
	return p, err
}

// clear ends all servers.
func (l *lab) clear() error {
	var all []error
	for _, p := range l.running {
		all = append(all, p.stop())
	}
	l.running = nil
	return errors.Join(all...)
}

// pin puts this process on some cores, with as many threads of Go code.
func pin(ctx context.Context, cores string) error {
	out, err := exec.CommandContext(ctx, "taskset", "-a", "-p", "-c", cores, strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("taskset: %w: %s", err, out)
	}
	return nil
}
