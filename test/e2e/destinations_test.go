package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	byMetadata = "- metadata: {key: envoy.lb, path: [{key: x-gateway-destination-endpoint}]}\n"
	byHeader   = "- header: x-gateway-destination-endpoint\n"
	hostKey    = "            selected_host_key: {key: envoy.lb, path: [{key: " +
		"x-gateway-destination-endpoint-served}]}\n"
	attributes  = "              response_attributes: [upstream.address, response.code_details]\n"
	dstByHeader = "      use_http_header: true\n      http_header_name: x-gateway-destination-endpoint\n"
	dstByData   = "      metadata_key: {key: envoy.lb, path: [{key: x-gateway-destination-endpoint}]}\n"
)

// replaced changes one part of a bootstrap for another.
func replaced(t *testing.T, old, replacement string) func(string) string {
	return func(text string) string {
		t.Helper()
		return replaceOnce(t, text, old, replacement)
	}
}

// randomly picks without looking at the servers, so that those that are dead are picked too; no server is ejected.
var randomly = []string{"--config-text", pickerOnly("random-picker"), "--max-ejection-percent", "0"}

// refusing gives addresses at which connections are refused, and that no other process takes meanwhile.
func refusing(t *testing.T, count int) []string {
	t.Helper()
	addresses := make([]string, 0, count)
	for range count {
		socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0) // bound, and never listening
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Close(socket) })
		if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			t.Fatal(err)
		}
		name, err := syscall.Getsockname(socket)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port))
	}
	return addresses
}

// startChanged is startStackWith before a bootstrap that is changed.
func startChanged(t *testing.T, bootstrap string, servers, flags []string, changes ...func(string) string) *stack {
	t.Helper()
	s := &stack{servers: servers, picker: serve(t, servers, flags...)}
	s.picker.pooled(t, len(servers))
	s.envoy = startEnvoy(t, bootstrap, s.picker.grpcPort, servers, changes...)
	s.envoy.asksPicker(t)
	s.client = newClient(s.envoy.url)
	t.Cleanup(s.client.close)
	return s
}

// TestEnvoyHonoursPicks in each way in which it can be told of them.
func TestEnvoyHonoursPicks(t *testing.T) {
	for name, c := range map[string]struct {
		bootstrap string
		change    func(string) string
		flags     []string
	}{
		"override_host by metadata": {overrideHost, replaced(t, byMetadata, byMetadata), nil},
		"override_host by header":   {overrideHost, replaced(t, byMetadata, byHeader), nil},
		"ORIGINAL_DST by header":    {originalDst, replaced(t, dstByHeader, dstByHeader), nil},
		"ORIGINAL_DST by metadata": {originalDst, replaced(t, dstByHeader, dstByData),
			[]string{"--single-destination"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startChanged(t, c.bootstrap, mirrors(t, 3), append(c.flags, randomly...), c.change)
			const requests = 30
			by := map[string]int{}
			for n := range requests {
				a := s.client.chat(model, fmt.Sprintf("question %d", n), 4)
				if !a.whole() {
					t.Fatal(a.String())
				}
				first, _, _ := strings.Cut(a.header.Get("X-Destination"), ",")
				if server := a.header.Get("X-Server"); server != first {
					t.Errorf("%s served, %s was picked", server, a.header.Get("X-Destination"))
				}
				by[first]++
			}
			if len(by) != len(s.servers) || s.picker.picks() != requests {
				t.Errorf("picked %v, %d in all, want each of %v", by, s.picker.picks(), s.servers)
			}
			s.picker.idle(t)
			if n := s.picker.metric("signalbox_served_elsewhere_total"); n != 0 {
				t.Errorf("%v served elsewhere", n)
			}
		})
	}
}

// TestEnvoyWalksTheList: two of three servers refuse connections. Each request is served by the third, wherever it
// stands in the list, after those that stand before it, in their order, and with its whole body.
func TestEnvoyWalksTheList(t *testing.T) {
	for name, source := range map[string]string{"by metadata": byMetadata, "by header": byHeader} {
		t.Run(name, func(t *testing.T) {
			live := mirrors(t, 1)[0]
			s := startChanged(t, overrideHost, append(refusing(t, 2), live), randomly, replaced(t, byMetadata, source))
			const requests = 60
			lists := map[string][]string{}
			for n := range requests {
				body := chatBody(model, strings.Repeat("a long question ", 1+n*100), 4, false)
				a := s.client.post("/v1/chat/completions", body)
				if !a.whole() || a.header.Get("X-Sum") != sum(body) {
					t.Fatal(a.String())
				}
				lists[a.name] = strings.Split(a.header.Get("X-Destination"), ",")
			}
			s.walked(t, lists, live)
			s.picker.idle(t)
		})
	}
}

