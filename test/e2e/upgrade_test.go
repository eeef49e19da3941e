package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// realtime is a server that upgrades, and sends back what it is sent.
func realtime(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			http.NotFound(w, r)
			return
		}
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = both.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = both.Flush()
		_, _ = io.Copy(conn, both)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestEnvoyUpgrades: a WebSocket is picked for at its headers in both lanes, its frames pass, and it is load until it
// ends.
func TestEnvoyUpgrades(t *testing.T) {
	for name, bootstrap := range map[string]string{"light": overrideHost, "full": overrideHostFull} {
		t.Run(name, func(t *testing.T) {
			s := startChanged(t, bootstrap, []string{realtime(t)}, nil)
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.envoy.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			_, _ = io.WriteString(conn, "GET /v1/realtime?model=m HTTP/1.1\r\nHost: llm\r\nConnection: Upgrade\r\n"+
				"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
				"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
			in := bufio.NewReader(conn)
			r, err := http.ReadResponse(in, nil)
			if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%v, error %v; want 101", r, err)
			}
			defer func() { _ = r.Body.Close() }()
			for _, frame := range []string{"hello", "again"} {
				_, _ = io.WriteString(conn, frame)
				got := make([]byte, len(frame))
				if _, err := io.ReadFull(in, got); err != nil || string(got) != frame {
					t.Fatalf("got %q, error %v; want %q", got, err, frame)
				}
			}
			if n := s.picker.metric("llm_d_epp_request_running"); n != 1 {
				t.Errorf("%v requests run, want 1", n)
			}
			if got := s.picker.record(t, r.Header.Get("x-signalbox-request-id")); got.Model != "m" {
				t.Errorf("record %+v, want model m", got)
			}
			_ = conn.Close()
			for _, gauge := range gauges {
				eventually(t, 5*time.Second, gauge+" at 0", func() bool { return s.picker.metric(gauge) == 0 })
			}
		})
	}
}
