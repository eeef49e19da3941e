package admin

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

func TestFetchWritesWhatThePortAnswers(t *testing.T) {
	rec := answering(served())
	server := httptest.NewServer(NewHandler(config(rec)))
	defer server.Close()
	for name, c := range map[string]struct {
		addr, id string
		json     bool
		want     string
		asked    messages.RequestQueried
	}{
		"text":      {server.URL, instance + "42", false, "request       " + instance + "42\n", messages.RequestQueried{Request: 42}},
		"JSON":      {server.URL + "/", instance + "42", true, "{\n  \"requests\": [", messages.RequestQueried{Request: 42}},
		"no scheme": {strings.TrimPrefix(server.URL, "http://"), "a/b c?d%#", false, "request ", messages.RequestQueried{ClientID: "a/b c?d%#"}},
		"dots":      {server.URL, "..", false, "request ", messages.RequestQueried{ClientID: ".."}},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := Fetch(context.Background(), c.addr, c.id, c.json, &b); err != nil {
				t.Fatal(err)
			}
			got := *rec.asked
			got.Admin = nil
			if !strings.HasPrefix(b.String(), c.want) || !reflect.DeepEqual(got, c.asked) {
				t.Errorf("Fetch(%q, %q) asked %+v and wrote %q, want %+v and %q first", c.addr, c.id, got, b.String(), c.asked, c.want)
			}
		})
	}
}

func TestFetchSaysWhatIsWrong(t *testing.T) {
	port := func(h http.Handler) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	other := port(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/missing") {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, "<html>hello</html>")
	}))
	hostile := port(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusTeapot, "x", "no\x1b]0;owned\a")
	}))
	for name, c := range map[string]struct{ addr, id, want string }{
		"not found":        {port(NewHandler(config(answering()))), instance + "5", "no record of request " + instance + "5; records live in memory, /debug/requests lists them; 7 records have made way"},
		"other process":    {port(NewHandler(config(answering()))), "00000000000000cd-5", "id of another process"},
		"client's id":      {port(NewHandler(config(answering()))), "abc", "x-request-id abc"},
		"busy":             {port(NewHandler(config(&recorder{full: true}))), "abc", "busy"},
		"refused":          {closedPort(t), "abc", "is Signalbox running? the address of Signalbox's metrics port is meant"},
		"not HTTP":         {rawPort(t), "abc", "does not speak HTTP as a metrics port does"},
		"another server":   {other, "abc", "text/html instead of text/plain"},
		"another's 404":    {other, "missing", "answers HTTP 404, but not as Signalbox does"},
		"escapes":          {hostile, "abc", `no\x1b]0;owned\a`},
		"no id":            {other, " ", "no request id is given"},
		"no address":       {"", "abc", "want http://host:port"},
		"TLS":              {strings.Replace(other, "http:", "https:", 1), "abc", "speaks HTTP without TLS: use " + other},
		"no such protocol": {"grpc://localhost:9002", "abc", "want http://host:port"},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			err := Fetch(context.Background(), c.addr, c.id, false, &b)
			if err == nil || !strings.Contains(err.Error(), c.want) || b.Len() > 0 {
				t.Errorf("Fetch(%q, %q) wrote %q, error %v, want %q", c.addr, c.id, b.String(), err, c.want)
			}
		})
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
