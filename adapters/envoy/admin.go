package envoy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Statistics of the files of this project: whether the picker's cluster has a healthy host, and what is on the way to
// clients.
const (
	pickersWell  = "cluster.epp.membership_healthy"
	activeNow    = "http.llm.downstream_rq_active"
	bufferedNow  = "http.llm.downstream_cx_tx_bytes_buffered"
	pageWithin   = 2 * time.Second
	longestPage  = 4 << 20
	listenerPage = "/listeners?format=json"
)

// Ready waits until Envoy listens and holds a picker healthy, and returns where its clients come, as a URL.
func (p *Process) Ready(ctx context.Context) (string, error) {
	var address string
	err := p.await(ctx, func() bool {
		stats, err := p.stats(ctx, pickersWell)
		if err != nil || stats[pickersWell] == 0 {
			return false
		}
		page, err := p.page(ctx, http.MethodGet, listenerPage)
		if err == nil {
			address, err = listenerURL(page)
		}
		return err == nil && accepts(ctx, address)
	})
	return address, err
}

// accepts reports whether a connection is taken. Envoy lists a listener before it listens.
func accepts(ctx context.Context, url string) bool {
	place := strings.TrimPrefix(url, "http://")
	if at, err := netip.ParseAddrPort(place); err == nil && at.Addr().IsUnspecified() {
		place = ":" + strconv.Itoa(int(at.Port())) // of this machine
	}
	d := net.Dialer{Timeout: pageWithin}
	conn, err := d.DialContext(ctx, "tcp", place)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// Refuse has each answer end its connection from now on, and health checks that pass through Envoy fail.
func (p *Process) Refuse(ctx context.Context) error {
	_, err := p.page(ctx, http.MethodPost, "/healthcheck/fail")
	return err
}

// Drain closes the listeners, and waits until no request runs and no byte waits for a client, or ctx is done. It
// returns how many requests run then; -1 = Envoy does not say. A process that is gone has none.
func (p *Process) Drain(ctx context.Context) int {
	closed, running := false, -1
	_ = p.await(ctx, func() bool { // an error says no more than the count
		if !closed {
			_, err := p.page(ctx, http.MethodPost, "/drain_listeners")
			closed = err == nil
		}
		stats, err := p.stats(ctx, activeNow, bufferedNow)
		if err != nil {
			return false
		}
		running = stats[activeNow]
		return closed && running+stats[bufferedNow] == 0
	})
	if p.Gone() {
		return 0
	}
	return running
}

// stats returns counters and gauges; one that does not exist is zero.
func (p *Process) stats(ctx context.Context, names ...string) (map[string]int, error) {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strings.ReplaceAll(name, ".", `\.`)
	}
	page, err := p.page(ctx, http.MethodGet, "/stats?filter="+url.QueryEscape("^("+strings.Join(quoted, "|")+")$"))
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	for line := range strings.Lines(page) {
		name, value, _ := strings.Cut(line, ": ")
		if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
			found[name] = n
		}
	}
	return found, nil
}

// page returns what Envoy's admin page answers.
func (p *Process) page(ctx context.Context, method, path string) (string, error) {
	admin, there := p.admin()
	if !there {
		return "", fmt.Errorf("envoy has no admin page yet")
	}
	ctx, cancel := context.WithTimeout(ctx, pageWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, admin+path, nil)
	if err != nil {
		return "", err
	}
	r.Close = true // no idle connection stays behind
	answer, err := direct.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, longestPage))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("envoy's admin page %s: status %d, %.200q", path, answer.StatusCode, text)
	}
	return string(text), err
}

// direct goes through no proxy: the admin page is on this machine.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// listenerURL returns where Envoy listens, from its admin page of listeners.
func listenerURL(page string) (string, error) {
	var all struct {
		Statuses []struct {
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(page), &all); err != nil || len(all.Statuses) != 1 {
		return "", fmt.Errorf("envoy's listeners: want one, got %.500q", page)
	}
	socket := all.Statuses[0].Local.Socket
	return "http://" + net.JoinHostPort(socket.Address, strconv.Itoa(socket.Port)), nil
}
