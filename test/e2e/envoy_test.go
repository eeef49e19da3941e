package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	overrideHost = "../../deploy/envoy/override-host.yaml"
	originalDst  = "../../deploy/envoy/original-dst.yaml"

	overrideHostFull = "../../deploy/envoy/override-host-full.yaml"
	originalDstFull  = "../../deploy/envoy/original-dst-full.yaml"
)

// logField is the request header by which a test finds its request in Envoy's access log.
const logField = "x-e2e-request"

type envoy struct {
	*process
	url       string // of the listener
	admin     string
	accessLog string // path
}

// attempt is one line of the access log.
type attempt struct {
	Request string `json:"request"`
	Status  int    `json:"status"`
	Flags   string `json:"flags"`
	// every server that took a connection, in order; the last one alone before Envoy 1.38
	Hosts     string `json:"hosts"`
	Attempts  int    `json:"attempts"`
	SentBytes int    `json:"sent_bytes"`
}

// shipped are the servers that override-host.yaml lists.
const shipped = `        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 8001}}}
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 8002}}}
`

// printedBy are the flags with which envoy-config prints each shipped file.
var printedBy = map[string][]string{
	overrideHost: nil, overrideHostFull: {"--lane", "full"}, xdsLight: {"--cluster", "xds"},
	xdsFull:     {"--cluster", "xds", "--lane", "full"},
	originalDst: {"--cluster", "original-dst"}, originalDstFull: {"--cluster", "original-dst", "--lane", "full"},
}

// bootstrapText is a file as it is shipped; before an Envoy of another version, what envoy-config prints for that one.
func bootstrapText(t *testing.T, path string) string {
	t.Helper()
	flags, shipped := printedBy[path]
	if !shipped || envoyVersion == shippedVersion {
		return readFile(t, path)
	}
	return printed(t, append([]string{"--envoy-version", envoyVersion}, flags...)...)
}

// bootstrapFile is the path of such a text.
func bootstrapFile(t *testing.T, path string) string {
	t.Helper()
	if envoyVersion == shippedVersion {
		return path
	}
	file := filepath.Join(t.TempDir(), filepath.Base(path))
	writeFile(t, file, bootstrapText(t, path))
	return file
}

// startEnvoy runs a shipped bootstrap with nothing changed but its ports, and an access log added. Servers replace
// those that override-host.yaml lists; original-dst.yaml lists none. Changes may follow.
func startEnvoy(t *testing.T, bootstrap string, grpcPort int, servers []string, changes ...func(string) string) *envoy {
	t.Helper()
	folder := t.TempDir()
	e := &envoy{accessLog: filepath.Join(folder, "access.log")}
	text := bootstrapText(t, bootstrap)
	text = replaceOnce(t, text, "port_value: 8080", "port_value: 0")
	text = replaceOnce(t, text, "port_value: 19000", "port_value: 0")
	text = strings.ReplaceAll(text, "port_value: 9002", fmt.Sprintf("port_value: %d", grpcPort))
	if bootstrap == overrideHost || bootstrap == overrideHostFull {
		var list strings.Builder
		for _, server := range servers {
			host, port, err := net.SplitHostPort(server)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&list, "        - endpoint: {address: {socket_address: {address: %q, port_value: %s}}}\n", host,
				port)
		}
		text = replaceOnce(t, text, shipped, list.String())
	}
	text = addAccessLog(t, text, e.accessLog)
	for _, change := range changes {
		text = change(text)
	}
	config := filepath.Join(folder, "envoy.yaml")
	writeFile(t, config, text)
	e.run(t, config, folder)
	return e
}

// addAccessLog adds a log of the test's own to those that the bootstrap has.
func addAccessLog(t *testing.T, text, path string) string {
	t.Helper()
	const logs = "          access_log:\n"
	if strings.Contains(text, logs) {
		return replaceOnce(t, text, logs, logs+accessLogText(path))
	}
	const prefix = "          stat_prefix: llm\n"
	return replaceOnce(t, text, prefix, prefix+logs+accessLogText(path))
}

func accessLogText(path string) string {
	hosts := "UPSTREAM_HOSTS_ATTEMPTED"
	if !reportsServed() {
		hosts = "UPSTREAM_HOST" // the last one
	}
	return `          - name: envoy.access_loggers.file
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: ` + path + `
              log_format:
                json_format:
                  request: "%REQ(` + logField + `)%"
                  status: "%RESPONSE_CODE%"
                  flags: "%RESPONSE_FLAGS%"
                  hosts: "%` + hosts + `%"
                  attempts: "%UPSTREAM_REQUEST_ATTEMPT_COUNT%"
                  sent_bytes: "%UPSTREAM_WIRE_BYTES_SENT%"
`
}

