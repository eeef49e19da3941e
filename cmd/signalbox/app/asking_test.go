package app

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// command runs a command line and gives what it prints.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root, out := newRoot(), new(bytes.Buffer)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// remembering is a Signalbox with two endpoints that remembers requests 1 to 9: each third was refused,
// and the model of the n-th is m-n.
func remembering(t *testing.T, flags ...string) *server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	writeText(t, file, "endpoints:\n- {name: vllm-a, address: 127.0.0.1, port: \"9\"}\n- {name: vllm-b, address: "+
		"127.0.0.1, port: \"10\"}\n")
	s := running(t, append([]string{"--endpoints", file, "--config-text", randomPicking}, flags...)...)
	for id := messages.RequestID(1); id <= 9; id++ {
		r := messages.Record{Request: id, Model: fmt.Sprint("m-", id), Status: 200,
			Served: s.tree.picker.Pool().Snapshot().Endpoints[id%2].ID, ArrivedAt: time.Now(), Ended: time.Second}
		if id%3 == 0 {
			r.Status, r.Reason, r.Served = 503, messages.Overloaded, messages.EndpointID{}
		}
		s.tree.picker.Refused(messages.RequestRefused{Record: r})
	}
	return s
}

func TestCommandsPrintWhatThePagesShow(t *testing.T) {
	s := remembering(t)
	addr := "http://" + s.at("metrics-port")
	for path, args := range map[string][]string{
		"/debug/endpoints?format=text":          {"endpoints"},
		"/debug/endpoints?format=json":          {"endpoints", "--json"},
		"/debug/requests?format=text":           {"requests"},
		"/debug/requests?format=text&limit=2":   {"requests", "-n", "2"},
		"/debug/requests?format=text&model=m-4": {"requests", "--model", "m-4"},
		"/debug/requests?format=text&status=5xx&reason=any&limit=1": {"requests", "--status", "5xx", "--reason", "any",
			"--limit", "1"},
		"/debug/requests?format=text&endpoint=vllm-b":            {"requests", "--endpoint", "vllm-b"},
		"/debug/requests?format=text&x-request-id=a":             {"requests", "--x-request-id", "a"},
		"/debug/requests/" + s.tree.formatID(9) + "?format=text": {"explain", "--last"},
		"/debug/requests/" + s.tree.formatID(4) + "?format=text": {"explain", "--last", "--model", "m-4", "--status",
			"200", "--endpoint", "127.0.0.1:9"},
		"/debug/requests/" + s.tree.formatID(5) + "?format=text": {"explain", s.tree.formatID(5), "--all"},
	} {
		_, want := asked{url: addr}.get(t, path)
		got, err := command(t, append(args, "--addr", addr)...)
		if err != nil || ageless(got) != ageless(want) || strings.Contains(want, `"error"`) {
			t.Errorf("signalbox %q: %v\n%s\nwant %s\n%s", args, err, got, path, want)
		}
	}
}

var aDuration = regexp.MustCompile(`\d[\d.m]*(ns|µs|ms|s)\b`)

// ageless leaves out durations, which differ from one moment to the next, and how wide they are.
func ageless(page string) string {
	return strings.Join(strings.Fields(aDuration.ReplaceAllString(page, "")), " ")
}

func TestCommandsThatAskSayWhatIsWrong(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	writeText(t, tokens, "good\n")
	wrong := filepath.Join(t.TempDir(), "wrong")
	writeText(t, wrong, "bad\n")
	own := newIdentity(t, "signalbox")
	open, guarded := remembering(t).at("metrics-port"), running(t, "--metrics-token-file", tokens).at("metrics-port")
	secret := running(t, "--metrics-cert-dir", own.folder).at("metrics-port")
	away := unused(t)
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"away": {[]string{"--addr", away}, "nothing listens on " + away +
			": is Signalbox running? --addr wants the address of Signalbox's metrics port"},
		"no token": {[]string{"--addr", guarded}, "wants a token (HTTP 401): --token-file"},
		"wrong token": {[]string{"--addr", guarded, "--token-file", wrong},
			"does not take the token of --token-file (HTTP 401)"},
		"no TLS":                {[]string{"--addr", secret}, "use --addr https://" + secret},
		"TLS where there is no": {[]string{"--addr", "https://" + open}, "use --addr http://" + open},
		"unknown authority":     {[]string{"--addr", "https://" + secret}, "--ca-file"},
		"no file of a token":    {[]string{"--addr", open, "--token-file", "/nothing"}, "--token-file: "},
	} {
		for _, args := range [][]string{{"endpoints"}, {"requests"}, {"explain", "x"}, {"explain", "--last"}} {
			out, err := command(t, append(args, c.flags...)...)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") ||
				out != "" {
				t.Errorf("%s: signalbox %q: %v, printed %q; want %q in one line", name, args, err, out, c.want)
			}
		}
	}
	for args, want := range map[string]string{
		"requests --status 9xx":                   "status must be a code such as 503, or a class such as 5xx",
		"requests --reason overlode":              `unknown reason "overlode", did you mean overloaded?`,
		"requests --endpoint vllm-c":              `unknown endpoint "vllm-c", did you mean vllm-a?; known are vllm-a, 127.0.0.1:9, vllm-b, 127.0.0.1:10`,
		"requests --limit 0":                      "limit must be 1 to 1000",
		"requests x":                              "takes no arguments",
		"explain --last x":                        `got "x" and --last, want one of them`,
		"explain x --model m":                     "want --last",
		"explain --last --model m-77":             "no request on record meets the filters",
		"explain --last --model m-4 --status 503": "no request on record meets the filters",
	} {
		if _, err := command(t, append(strings.Fields(args), "--addr", open)...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("signalbox %s: %v, want %q", args, err, want)
		}
	}
	if _, err := command(t, "explain", "--last", "--addr", guarded, "--token-file", tokens); err == nil ||
		err.Error() != "no request has come yet" {
		t.Errorf("explain --last of no request: %v", err)
	}
}

// unused is an address where nothing listens.
func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A shell offers what the running process knows, and nothing without it.
func TestValuesAreCompleted(t *testing.T) {
	s := remembering(t)
	for _, c := range []struct {
		args, want []string
	}{
		{[]string{"requests", "--endpoint", ""}, []string{"vllm-a\t127.0.0.1:9", "127.0.0.1:10\tvllm-b"}},
		{[]string{"requests", "--model", ""}, []string{"m-9", "m-1"}},
		{[]string{"requests", "--reason", ""}, []string{"any", "none", "rejected-no-endpoints"}},
		{[]string{"explain", "--last", "--status", ""}, []string{"5xx", "503"}},
		{[]string{"explain", ""}, []string{s.tree.formatID(9) + "\tm-9 503 overloaded"}},
	} {
		fixed := slices.Contains(c.args, "--reason") || slices.Contains(c.args, "--status")
		offers(t, s.at("metrics-port"), c.args, c.want, true)
		offers(t, unused(t), c.args, c.want, fixed)
	}
}

// offers checks whether a shell is offered values for the end of a command line that asks a port.
func offers(t *testing.T, addr string, args, values []string, want bool) {
	t.Helper()
	line := append([]string{"__complete", args[0], "--addr", addr}, args[1:]...)
	out, err := command(t, line...)
	for _, v := range values {
		if err != nil || strings.Contains(out, v+"\n") != want {
			t.Errorf("%q: %v, %q; want %q: %v", line, err, out, v, want)
		}
	}
}
