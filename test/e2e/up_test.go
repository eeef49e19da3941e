package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// together is a `signalbox up` on free ports.
type together struct {
	*process
	curl    string // the line that it prints
	url     string // in it
	metrics string
}

// anyPorts has up take free ports.
var anyPorts = []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--grpc-port", "0", "--grpc-health-port",
	"0", "--metrics-port", "0"}

// startUp starts it and waits until it offers a line to ask by.
func startUp(t *testing.T, args ...string) *together {
	t.Helper()
	t.Setenv("ENVOY", envoyPath)
	u := &together{process: start(t, "up", binary, append(append([]string{"up"}, anyPorts...), args...)...)}
	u.offered(t)
	return u
}

func (u *together) offered(t *testing.T) {
	t.Helper()
	u.curl = "curl " + u.linesAfter(t, "  curl ", 1, 20*time.Second)[0]
	address, path, ok := strings.Cut(strings.TrimPrefix(u.curl, "curl -i http://"), "/")
	if !ok || !strings.HasPrefix(path, "v1/chat/completions ") {
		t.Fatalf("no address in %q", u.curl)
	}
	u.url = "http://" + address
	_, u.metrics, _ = strings.Cut(u.linesAfter(t, "  "+binary+" explain --last", 1, time.Second)[0], "--addr ")
}

