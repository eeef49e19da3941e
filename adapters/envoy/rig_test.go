package envoy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asEnvoy names what this binary does in the place of its tests: it plays an Envoy as far as this package sees one.
const asEnvoy = "SIGNALBOX_TEST_ENVOY"

func TestMain(m *testing.M) {
	switch os.Getenv(asEnvoy) {
	case "":
		goleak.VerifyTestMain(m)
	case "dies":
		fmt.Println("[a line]\nlistener: cannot bind")
		os.Exit(3)
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		fallthrough
	default:
		play()
	}
}

// play serves an admin page until SIGTERM. Each request of /stats while it drains finds one running request less.
func play() {
	stop := make(chan os.Signal, 1)
	if os.Getenv(asEnvoy) != "deaf" {
		signal.Notify(stop, syscall.SIGTERM)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	running, _ := strconv.Atoi(os.Getenv("RUNNING"))
	var refused, drained atomic.Bool
	var asked, listed atomic.Int64
	place := freePlace()
	pages := http.NewServeMux()
	pages.HandleFunc("GET /listeners", func(w http.ResponseWriter, _ *http.Request) {
		if listed.Add(1) == 2 { // Envoy lists a listener before it listens
			if _, err := net.Listen("tcp", place); err != nil {
				panic(err)
			}
		}
		host, port, _ := net.SplitHostPort(place)
		const page = `{"listener_statuses":[{"local_address":{"socket_address":{"address":"%s","port_value":%s}}}]}`
		fmt.Fprintf(w, page, host, port)
	})
	pages.HandleFunc("POST /healthcheck/fail", func(http.ResponseWriter, *http.Request) { refused.Store(true) })
	pages.HandleFunc("POST /drain_listeners",
		func(http.ResponseWriter, *http.Request) { drained.Store(refused.Load()) })
	pages.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) {
		left := running
		if drained.Load() {
			left = max(running-int(asked.Add(1)), 0)
		}
		if os.Getenv("ENDLESS") != "" {
			left = running
		}
		fmt.Fprintf(w, "%s: 1\n%s: %d\n%s: 0\n", pickersWell, activeNow, left, bufferedNow)
	})
	s := &http.Server{Handler: pages, ReadHeaderTimeout: time.Second}
	go func() { _ = s.Serve(l) }()
	flag := slices.Index(os.Args, "--admin-address-path")
	if err := os.WriteFile(os.Args[flag+1], []byte(l.Addr().String()), 0o600); err != nil {
		panic(err)
	}
	<-stop
	fmt.Print("ended as asked") // a last line without an end
}

// freePlace is an address where nothing listens.
func freePlace() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// fake is the configuration of an Envoy that this binary plays.
func fake(t *testing.T, as string) Config {
	t.Helper()
	t.Setenv(asEnvoy, as)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{Binary: self, Bootstrap: "{}"}
}

func started(t *testing.T, cfg Config) *Process {
	t.Helper()
	p, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// next is the next of what a channel brings.
func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-soon(t).Done():
		t.Fatal("nothing within 20 s")
		panic("not reached")
	}
}
