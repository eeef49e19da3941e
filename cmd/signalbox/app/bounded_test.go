package app

import (
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// Connections above the bound are closed at once, and there is room again once another one is closed. None
// is kept for ever.
func TestConnectionsOfTheMetricsPortAreBounded(t *testing.T) {
	s := running(t)
	address := s.at("metrics-port")
	lone := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	held := make([]net.Conn, 0, mostHTTP)
	for range mostHTTP {
		held = append(held, dial())
	}
	more := dial()
	_ = more.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := more.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("a connection above the bound: %v, want that it is closed", err)
	}
	_ = held[0].Close()
	soonTrue(t, "an answer, once there is room", func() bool {
		r, err := lone.Get("http://" + address + "/healthz")
		if err == nil {
			_ = r.Body.Close()
		}
		return err == nil
	})
	if h := s.http; h.ReadTimeout <= 0 || h.WriteTimeout <= 0 || h.IdleTimeout <= 0 {
		t.Errorf("timeouts %v, %v, %v; want all", h.ReadTimeout, h.WriteTimeout, h.IdleTimeout)
	}
}