// walked compares the lists that were picked with the servers that were tried. Envoy's log names those alone that took
// a connection; it counts the attempts, and those in vain for each server.
func (s *stack) walked(t *testing.T, lists map[string][]string, live string) {
	t.Helper()
	names := make([]string, 0, len(lists))
	for name := range lists {
		names = append(names, name)
	}
	log, at, refused := s.envoy.attemptsOf(t, names), [3]int{}, map[string]int{}
	for name, list := range lists {
		i := slices.Index(list, live)
		if i < 0 || len(list) != len(s.servers) {
			t.Fatalf("%s: the list is %v, want all of %v", name, list, s.servers)
		}
		at[i]++
		if got := log[name]; got.Attempts != i+1 || got.Hosts != live {
			t.Errorf("%s: served by %s, %d attempts, want %v", name, got.Hosts, got.Attempts, list[:i+1])
		}
		for _, server := range list[:i] {
			refused[server]++
		}
	}
	_, page := get(s.envoy.admin + "/clusters")
	for server, want := range refused {
		if line := fmt.Sprintf("model_servers::%s::cx_connect_fail::%d\n", server, want); !strings.Contains(page,
			line) {
			t.Errorf("%s was not tried %d times: envoy has no line %q", server, want, line)
		}
	}
	t.Logf("the live server stood first, second, third in %v of the lists", at)
	if slices.Contains(at[:], 0) {
		t.Errorf("the live server stood first, second, third in %v of the lists, want each", at)
	}
	if n := s.picker.metric("signalbox_served_elsewhere_total"); int(n) != at[1]+at[2] {
		t.Errorf("%v served elsewhere, want %d", n, at[1]+at[2])
	}
}

// TestEnvoyTellsWhoServed: requests whose first server refuses them count at the one that serves, while they run,
// whichever of the two ways Envoy has to tell of it; with neither they would stay where they were picked for.
func TestEnvoyTellsWhoServed(t *testing.T) {
	noKey, noAttribute := replaced(t, hostKey, ""), replaced(t, attributes, "")
	type row struct {
		changes []func(string) string
		moves   bool
	}
	rows := map[string]row{"upstream.address": {[]func(string) string{noKey}, true},
		"neither": {[]func(string) string{noKey, noAttribute}, false}}
	if reportsServed() {
		rows["selected_host_key"] = row{[]func(string) string{noAttribute}, true}
	} else {
		rows = map[string]row{"upstream.address": {nil, true}, "neither": {[]func(string) string{noAttribute}, false}}
	}
	for lane, bootstrap := range map[string]string{"light": overrideHost, "full": overrideHostFull} {
		for name, r := range rows {
			t.Run(lane+" lane, "+name, func(t *testing.T) { movesLoad(t, bootstrap, r.moves, r.changes) })
		}
	}
}

func movesLoad(t *testing.T, bootstrap string, moves bool, changes []func(string) string) {
	live := simulated(t, 1, slow...)
	s := startChanged(t, bootstrap, append(refusing(t, 2), live...), randomly, changes...)
	const requests = 16 // by chance the live server is the first of each list once in 43 million
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	if bootstrap == overrideHost {
		// Until its first entry an Envoy's requests end with their streams. A share of them takes the full lane, by
		// chance, and has no entry.
		eventually(t, 10*time.Second, "an entry has come", func() bool {
			s.client.stream(ctx, "A word.", 1)
			return s.picker.metric("signalbox_access_log_entries_total", `whose="ours"`) > 0
		})
	}
	before := s.picker.metric("signalbox_endpoint_picks_total")
	answers := make(chan answer, requests)
	for n := range requests {
		go func() { answers <- s.client.stream(ctx, fmt.Sprintf("A long story, %d.", n), 1000) }()
	}
	running := func() bool {
		return seriesSum("http://"+live[0]+"/metrics", "vllm:num_requests_running") == requests &&
			s.picker.metric("signalbox_endpoint_picks_total") == before+requests
	}
	eventually(t, 10*time.Second, "all run on the live server", running)
	held := func() int {
		return int(s.picker.metric("signalbox_endpoint_inflight_requests", fmt.Sprintf("endpoint=%q", live[0])))
	}
	if moves {
		eventually(t, 5*time.Second, "all count there", func() bool { return held() == requests })
		s.picker.inFlight(t, requests)
	} else if n := held(); n == requests {
		t.Errorf("%d requests count at the server although nobody told: the test proves nothing", n)
	}
	leave()
	for range requests {
		if a := <-answers; a.err == nil && a.status != http.StatusOK {
			t.Error(a.String())
		}
	}
	s.picker.idle(t)
}
