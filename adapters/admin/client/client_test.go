package client_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/admin/client"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is an inbox that answers each query at once, with one record or none.
type recorder struct {
	none  bool
	asked messages.RequestQueried
}

func (r *recorder) Post(m messages.RecorderMsg) bool {
	if q, ok := m.(messages.RingsQueried); ok {
		return q.Admin.Tell(messages.RingsAnswered{Partial: true})
	}
	r.asked = m.(messages.RequestQueried)
	answer := messages.RecordsAnswered{Lost: 7}
	if !r.none {
		answer.Records = messages.ListOf(messages.Record{Request: 42, Model: "m"})
	}
	return r.asked.Admin.Tell(answer)
}

// port is the handler of a Signalbox whose ids are id-N.
func port(r *recorder) http.Handler {
	return admin.NewHandler(admin.Config{
		Gatherer: prometheus.NewRegistry(), Recorder: r,
		FormatID: func(id messages.RequestID) string { return fmt.Sprint("id-", id) },
		ParseID: func(s string) (id messages.RequestID, ok bool) {
			_, err := fmt.Sscanf(s, "id-%d", &id)
			return id, err == nil
		},
		Address: func(messages.EndpointID) messages.Address { return "10.0.0.1:8000" },
	})
}

func served(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func request(id string) client.Page { return client.Page{Path: []string{"requests", id}} }

// text is the page as text, or the error.
func text(t *testing.T, p client.Port, page client.Page) (string, error) {
	t.Helper()
	c, err := client.New(p)
	if err != nil {
		return "", err
	}
	defer c.Close()
	var b strings.Builder
	err = c.Text(t.Context(), page, &b)
	return b.String(), err
}

func TestPagesAreAskedFor(t *testing.T) {
	rec := &recorder{}
	at := served(t, port(rec))
	for name, c := range map[string]struct {
		addr  string
		page  client.Page
		asked messages.RequestQueried
	}{
		"ours":   {at, request("id-42"), messages.RequestQueried{Request: 42}},
		"a path": {at + "/anything", request("id-42"), messages.RequestQueried{Request: 42}},
		"no scheme": {strings.TrimPrefix(at, "http://"), request("a/b c?d%#"),
			messages.RequestQueried{IDs: messages.ListOf("a/b c?d%#")}},
		"dots": {at, request(".."), messages.RequestQueried{IDs: messages.ListOf("..")}},
		"list": {at, client.Page{Path: []string{"requests"}, Values: url.Values{"model": {"a b&c"}}},
			messages.RequestQueried{Newest: 50, Filter: messages.RecordFilter{Model: "a b&c"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := text(t, client.Port{Addr: c.addr}, c.page)
			rec.asked.Admin = nil
			if err != nil || !strings.Contains(got, "id-42") || !reflect.DeepEqual(rec.asked, c.asked) {
				t.Errorf("asked %+v, want %+v; got %q, %v", rec.asked, c.asked, got, err)
			}
		})
	}
}

func TestJSONIsWrittenAndRead(t *testing.T) {
	c, err := client.New(client.Port{Addr: served(t, port(&recorder{}))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var b strings.Builder
	if err := c.JSON(t.Context(), request("id-42"), &b); err != nil ||
		!strings.HasPrefix(b.String(), "{\n  \"requests\": [") {
		t.Errorf("%q, %v", b.String(), err)
	}
	var page struct {
		Requests []struct{ ID string }
	}
	if err := c.Decode(t.Context(), request("id-42"), &page); err != nil || len(page.Requests) != 1 ||
		page.Requests[0].ID != "id-42" {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	other := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/missing") {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, "<html>hello</html>")
	}))
	hostile := served(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, `{"error": "no\u001b]0;owned\u0007", "code": "x"}`)
	}))
	empty := served(t, port(&recorder{none: true}))
	guarded := served(t, admin.Authenticated(port(&recorder{}), func(a string) bool { return a == "Bearer good" }))
	away := closedPort(t)
	for name, c := range map[string]struct {
		port     client.Port
		id, want string
	}{
		"not found": {client.Port{Addr: empty}, "id-5",
			"no record of request id-5; records live in memory, /debug/requests lists them; 7 records have made way"},
		"client's id": {client.Port{Addr: empty}, "abc", "x-request-id abc"},
		"away": {client.Port{Addr: away}, "abc", "nothing listens on " + away +
			": is Signalbox running? --addr wants the address of Signalbox's metrics port"},
		"no such name": {client.Port{Addr: "nothing.invalid:1"}, "abc", "--addr wants"},
		"not HTTP": {client.Port{Addr: rawPort(t)}, "abc",
			"does not speak HTTP as a metrics port does; --addr wants"},
		"another server": {client.Port{Addr: other}, "abc", "text/html instead of text/plain"},
		"another's 404": {client.Port{Addr: other}, "missing",
			"answers HTTP 404, but not as Signalbox does; --addr wants"},
		"escapes":          {client.Port{Addr: hostile}, "abc", `no\x1b]0;owned\a`},
		"no address":       {client.Port{}, "abc", "--addr: got \"\", want http://host:port"},
		"no such protocol": {client.Port{Addr: "grpc://localhost:9002"}, "abc", "want http://host:port"},
		"no token":         {client.Port{Addr: guarded}, "abc", "wants a token (HTTP 401): --token-file"},
		"wrong token": {client.Port{Addr: guarded, Token: "bad"}, "abc",
			"does not take the token of --token-file (HTTP 401)"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, c.port, c.id, c.want) })
	}
}

func refused(t *testing.T, p client.Port, id, want string) {
	t.Helper()
	got, err := text(t, p, request(id))
	if err == nil || !strings.Contains(err.Error(), want) || got != "" || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q, error %v, want %q in one line", got, err, want)
	}
}

// A port with TLS and a client without, or the other way round, are told which address to use.
func TestErrorsOfTheSchemeNameTheAddress(t *testing.T) {
	plain := strings.TrimPrefix(served(t, port(&recorder{})), "http://")
	s := httptest.NewUnstartedServer(port(&recorder{}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	guarded := s.Listener.Addr().String()
	refused(t, client.Port{Addr: "https://" + plain}, "id-42", "speaks HTTP without TLS: use --addr http://"+plain)
	refused(t, client.Port{Addr: "http://" + guarded}, "id-42", "speaks TLS: use --addr https://"+guarded)
	if got, err := text(t, client.Port{Addr: "https://" + guarded,
		TLS: &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}},
		request("id-42")); err != nil {
		t.Errorf("over TLS: %q, %v", got, err)
	}
}

// closedPort is an address where nothing listens.
func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// rawPort is the address of a server that answers as a gRPC port does: with an HTTP/2 settings frame.
func rawPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}
