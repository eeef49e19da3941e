package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestEveryProblemOfUpIsSaidAtOnce(t *testing.T) {
	const want = ", want HOST:PORT, such as 127.0.0.1:8001, [::1]:8001 or gpu-1:8000"
	const place = ", want an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080"
	for args, problems := range map[string][]string{
		"up":                   strings.Split(noServers, "\n"),
		"up a:1 --sim 2":       {"model servers: got HOST:PORT and --sim, want one of them"},
		"up a:1 --endpoints f": {"model servers: got HOST:PORT and --endpoints, want one of them"},
		"up --endpoints f --sim 0": {"model servers: got --endpoints and --sim, want one of them",
			"--sim: got 0, want 1 to 64"},
		"up a:1 b:2 a:1":              {"a:1 is given twice"},
		"up http://127.0.0.1:8001/v1": {`got "http://127.0.0.1:8001/v1"` + want + "; leave out http:// and any path"},
		"up endpoints.yaml": {`got "endpoints.yaml"` + want +
			"; a file of servers is named with --endpoints endpoints.yaml"},
		"up 127.0.0.1 ::1 gpu": {`got "127.0.0.1"` + want + "; the port is missing", `got "::1"` + want +
			"; the port is missing", `got "gpu"` + want + "; the port is missing"},
		"up a:0 a:65536 a:x 1.2.3:80 :80 ::1:80 0.0.0.0:1": {`got "a:0"` + want, `got "a:65536"` + want, `got "a:x"` +
			want, `got "1.2.3:80"` + want, `got ":80"` + want,
			`got "::1:80"` + want + "; the port is missing", `got "0.0.0.0:1"` + want},
		"up a:1 --xds-listen :80":        {"--xds-listen: want --listen in its place"},
		"up a:1 --listen 80 --admin x:1": {`--listen: got "80", want host:port`, `--admin: got "x:1"` + place},
		"up a:1 --listen x:1 --advertise a/b": {`--listen: got "x:1"` + place,
			`--advertise: got "a/b", want an IP address or a host name, without a port`},
		"up a:1 --listen 80 --bind 0.0.0.0 --advertise ::": {`--listen: got "80", want host:port`,
			"--advertise: got ::, want the address or name by which Envoy reaches Signalbox"},
		"up a:1 --shards 0 --drain-delay=1m": {"--shards: got 0, want 1 to 1024",
			"--drain-delay: got 1m0s, want 30s, which is --drain-timeout, or less"},
	} {
		c := newRoot()
		c.SetArgs(strings.Fields(args))
		c.SetOut(io.Discard)
		err := c.ExecuteContext(t.Context())
		if err == nil {
			t.Errorf("signalbox %s is taken", args)
			continue
		}
		if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, problems) {
			t.Errorf("signalbox %s:\n got %q\nwant %q", args, got, problems)
		}
	}
}

func TestServersAreTakenAsArguments(t *testing.T) {
	for _, s := range []string{"127.0.0.1:8001", "[::1]:8001", "gpu-1:8000", "gpu_1.rack.example.:65535",
		"localhost:1"} {
		if err := checkServer(s); err != nil {
			t.Error(err)
		}
	}
}

