package kube

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// patience is how long anything is waited for: far longer than it takes, for a busy machine.
const patience = 30 * time.Second

// picker is a signalbox that runs.
type picker struct {
	t        *testing.T
	cmd      *exec.Cmd
	log      *lines
	grpc     *grpc.ClientConn // ext_proc
	checks   *grpc.ClientConn // health
	http     string           // URL of the metrics port
	announce time.Time        // when it said that it serves
}

// lines is what a process has written.
type lines struct {
	mu   sync.Mutex
	all  []string
	over bool
}

func (l *lines) follow(r io.Reader) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		l.mu.Lock()
		l.all = append(l.all, s.Text())
		l.mu.Unlock()
	}
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
}

// with returns the first line that has a text in it, and whether there is one or none can come any more.
func (l *lines) with(text string) (line string, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.all, func(s string) bool { return strings.Contains(s, text) })
	if i < 0 {
		return "", l.over
	}
	return l.all[i], true
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

// startPicker starts signalbox on free ports and waits until it serves. It ends with the test.
func startPicker(t *testing.T, flags ...string) *picker {
	t.Helper()
	return startPickerBy(t, []string{signalbox}, flags...)
}

// startPickerBy is startPicker by a command that becomes signalbox.
func startPickerBy(t *testing.T, command []string, flags ...string) *picker {
	t.Helper()
	p := &picker{t: t, log: &lines{}}
	p.cmd = exec.Command(command[0], slices.Concat(command[1:], []string{
		"serve", "--bind", "127.0.0.1", "--grpc-port", "0", "--grpc-health-port", "0", "--metrics-port", "0",
		"--secure-serving=false", "--metrics-endpoint-auth=false",
		"--zap-encoder", "json", "-v", "1", "--drain-delay", "0s", "--drain-timeout", "1s",
	}, flags)...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		p.log.follow(stderr)
		_ = p.cmd.Wait() // it is killed
		close(ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("signalbox %s:\n%s", strings.Join(flags, " "), p.log)
		}
	})
	var line string
	eventually(t, "signalbox serves", func() (done bool) {
		line, done = p.log.with(`"msg":"serving"`)
		return done
	})
	p.announce = time.Now()
	var said struct {
		ExtProc []string `json:"ext_proc"`
		Health  []string `json:"health"`
		HTTP    []string `json:"http"`
	}
	if err := json.Unmarshal([]byte(line), &said); err != nil {
		t.Fatalf("signalbox did not start: %v\n%s", err, p.log)
	}
	p.grpc, p.checks, p.http = dial(t, said.ExtProc[0]), dial(t, said.Health[0]), "http://"+said.HTTP[0]
	return p
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// trusts has ext_proc go over TLS to a picker whose certificate, for the name signalbox, the authority has signed.
func (p *picker) trusts(authority string) {
	p.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(authority))
	conn, err := grpc.NewClient(p.grpc.Target(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "signalbox"})))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	p.grpc = conn
}

// says waits for a line of the log.
func (p *picker) says(text string) {
	p.t.Helper()
	eventually(p.t, "the log says "+text, func() bool {
		line, _ := p.log.with(text)
		return line != ""
	})
}

// serving reports whether a service is SERVING by gRPC health.
func (p *picker) serving(service string) bool {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	r, err := healthpb.NewHealthClient(p.checks).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		p.t.Fatalf("health of %q: %v", service, err)
	}
	return r.GetStatus() == healthpb.HealthCheckResponse_SERVING
}

