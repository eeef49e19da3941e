package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// findEnvoy returns the binary that $ENVOY names, or that of `make envoy` or of PATH. A test without one is left out.
func findEnvoy(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("ENVOY"); path != "" {
		return path
	}
	if path, err := filepath.Abs("../../.envoy/envoy"); err == nil {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	path, err := exec.LookPath("envoy")
	if err != nil {
		t.Skip("*** NO ENVOY: this test is left out. `make envoy` fetches one. ***") //nolint:forbidigo // said aloud
	}
	return path
}

// envoy is an Envoy that runs.
type envoy struct {
	t     *testing.T
	url   string // of the listener
	admin string // URL
}

// startEnvoy runs what envoy-config prints for flags. It ends with the test.
func startEnvoy(t *testing.T, flags ...string) *envoy {
	t.Helper()
	path, folder := findEnvoy(t), t.TempDir()
	printed, err := exec.CommandContext(t.Context(), signalbox, append([]string{
		"envoy-config", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
	}, flags...)...).Output()
	if err != nil {
		t.Fatalf("envoy-config: %v", err)
	}
	config, adminPath := filepath.Join(folder, "envoy.yaml"), filepath.Join(folder, "admin")
	if err := os.WriteFile(config, printed, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-c", config, "--concurrency", "2", "--disable-hot-restart", "--admin-address-path",
		adminPath, "--drain-time-s", "1", "-l", "warning")
	log := &bytes.Buffer{} // read once the process has ended
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it is killed
		if t.Failed() {
			t.Logf("envoy:\n%s", log.Bytes()[max(0, log.Len()-4000):])
		}
	})
	e := &envoy{t: t}
	eventually(t, "envoy is live", func() bool {
		address, err := os.ReadFile(adminPath)
		e.admin = "http://" + string(address)
		return err == nil && e.get("/ready") == "LIVE\n"
	})
	var page struct {
		Listeners []struct {
			Local struct {
				Socket struct {
					Port int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(e.get("/listeners?format=json")), &page); err != nil || len(page.Listeners) != 1 {
		t.Fatalf("envoy's listeners: %v, %+v", err, page)
	}
	e.url = fmt.Sprintf("http://127.0.0.1:%d", page.Listeners[0].Local.Socket.Port)
	return e
}

// get returns a page of Envoy's admin port, or nothing.
func (e *envoy) get(path string) string {
	response, err := http.Get(e.admin + path)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return string(text)
}

// stat returns a counter or a gauge; one that does not exist is 0.
func (e *envoy) stat(name string) int {
	_, value, _ := strings.Cut(e.get("/stats?filter=^"+strings.ReplaceAll(name, ".", `\.`)+"$"), ": ")
	n, _ := strconv.Atoi(strings.TrimSpace(value))
	return n
}

// holds waits until that many pickers are healthy to Envoy.
func (e *envoy) holds(healthy int) {
	e.t.Helper()
	eventually(e.t, fmt.Sprintf("envoy holds %d pickers healthy", healthy), func() bool {
		return e.stat("cluster.epp.membership_healthy") == healthy
	})
}

// startServers starts simulated model servers, and returns their ports of 127.0.0.1.
func startServers(t *testing.T, count int) (ports []int) {
	t.Helper()
	addresses, _ := startSim(t, count, "--port", "0")
	for _, address := range addresses {
		_, port, _ := net.SplitHostPort(address)
		n, err := strconv.Atoi(port)
		if err != nil {
			t.Fatalf("%q: %v", address, err)
		}
		ports = append(ports, n)
	}
	return ports
}

// startSim starts a process of simulated model servers, which take 50 ms for an answer. It ends with the test, or when
// it is killed.
func startSim(t *testing.T, count int, flags ...string) (addresses []string, kill func()) {
	t.Helper()
	cmd := exec.Command(signalbox, append([]string{
		"sim", "--count", strconv.Itoa(count), "--decode-rate", "200", "--prefill-rate", "1000000",
		"--max-num-seqs", "256",
	}, flags...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log, ended := &lines{}, make(chan struct{})
	go func() {
		log.follow(stdout)
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	kill = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	t.Cleanup(kill)
	eventually(t, "the model servers listen", func() bool {
		return strings.Count(log.String(), "listening ") == count
	})
	for line := range strings.Lines(log.String()) {
		if _, address, listens := strings.Cut(strings.TrimSpace(line), "listening "); listens {
			addresses = append(addresses, address)
		}
	}
	return addresses, kill
}

// answer is what a client got for a request.
type answer struct {
	sent, ended time.Time
	picked      bool   // by a picker; else Envoy chose the server
	server      string // address of the one that answered
	err         error  // nil if it came whole
}

// load is a number of clients, each of which asks again once it has its answer, or a moment after a failure.
type load struct {
	stopped chan struct{}
	ended   sync.WaitGroup
	machine *lateness.Watch

	mu      sync.Mutex
	answers []answer
}

func (e *envoy) startLoad(clients int) *load { return startLoad(e.t, e.url, clients) }

func startLoad(t *testing.T, url string, clients int) *load {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	l := &load{stopped: make(chan struct{}), machine: lateness.Begin()}
	for i := range clients {
		l.ended.Go(func() { l.play(&http.Client{Transport: transport, Timeout: patience}, url, i) })
	}
	t.Cleanup(transport.CloseIdleConnections)
	return l
}

func (l *load) play(c *http.Client, url string, client int) {
	for n := 0; ; n++ {
		select {
		case <-l.stopped:
			return
		default:
		}
		a := ask(c, url, fmt.Sprintf("client %d, question %d", client, n))
		l.mu.Lock()
		l.answers = append(l.answers, a)
		l.mu.Unlock()
		if a.err != nil { // a moment of its own, or those that fail together come again together
			<-time.After(time.Duration(50+10*client) * time.Millisecond)
		}
	}
}

// ask has a streamed answer of ten tokens sent. The header is of names and values.
func ask(c *http.Client, url, prompt string, header ...string) (a answer) {
	a.sent = time.Now()
	defer func() { a.ended = time.Now() }()
	body := fmt.Sprintf(`{"model":"sim-model","prompt":%q,"max_tokens":10,"stream":true}`, prompt)
	request, err := http.NewRequest(http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		a.err = err
		return a
	}
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := c.Do(request)
	if err != nil {
		a.err = err
		return a
	}
	defer response.Body.Close()
	a.picked = response.Header.Get("x-signalbox-request-id") != ""
	a.server = response.Header.Get("x-served-by")
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		a.err = err
	case response.StatusCode != http.StatusOK:
		a.err = fmt.Errorf("status %d: %.200s", response.StatusCode, text)
	case !strings.HasSuffix(string(text), "data: [DONE]\n\n"):
		a.err = errors.New("cut short without a word")
	}
	return a
}

// picks returns how many answers came whole from a server that a picker chose.
func (l *load) picks() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.answers {
		if a.picked && a.err == nil {
			n++
		}
	}
	return n
}

// goesOn waits until that many more answers came of picks.
func (l *load) goesOn(t *testing.T, n int) {
	t.Helper()
	before := l.picks()
	eventually(t, "picks go on", func() bool { return l.picks() >= before+n })
}

// shown is what clients saw of a fault.
type shown struct {
	lost     int           // failed of those that were sent before it
	failed   int           // failed of those that were sent after it
	noticing int           // of those, sent before a machine that is late can have noticed it
	gap      time.Duration // the longest time after it in which no answer came whole
	unpicked time.Duration // the longest time after it in which none came of a pick
	late     time.Duration // by which the machine was late at most
}

// stop ends the load, and prints what clients saw of a fault.
func (l *load) stop(t *testing.T, fault string, at time.Time) (s shown) {
	t.Helper()
	close(l.stopped)
	l.ended.Wait()
	slices.SortFunc(l.answers, func(a, b answer) int { return a.ended.Compare(b.ended) })
	_, s.late = l.machine.End()
	whole, picked, sent := at, at, [2]int{}
	for _, a := range l.answers {
		late := a.sent.After(at)
		switch {
		case a.err != nil && late:
			s.failed++
			if a.sent.Sub(at) < 2*s.late {
				s.noticing++
			}
			t.Logf("failed %v after it: %v", a.sent.Sub(at).Round(time.Millisecond), a.err)
		case a.err != nil:
			s.lost++
		case a.ended.After(at):
			s.gap, whole = max(s.gap, a.ended.Sub(whole)), a.ended
			if a.picked {
				s.unpicked, picked = max(s.unpicked, a.ended.Sub(picked)), a.ended
			}
		}
		if late {
			sent[1]++
		} else {
			sent[0]++
		}
	}
	t.Logf("FIGURES | %s | sent before: %d, failed: %d | sent after: %d, failed: %d | longest without an answer %v | "+
		"without a pick %v |", fault, sent[0], s.lost, sent[1], s.failed, s.gap.Round(time.Millisecond),
		s.unpicked.Round(time.Millisecond))
	return s
}