// run starts Envoy with the file as it is and learns where it listens.
func (e *envoy) run(t *testing.T, config, folder string) {
	t.Helper()
	adminPath := filepath.Join(folder, "admin")
	e.process = start(t, "envoy", envoyPath, "-c", config, "--concurrency", "2", "--disable-hot-restart",
		"--admin-address-path", adminPath, "--drain-time-s", "1", "--file-flush-interval-msec", "200", "-l", "warning")
	eventually(t, 10*time.Second, "envoy is live", func() bool {
		if e.gone() {
			t.Fatalf("envoy ended: %v", e.result)
		}
		address, err := os.ReadFile(adminPath)
		if err != nil {
			return false
		}
		e.admin = "http://" + string(address)
		status, _ := get(e.admin + "/ready")
		return status == http.StatusOK
	})
	_, text := get(e.admin + "/listeners?format=json")
	var listeners struct {
		Statuses []struct {
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(text), &listeners); err != nil || len(listeners.Statuses) != 1 {
		t.Fatalf("envoy's listeners: %v in %q", err, text)
	}
	socket := listeners.Statuses[0].Local.Socket
	e.url = "http://" + net.JoinHostPort(socket.Address, strconv.Itoa(socket.Port))
}

// asksPicker waits until Envoy's health check has passed, so that picks count from the first request on.
func (e *envoy) asksPicker(t *testing.T) {
	t.Helper()
	eventually(t, 10*time.Second, "envoy holds the picker healthy", func() bool {
		return e.stat("cluster.epp.membership_healthy") == 1
	})
}

// stat reads one counter or gauge; one that does not exist is zero.
func (e *envoy) stat(name string) int {
	_, text := get(e.admin + "/stats?filter=^" + strings.ReplaceAll(name, ".", `\.`) + "$")
	_, value, ok := strings.Cut(text, ": ")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(value))
	if err != nil {
		return 0
	}
	return n
}

// attemptsOf waits until all of these requests are in the access log.
func (e *envoy) attemptsOf(t *testing.T, names []string) map[string]attempt {
	t.Helper()
	var found map[string]attempt
	eventually(t, 15*time.Second, fmt.Sprintf("%d requests in the access log", len(names)), func() bool {
		found = e.logged(t)
		return !slices.ContainsFunc(names, func(name string) bool { return found[name].Request == "" })
	})
	return found
}

// logged is the access log so far, by the request's own name. Envoy writes it every 200 ms.
func (e *envoy) logged(t *testing.T) map[string]attempt {
	t.Helper()
	found := map[string]attempt{}
	text, err := os.ReadFile(e.accessLog)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var a attempt
		if json.Unmarshal([]byte(line), &a) == nil && a.Request != "" {
			found[a.Request] = a
		}
	}
	return found
}

// stack is the usual trio: servers, picker, Envoy in front, ready to pick.
type stack struct {
	servers []string
	picker  *picker
	envoy   *envoy
	client  *client
}

// startStack puts Envoy and Signalbox before two servers that list themselves in override-host.yaml.
func startStack(t *testing.T, servers []string, flags ...string) *stack {
	t.Helper()
	return startStackWith(t, overrideHost, servers, flags...)
}

func startStackWith(t *testing.T, bootstrap string, servers []string, flags ...string) *stack {
	t.Helper()
	return startStackBy(t, bootstrap, servers, flags)
}

// startStackBy changes the bootstrap.
func startStackBy(t *testing.T, bootstrap string, servers, flags []string, changes ...func(string) string) *stack {
	t.Helper()
	s := &stack{servers: servers}
	s.picker = serve(t, servers, flags...)
	s.picker.pooled(t, len(servers))
	s.envoy = startEnvoy(t, bootstrap, s.picker.grpcPort, servers, changes...)
	s.envoy.asksPicker(t)
	s.client = newClient(s.envoy.url)
	t.Cleanup(s.client.close)
	return s
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func replaceOnce(t *testing.T, text, old, replacement string) string {
	t.Helper()
	if n := strings.Count(text, old); n != 1 {
		t.Fatalf("%q stands %d times in the bootstrap, want once", old, n)
	}
	return strings.Replace(text, old, replacement, 1)
}