func (p *picker) page(path string) string {
	p.t.Helper()
	response, err := http.Get(p.http + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// pick asks which endpoint serves a request. It returns the destinations, or the status and the text of a refusal, or
// no status and what went wrong.
func (p *picker) pick() (destinations string, status int, text string) {
	headers, status, text := p.ask()
	return headers["x-gateway-destination-endpoint"], status, text
}

// ask asks which endpoint serves a request. It returns the headers that the request gets, or, as pick does, what is in
// their place.
func (p *picker) ask() (set map[string]string, status int, text string) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	stream, err := extprocv3.NewExternalProcessorClient(p.grpc).Process(ctx)
	if err != nil {
		return nil, 0, err.Error()
	}
	headers := &corev3.HeaderMap{}
	for _, h := range [][2]string{{":method", "GET"}, {":path", "/v1/models"}, {":authority", "x"}} {
		headers.Headers = append(headers.Headers, &corev3.HeaderValue{Key: h[0], RawValue: []byte(h[1])})
	}
	const mode = filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	if err := stream.Send(&extprocv3.ProcessingRequest{
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: mode, ResponseBodyMode: mode},
		Request: &extprocv3.ProcessingRequest_RequestHeaders{
			RequestHeaders: &extprocv3.HttpHeaders{Headers: headers, EndOfStream: true},
		},
	}); err != nil {
		return nil, 0, err.Error()
	}
	answer, err := stream.Recv()
	if err != nil {
		return nil, 0, err.Error()
	}
	if refused := answer.GetImmediateResponse(); refused != nil {
		return nil, int(refused.GetStatus().GetCode()), string(refused.GetBody()) + refused.GetHeaders().String()
	}
	set = map[string]string{}
	for _, h := range answer.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		set[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
	}
	return set, http.StatusOK, ""
}

// endpoints returns the endpoints of /debug/endpoints, each "name address", sorted.
func (p *picker) endpoints() []string {
	p.t.Helper()
	var page struct {
		Endpoints []struct {
			Name, Address string
		} `json:"endpoints"`
	}
	text := p.page("/debug/endpoints?format=json")
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		p.t.Fatalf("%v: %s", err, text)
	}
	all := []string{}
	for _, e := range page.Endpoints {
		all = append(all, e.Name+" "+e.Address)
	}
	slices.Sort(all)
	return all
}

// knows waits until the picker has exactly these endpoints.
func (p *picker) knows(want ...string) {
	p.t.Helper()
	if want == nil {
		want = []string{}
	}
	eventually(p.t, "the endpoints "+strings.Join(want, ", "), func() bool {
		return slices.Equal(p.endpoints(), want)
	})
}

// ready waits until the picker says by all ways whether it is ready, and checks that it is live.
func (p *picker) ready(want bool) time.Duration {
	p.t.Helper()
	took := eventually(p.t, "readiness", func() bool { return p.serving("readiness") == want })
	for _, name := range []string{"", "envoy.service.ext_proc.v3.ExternalProcessor", "inference-extension"} {
		eventually(p.t, "health of "+name, func() bool { return p.serving(name) == want })
	}
	if !p.serving("liveness") {
		p.t.Error("liveness is not SERVING")
	}
	p.readyz(want)
	return took
}

// readyz checks that HTTP says of readiness what gRPC says, with a reason if it is missing. What changes in between is
// looked at again.
func (p *picker) readyz(want bool) {
	p.t.Helper()
	var by, text string
	var first, last time.Time // looks that found a difference
	machine := lateness.Begin()
	eventually(p.t, "readiness by HTTP as by gRPC", func() bool {
		response, err := http.Get(p.http + "/readyz")
		if err != nil {
			p.t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			p.t.Fatal(err)
		}
		by, text = response.Status, strings.TrimSpace(string(body))
		if (response.StatusCode == http.StatusOK) == p.serving("readiness") {
			return true
		}
		if last = time.Now(); first.IsZero() {
			first = last
		}
		return false
	})
	if _, late := machine.End(); last.Sub(first) > time.Second+2*late {
		p.t.Errorf("HTTP and gRPC differ about readiness for %v, want 1 s at most; the machine is late by %v",
			last.Sub(first), late)
	}
	if strings.HasPrefix(by, "200") == want && (want || text != "") {
		return
	}
	if p.serving("readiness") == want {
		p.t.Errorf("/readyz is %s %q, want it ready: %v, as gRPC says, and why not", by, text, want)
	}
}

func eventually(t *testing.T, what string, holds func() bool) time.Duration {
	t.Helper()
	return eventuallyWithin(t, patience, what, holds)
}

func eventuallyWithin(t *testing.T, limit time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	return lateness.Eventually(t, limit, 2*time.Millisecond, what, holds)
}
