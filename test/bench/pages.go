package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/test/bench/load"
)

// pageFile is a metrics page of 61 KB, as vLLM served it under load.
const pageFile = "adapters/modelserver/testdata/vllm-0.32.0/metrics_under_load.txt"

// endpoints are model servers of which nothing exists but their pages.
type endpoints struct {
	listeners []net.Listener
	page      atomic.Pointer[[]byte]
	scrapes   atomic.Int64
}

func serveEndpoints(n int, page []byte) (*endpoints, error) {
	e := &endpoints{}
	e.page.Store(&page)
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil && len(l.Addr().String()) != load.AddressBytes {
			err = fmt.Errorf("%s: the scripts have room for ports of five digits", l.Addr())
		}
		if err != nil {
			return nil, errors.Join(err, e.close())
		}
		e.listeners = append(e.listeners, l)
		go func() { _ = http.Serve(l, e) }() //nolint:gosec // loopback, ends with the listener
	}
	return e, nil
}

// ServeHTTP gives the metrics page or the list of models.
func (e *endpoints) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/metrics" {
		e.scrapes.Add(1)
		_, _ = w.Write(*e.page.Load()) // a reader that has gone reads no error either
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"object":"list","data":[{"id":"meta-llama/Llama-3.1-8B-Instruct","object":"model"}]}`)
}

func (e *endpoints) close() error {
	var all []error
	for _, l := range e.listeners {
		all = append(all, l.Close())
	}
	return errors.Join(all...)
}

// file is an endpoints file of the first n.
func (e *endpoints) file(n int) string {
	var b strings.Builder
	b.WriteString("endpoints:\n")
	for i, l := range e.listeners[:n] {
		fmt.Fprintf(&b, "- {name: e%d, address: 127.0.0.1, port: %d}\n",
			i, l.Addr().(*net.TCPAddr).Port)
	}
	return b.String()
}

// pages are the page of 61 KB, and one of about 16 KB that lacks some of its histograms.
func pages() (large, small []byte, err error) {
	large, err = os.ReadFile(pageFile)
	if err != nil {
		return nil, nil, fmt.Errorf("run it at the root of the repository: %w", err)
	}
	return large, cutPage(large, 16<<10), nil
}

// cutPage keeps every family that is no histogram, and of these as many as fit.
func cutPage(page []byte, limit int) []byte {
	var plain, histograms []string
	for family := range strings.SplitSeq(string(page), "# HELP ") {
		switch {
		case family == "":
		case strings.Contains(family, " histogram\n"):
			histograms = append(histograms, "# HELP "+family)
		default:
			plain = append(plain, "# HELP "+family)
		}
	}
	out := strings.Join(plain, "")
	for _, h := range histograms {
		if len(out)+len(h) <= limit {
			out += h
		}
	}
	return []byte(out)
}