// envoyIDs are the processes of the Envoys that have served so far; it waits for n of them.
func (u *together) envoyIDs(t *testing.T, n int) []int {
	t.Helper()
	var ids []int
	serves := regexp.MustCompile(`Envoy \(process (\d+)\) serves`)
	eventually(t, 20*time.Second, fmt.Sprintf("%d Envoys have served", n), func() bool {
		ids = nil
		for _, m := range serves.FindAllStringSubmatch(u.log.text(), -1) {
			id, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return len(ids) >= n
	})
	return ids
}

// asks runs the printed line in a shell, as its reader would.
func (u *together) asks(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", u.curl+" --silent --show-error --max-time 20").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return string(out)
}

// answering asks for an answer of so many tokens, and returns once a server is at it. Of the first request of an Envoy
// the picker may not count that it runs: it does not know yet that it will be told of the end.
func (u *together) answering(t *testing.T, c *client, tokens int) <-chan answer {
	t.Helper()
	answers := make(chan answer, 1)
	go func() {
		answers <- c.do(context.Background(), http.MethodPost, "/v1/chat/completions",
			chatBody("sim-model", "A long story.", tokens, true), nil)
	}()
	eventually(t, 5*time.Second, "an answer runs", func() bool {
		select {
		case a := <-answers:
			t.Fatalf("it has ended: %s", a.String())
		default:
		}
		running := 0.0
		for _, server := range regexp.MustCompile(`(?m)^server (\S+): `).FindAllStringSubmatch(u.log.text(), -1) {
			running += seriesSum("http://"+server[1]+"/metrics", "vllm:num_requests_running")
		}
		return running == 1
	})
	return answers
}

var answered = regexp.MustCompile(`(?s)^HTTP/1\.1 200 OK\r\n.*\nx-signalbox-request-id: (\S+)\r\n.*"chat\.completion"`)

func goneSoon(t *testing.T, id int) {
	t.Helper()
	eventually(t, 5*time.Second, fmt.Sprintf("process %d is gone", id), func() bool {
		return syscall.Kill(id, 0) != nil
	})
}

// TestEnvoyUp is the whole of it: the printed line works, also after Envoy was killed,
// and at Ctrl-C an answer that runs is finished.
func TestEnvoyUp(t *testing.T) {
	u := startUp(t, "--sim", "2")
	m := answered.FindStringSubmatch(u.asks(t))
	if m == nil {
		t.Fatalf("%s\ngave %s", u.curl, u.asks(t))
	}
	explained, err := exec.Command(binary, "explain", m[1], "--addr", u.metrics).CombinedOutput()
	if err != nil || !strings.Contains(string(explained), "sim-model") {
		t.Errorf("explain %s: %v\n%s", m[1], err, explained)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(u.log.text()), "\n") {
		if strings.HasPrefix(line, "server ") &&
			!strings.HasSuffix(line, ": vllm, model sim-model, metrics can be read") {
			t.Errorf("of a server: %q", line)
		}
	}
	first := u.envoyIDs(t, 1)[0]
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := u.envoyIDs(t, 2)[1]
	if again := u.asks(t); !answered.MatchString(again) {
		t.Errorf("after Envoy was killed: %s", again)
	}
	c := newClient(u.url)
	t.Cleanup(c.close)
	answers := u.answering(t, c, 100)
	u.signal(t, syscall.SIGINT)
	if a := <-answers; !a.whole() || len(a.events) < 100 {
		t.Errorf("the answer that ran at Ctrl-C: %s", a.String())
	}
	if code := u.exitCode(t, 10*time.Second); code != 0 {
		t.Errorf("exit status %d", code)
	}
	goneSoon(t, second)
	if text := u.log.text(); !strings.HasSuffix(text, "\nEnded.\n") || strings.Contains(text, " cut") {
		t.Errorf("it ends with %q", tail(text, 5))
	}
}

// TestEnvoyUpRefusesWhatComesInItsEnd: while an answer runs on, no other connection is taken,
// and one that was open is closed.
func TestEnvoyUpRefusesWhatComesInItsEnd(t *testing.T) {
	u := startUp(t, "--sim", "1")
	c := newClient(u.url)
	t.Cleanup(c.close)
	answers := u.answering(t, c, 100)
	u.signal(t, syscall.SIGTERM)
	eventually(t, 5*time.Second, "connections are refused", func() bool {
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(u.url, "http://"), time.Second)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	if a := <-answers; !a.whole() {
		t.Error(a.String())
	}
	if code := u.exitCode(t, 10*time.Second); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// TestEnvoyUpCutsAtTheTimeout, and says so.
func TestEnvoyUpCutsAtTheTimeout(t *testing.T) {
	u := startUp(t, "--sim", "1", "--drain-timeout", "500ms")
	c := newClient(u.url)
	t.Cleanup(c.close)
	answers := u.answering(t, c, 2000)
	u.signal(t, syscall.SIGINT)
	if code := u.exitCode(t, 10*time.Second); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if a := <-answers; a.err == nil {
		t.Errorf("an answer of 40 s ended well: %s", a.String())
	}
	if !strings.Contains(u.log.text(), "1 request is cut: --drain-timeout has passed") {
		t.Error("it does not say that a request was cut")
	}
}

// TestEnvoyUpTakesEnvoyAlong however it ends: at once by a second signal, or killed.
func TestEnvoyUpTakesEnvoyAlong(t *testing.T) {
	u := startUp(t, "--sim", "1")
	c := newClient(u.url)
	t.Cleanup(c.close)
	u.answering(t, c, 2000)
	id := u.envoyIDs(t, 1)[0]
	u.signal(t, syscall.SIGINT)
	u.linesAfter(t, "Ending", 1, 5*time.Second)
	first := time.Now()
	eventually(t, 5*time.Second, "a second signal counts",
		func() bool { return time.Since(first) > 700*time.Millisecond })
	u.signal(t, syscall.SIGINT)
	if code := u.exitCode(t, 5*time.Second); code != 128+int(syscall.SIGINT) {
		t.Errorf("exit status %d", code)
	}
	goneSoon(t, id)

	u = startUp(t, "--sim", "1")
	id = u.envoyIDs(t, 1)[0]
	u.kill()
	goneSoon(t, id)
}

// TestEnvoyUpFollowsItsFile: servers may come and go, and one that is not there yet is asked until it is.
func TestEnvoyUpFollowsItsFile(t *testing.T) {
	t.Setenv("ENVOY", envoyPath)
	port := strconv.Itoa(freePorts(t, 1)[0])
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	writeFile(t, file, endpointsFile(t, []string{"127.0.0.1:" + port}))
	u := &together{process: start(t, "up", binary, append([]string{"up", "--endpoints", file}, anyPorts...)...)}
	u.linesAfter(t, "server server-"+port+" (127.0.0.1:"+port+"): not there yet: connection refused", 1, 10*time.Second)
	_, first := simulatedProcess(t, 1, append(quick, "--port", port)...)
	u.offered(t)
	if got := u.asks(t); !answered.MatchString(got) {
		t.Errorf("once the server is there: %s", got)
	}
	second := simulated(t, 1, quick...)
	writeFile(t, file, endpointsFile(t, second))
	u.linesAfter(t, "server server-"+port+" (127.0.0.1:"+port+"): left the endpoints", 1, 10*time.Second)
	before := served(first[0])
	for range 5 {
		if got := u.asks(t); !answered.MatchString(got) {
			t.Errorf("of the other server: %s", got)
		}
	}
	if served(first[0]) != before || served(second[0]) != 5 {
		t.Errorf("the server that left finished %d, the other %d of 5", served(first[0])-before, served(second[0]))
	}
}

// TestEnvoyUpTakesNames: what it resolves is where Envoy goes, in both families of addresses.
func TestEnvoyUpTakesNames(t *testing.T) {
	four := simulated(t, 1, quick...)[0]
	six := simulated(t, 1, append(quick, "--bind", "::1")...)[0]
	_, port, err := net.SplitHostPort(four)
	if err != nil {
		t.Fatal(err)
	}
	u := startUp(t, "localhost:"+port, six, "--listen", "[::1]:0", "--admin", "[::1]:0", "--bind", "::1")
	u.linesAfter(t, "server "+six+": vllm, model "+model, 1, 5*time.Second)
	eventually(t, 20*time.Second, "both servers have answered", func() bool {
		if got := u.asks(t); !answered.MatchString(got) {
			t.Fatal(got)
		}
		return served(four) > 0 && served(six) > 0
	})
}

// TestCommandUpRefuses: what cannot work is named with its flag, before anything starts.
func TestCommandUpRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	folder := t.TempDir()
	port := taken.Addr().String()[len("127.0.0.1:"):]
	fake := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	version := `[ "$1" = --version ] && echo "envoy  version: 0/%s/Clean/RELEASE/BoringSSL" && exit 0`
	old, dies := fake("old", fmt.Sprintf(version, "1.35.9")),
		fake("dies", fmt.Sprintf(version, "1.40.0")+"\necho no luck; exit 7")
	cases := map[string]struct {
		envoy string
		args  []string
		names []string
	}{
		"all ports": {dies, []string{"--sim", "1", "--listen", "127.0.0.1:" + port, "--admin", "127.0.0.1:" + port,
			"--grpc-port", port, "--metrics-port", "0", "--grpc-health-port", "0"},
			[]string{"--listen: ", "--admin: ", "--grpc-port: ", "in use"}},
		"port of ours": {dies, append([]string{"--sim", "1", "--metrics-port", port}, "--listen", "127.0.0.1:0",
			"--admin", "127.0.0.1:0", "--grpc-port", "0", "--grpc-health-port", "0"),
			[]string{"--metrics-port: ", "in use"}},
		"no Envoy": {filepath.Join(folder, "absent"), append([]string{"--sim", "1"}, anyPorts...),
			[]string{"$ENVOY", "absent"}},
		"an old one": {old, append([]string{"--sim", "1"}, anyPorts...),
			[]string{old, "got 1.35, want 1.36 or newer", "make envoy"}},
		"one that dies": {dies, append([]string{"--sim", "1"}, anyPorts...),
			[]string{"ended 5 times within 5s of its start", "exit status 7", "  no luck"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("ENVOY", c.envoy)
			p := start(t, "up", binary, append([]string{"up"}, c.args...)...)
			if code := p.exitCode(t, 20*time.Second); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			if text := p.log.text(); !containsAll(text, c.names) || strings.Contains(text, "goroutine ") {
				t.Errorf("want all of %q, and no stack, in\n%s", c.names, text)
			}
		})
	}
}