func TestDescriptionOfAServer(t *testing.T) {
	many := strings.Fields("a b c d e f g")
	for want, f := range map[string]modelserver.Found{
		"vllm, model tiny, metrics can be read":                  {Engine: "vllm", Models: []string{"tiny"}},
		"vllm, models a b, metrics can be read":                  {Engine: "vllm", Models: many[:2]},
		"vllm, models a b c d e and 2 more, metrics can be read": {Engine: "vllm", Models: many},
		"no model, metrics can be read":                          {},
		"not there yet: connection refused": {
			NoMetrics: "dial tcp 127.0.0.1:1: connect: connection refused",
			NoModels:  "dial tcp 127.0.0.1:1: connect: connection refused",
		},
		"model x\\x1b[2J, its metrics cannot be read (status 404): it gets requests only while no other server can " +
			"be chosen": {
			Models: []string{"x\x1b[2J"}, NoMetrics: "status 404",
		},
		"vllm, metrics can be read, its model list cannot be read (timeout)": {Engine: "vllm", NoModels: "timeout"},
	} {
		if got := describeServer(f, false); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// A model's name is the server's: what it says is neither the shell's nor the terminal's to carry out.
func TestTheCurlLineIsOneArgumentForAnyName(t *testing.T) {
	for _, model := range []string{"tiny", "Qwen/Qwen3-8B", `it's "quoted" \ $(id) ` + "`id`", "\x1b[2J\n\u009b",
		"日本語 🚂"} {
		line := curl("http://127.0.0.1:8080", model)
		for _, r := range line {
			if r < ' ' || r > '~' {
				t.Errorf("%q has %q in it", line, r)
			}
		}
		said, err := exec.Command("sh", "-c", "curl() { printf '%s\\n' \"$@\"; }; "+line).Output()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		args := strings.Split(strings.TrimSpace(string(said)), "\n")
		if len(args) != 6 || args[1] != "http://127.0.0.1:8080/v1/chat/completions" {
			t.Fatalf("%s: %q", line, args)
		}
		var body struct{ Model string }
		if err := json.Unmarshal([]byte(args[5]), &body); err != nil || body.Model != model {
			t.Errorf("%v: the body names model %q, want %q", err, body.Model, model)
		}
	}
}

func TestTheStatusNamesServers(t *testing.T) {
	well := admin.EndpointView{Name: "a", Scraped: true, Sample: &admin.SampleView{}, InflightRequests: 2}
	failing, fresh, ejected := well, well, well
	failing.Failing, fresh.Sample, ejected.Outlier = true, nil, &admin.OutlierView{State: "ejected"}
	for want, servers := range map[string][]admin.EndpointView{
		"requests 7, failed 1, in flight 0 | no servers":                   nil,
		"requests 7, failed 1, in flight 4 | a healthy | a cannot be read": {well, failing},
		"requests 7, failed 1, in flight 4 | a not read yet | a ejected":   {fresh, ejected},
		"requests 7, failed 1, in flight 12 | 4 of 6 servers healthy | a ejected | a cannot be read": {well, well,
			ejected, well, failing, well},
	} {
		if got := statusOf(7, 1, 0, servers); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if got := statusOf(7, 1, 2, nil); got != "requests 7, failed 1, left by clients 2, in flight 0 | no servers" {
		t.Errorf("with clients that left: got %s", got)
	}
}

// What a client did wrong, or left, is no failure of what up runs.
func TestTheStatusCountsFailuresOfServersAndOurs(t *testing.T) {
	errors := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errors"}, []string{"model_name", "error_code"})
	for code, want := range map[string]float64{
		"400": 0, "404": 0, "413": 0, "499": 0, messages.InvalidRequest.String(): 0, messages.BodyTooLarge.String(): 0,
		messages.BodyTimeout.String(): 0,
		messages.ClientGone.String():  0, "429": 1, "500": 1, "503": 1, "599": 1, messages.NoEndpoints.String(): 1,
		messages.NoCapacity.String(): 1,
		messages.TTLExpired.String(): 1, messages.PickTimeout.String(): 1, messages.ResponseIdle.String(): 1,
		messages.RequestTimeout.String(): 1,
		messages.Overloaded.String():     1, messages.ShuttingDown.String(): 1, messages.Unsupported.String(): 1,
		messages.Internal.String():   1,
		messages.ServerGone.String(): 1, "other": 1,
	} {
		errors.Reset()
		errors.WithLabelValues("a", code).Inc()
		errors.WithLabelValues("b", code).Inc()
		if got := sum(errors, notByClients); got != 2*want {
			t.Errorf("two of %s: %v are counted, want %v", code, got, 2*want)
		}
	}
}

func TestConsoleDrawsOverItsStatus(t *testing.T) {
	var b bytes.Buffer
	c := &console{out: &b, width: func() int { return 12 }}
	for _, step := range []struct {
		act  func()
		want string
	}{
		{func() { c.say("one %d", 1) }, "\r\x1b[Kone 1\n"},
		{func() { c.show("requests 10, more", false) }, "\r\x1b[Krequests…"},
		{func() { c.say("two") }, "\r\x1b[Ktwo\nrequests…"},
		{func() { c.clear() }, "\r\x1b[K"},
		{func() { c.say("end") }, "\r\x1b[Kend\n"},
	} {
		b.Reset()
		if step.act(); b.String() != step.want {
			t.Errorf("got %q, want %q", b.String(), step.want)
		}
	}
	b.Reset()
	plain := newConsole(&b) // a buffer is no terminal
	plain.show("first", false)
	plain.show("soon after", false)
	plain.show("urgent", true)
	plain.show("urgent", true)
	plain.say("line")
	plain.clear()
	if want := "first\nurgent\nline\n"; b.String() != want {
		t.Errorf("plain: got %q, want %q", b.String(), want)
	}
}

func TestEnvoysLinesAreFew(t *testing.T) {
	var said []string
	l := &envoyLines{say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
	l.line("warning, main: There is no configured limit to the number of allowed active downstream connections. " +
		"Configure")
	for range linesOfASpan + 5 {
		l.line("again\x07")
	}
	if len(said) != linesOfASpan || said[0] != `envoy: again\a` {
		t.Errorf("said %d lines, the first %q; want %d", len(said), said[0], linesOfASpan)
	}
	l.since = time.Now().Add(-spanOfLines)
	l.line("later")
	if rest := said[linesOfASpan:]; !slices.Equal(rest, []string{"envoy: 5 lines left out", "envoy: later"}) {
		t.Errorf("after the span: said %q, want what was left out and the new line", rest)
	}
	l.ended.Store(true)
	l.line("caught SIGTERM")
	if len(said) != linesOfASpan+2 {
		t.Errorf("once Envoy was asked to end: said %q, want nothing", said[len(said)-1])
	}
}

// halfServer answers as a vLLM does, or 503 while it is broken, and counts the lists of models that it gave.
func halfServer(t *testing.T, broken *atomic.Bool, lists *atomic.Int64) messages.Address {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case broken.Load():
			http.Error(w, "no", http.StatusServiceUnavailable)
		case r.URL.Path == "/metrics":
			fmt.Fprint(w, "vllm:num_requests_running 0\n")
		default:
			lists.Add(1)
			fmt.Fprint(w, `{"data":[{"id":"tiny"}]}`)
		}
	}))
	t.Cleanup(server.Close)
	return messages.Address(server.Listener.Addr().String())
}

func scraped(e *endpoints.Endpoint, failed bool) {
	if w := (endpoints.SampleWriter{Endpoint: e}); failed {
		w.ScrapeFailed()
	} else {
		w.SampleInForce(w.BeginScrape())
	}
}

// TestServersAreLookedAtUntilTheyAreWell, and again when their metrics fail.
func TestServersAreLookedAtUntilTheyAreWell(t *testing.T) {
	var broken atomic.Bool
	var lists atomic.Int64
	address := halfServer(t, &broken, &lists)
	fetcher, err := modelserver.NewFetcher(modelserver.Config{
		Pages: modelserver.Pages{Attributes: load},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer fetcher.Close()
	pool := endpoints.NewPublished()
	e := endpoints.New(messages.EndpointID{Slot: 1, Generation: 1}, messages.EndpointSpec{Name: "a", Address: address})
	endpoints.Publisher{Published: pool}.Publish(endpoints.NewSnapshot(1, []*endpoints.Endpoint{e}), nil)
	var said, models []string
	w := &serverWatch{fetcher: fetcher, pool: pool, seen: map[messages.EndpointID]*watched{},
		say:   func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) },
		model: func(name string) { models = append(models, name) },
	}
	name := "server a (" + string(e.Spec.Address) + "): "
	for i, step := range []struct {
		broken, failing bool
		said            []string
		lists           int64
	}{
		{true, false, []string{name + "not there yet: status 503"}, 0},
		{true, true, nil, 0},
		{false, true, []string{name + "vllm, model tiny, metrics can be read"}, 1},
		{false, false, nil, 1},
		{true, true, []string{name + "no longer there: status 503"}, 1},
		{false, true, []string{name + "vllm, model tiny, metrics can be read"}, 2},
	} {
		said = nil
		broken.Store(step.broken)
		scraped(e, step.failing)
		if w.look(t.Context()); !slices.Equal(said, step.said) || lists.Load() != step.lists {
			t.Errorf("step %d: said %q after %d lists, want %q after %d", i, said, lists.Load(), step.said, step.lists)
		}
	}
	again := endpoints.New(messages.EndpointID{Slot: 1, Generation: 2}, e.Spec)
	endpoints.Publisher{Published: pool}.Publish(endpoints.NewSnapshot(2, []*endpoints.Endpoint{again}), nil)
	said = nil
	broken.Store(false)
	if w.look(t.Context()); said != nil || lists.Load() != 3 || len(w.seen) != 1 {
		t.Errorf("after a restart: said %q, %d lists, sees %d; want nothing said, 3 lists, 1 server", said,
			lists.Load(), len(w.seen))
	}
	endpoints.Publisher{Published: pool}.Publish(endpoints.NewSnapshot(3, nil), nil)
	said = nil
	if w.look(t.Context()); !slices.Equal(said, []string{name + "left the endpoints"}) || len(w.seen) > 0 {
		t.Errorf("after its endpoint left: said %q, sees %d; want that it left, and 0", said, len(w.seen))
	}
	if !slices.Equal(models, []string{"tiny"}) {
		t.Errorf("told of models %q, want the first one once", models)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	endpoints.Publisher{Published: pool}.Publish(endpoints.NewSnapshot(4, []*endpoints.Endpoint{e}), nil)
	said = nil
	if w.look(done); said != nil {
		t.Errorf("after a look that was cut short: said %q, want nothing", said)
	}
}

// A server that never says all is asked less often after a while.
func TestServersThatStaySilentAreAskedLess(t *testing.T) {
	s, asked := &watched{}, 0
	for range 100 {
		if s.due(false) {
			asked++
		}
	}
	if want := patientLooks + (100-patientLooks)/patienceEvery; asked != want {
		t.Errorf("asked %d times of 100, want %d", asked, want)
	}
}

func TestAddressesForClientsOnThisMachine(t *testing.T) {
	for url, want := range map[string]string{
		"http://127.0.0.1:80": "http://127.0.0.1:80", "http://0.0.0.0:80": "http://127.0.0.1:80",
		"http://[::]:80": "http://[::1]:80", "http://[::1]:80": "http://[::1]:80",
	} {
		if got := reachedAt(url); got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
	if line := explainLine(netip.MustParseAddrPort("127.0.0.1:9090")); !strings.HasSuffix(line, " explain --last") {
		t.Errorf("got %q, want no --addr for the default address", line)
	}
	if line := explainLine(netip.MustParseAddrPort("[::1]:9090")); !strings.HasSuffix(line,
		" explain --last --addr http://[::1]:9090") {
		t.Errorf("got %q, want the address in it", line)
	}
}
