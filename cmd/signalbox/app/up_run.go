package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/envoy"
	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	// servesWithin is how long Envoy may take to serve before up says that it does not.
	servesWithin = 10 * time.Second
	// logsWithin is how long the access log may take to tell the end of the last responses, once Envoy has none left.
	logsWithin = time.Second
)

// up is a running Signalbox, Envoy, and the simulated servers if there are any.
type up struct {
	*upOptions
	out    *console
	server *server
	envoy  *envoy.Keeper
	logs   envoyLines
	ends   []func() error

	mu           sync.Mutex
	url          string // where clients send requests; "" = Envoy has not served yet
	down         bool   // Envoy has died, and does not serve again yet
	model        string // that the curl line names; "" = no server has named one yet
	shownServers string // the part of the status that is about servers, as it was shown last
}

// start brings up the simulated servers, Signalbox and Envoy.
func (u *up) start(ctx context.Context, path, version string) error {
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(endSignals, syscall.SIGHUP) // the terminal was closed
	}
	u.logs.say = u.out.say
	err := u.listServers()
	if err != nil {
		return err
	}
	u.hooks = hooks{log: u.out, showsServers: true, say: u.out.say}
	if u.server, err = startBounded(ctx, u.options); err != nil {
		return err
	}
	u.ends = append(u.ends, func() error { return u.server.stop(0) })
	text, err := u.bootstrap(ctx, version, u.server.addrs["xds-port"][0])
	if err != nil {
		return err
	}
	u.out.say("Starting Envoy %s, %s", version, path)
	if err := u.watchServers(ctx); err != nil {
		return err
	}
	u.envoy = envoy.Keep(envoy.Config{Binary: path, Bootstrap: string(text), Line: u.logs.line}, u.onEnvoy)
	return nil
}

// listServers makes servers that were not given as an endpoints file the text of one. No file is written, which would
// be left behind by a process that is killed.
func (u *up) listServers() error {
	var list [][2]string
	servers := u.servers
	if u.sims > 0 {
		sims, err := simServers(u.sims).start()
		u.ends = append(u.ends, func() error { stopSims(sims); return nil })
		if err != nil {
			return fmt.Errorf("--sim: %w", err)
		}
		for _, s := range sims {
			servers = append(servers, s.Addr())
		}
	}
	for _, s := range servers {
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return err
		}
		list = append(list, [2]string{host, port})
	}
	if len(list) == 0 {
		return nil
	}
	u.endpointsFile, u.endpointsText = "the servers of up", asEndpointsFile(list)
	return nil
}

// watchServers starts a watch of every server, at the pages that the configuration names.
func (u *up) watchServers(ctx context.Context) error {
	cfg, err := u.load(ctx)
	if err != nil {
		return err
	}
	fetcher, err := modelserver.NewFetcher(modelserver.Config{
		Pages: pagesOf(cfg.Config, load),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &serverWatch{fetcher: fetcher, pool: u.server.tree.picker.Pool(), say: u.out.say, model: u.onModel}
	ended := inBackground(func() { w.run(ctx) })
	u.ends = append(u.ends, func() error {
		cancel()
		fetcher.Close()
		<-ended
		return nil
	})
	return nil
}

// onEnvoy prints what happened to Envoy.
func (u *up) onEnvoy(e envoy.Event) {
	u.mu.Lock()
	defer u.mu.Unlock()
	first := u.url == ""
	switch {
	case e.URL == "":
		u.out.say("Envoy (process %d) ended: %s; it is started again in %v", e.Process, e.How, e.Pause)
		u.down = true
		return
	case first:
		u.out.say("Envoy (process %d) serves at %s; its admin page is at %s",
			e.Process, reachedAt(e.URL), reachedAt(e.Admin))
	default:
		u.out.say("Envoy (process %d) serves again", e.Process)
	}
	u.url, u.down = reachedAt(e.URL), false
	if first {
		u.offer()
	}
}

func (u *up) onModel(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.model = name
	u.offer()
}

// offer prints a request to try, once the address of Envoy and a model are known. Its caller holds the lock.
func (u *up) offer() {
	if u.url == "" || u.model == "" {
		return
	}
	u.out.say("\nAsk:\n  %s\nAsk why it went where it went:\n  %s\nCtrl-C ends all, after the answers that run.\n",
		curl(u.url, u.model), explainLine(u.server.addrs["metrics-port"][0]))
}

const shownEvery = 250 * time.Millisecond

// follow shows the status until ctx is done, or until Signalbox or Envoy fails.
func (u *up) follow(ctx context.Context) error {
	tick := time.NewTicker(shownEvery)
	defer tick.Stop()
	late := time.NewTimer(servesWithin)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-u.server.failed:
			return err
		case err := <-u.envoy.Failed():
			return err
		case <-late.C:
			u.notServing()
		case <-tick.C:
			u.show()
		}
	}
}

// notServing prints that Envoy runs and does not serve.
func (u *up) notServing() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.url == "" && !u.down {
		u.out.say("Envoy runs, but does not serve after %v; http://%s/clusters may say why", servesWithin, u.admin)
	}
}

// show brings the status up to date.
func (u *up) show() {
	arrived, failed := u.server.tree.picker.Totals()
	status := statusOf(int(sum(arrived, everyCode)), int(sum(failed, notByClients)), int(sum(failed, ofClientsGone)),
		u.server.tree.endpointViews())
	u.mu.Lock()
	if u.down {
		status += " | Envoy is being started again"
	}
	_, servers, _ := strings.Cut(status, " | ") // what comes first are counts of requests
	urgent := servers != u.shownServers
	u.shownServers = servers
	u.mu.Unlock()
	u.out.show(status, urgent)
}

// sum returns the sum of the series of a counter whose error code counts.
func sum(counter prometheus.Collector, counts func(code string) bool) float64 {
	all := 0.0
	for m := range collect(counter) {
		if counts(codeOf(m)) {
			all += m.GetCounter().GetValue()
		}
	}
	return all
}

// codeOf returns the error code of a series; "" = it has none.
func codeOf(m *dto.Metric) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == "error_code" {
			return l.GetValue()
		}
	}
	return ""
}

func everyCode(string) bool { return true }

func ofClientsGone(code string) bool { return code == messages.ClientGone.String() }

// byClients holds the reasons that clients caused.
var byClients = []string{
	messages.InvalidRequest.String(), messages.BodyTooLarge.String(), messages.BodyTimeout.String(),
	messages.ClientGone.String(),
}

// notByClients reports whether an error is the model server's or ours: a reason that no client caused, a status of 500
// or more, or 429, by which a server refuses for overload.
func notByClients(code string) bool {
	if status, err := strconv.Atoi(code); err == nil {
		return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
	}
	return !slices.Contains(byClients, code)
}

// drain ends everything in order: Envoy takes no new requests, those that run are finished, Envoy ends, then Signalbox.
func (u *up) drain() error {
	u.out.say("Ending: what runs is finished, within %v; a second Ctrl-C ends at once.", u.drainTimeout)
	ended := inBackground(func() {
		if p := u.envoy.Settle(); p != nil {
			u.drainEnvoy(p)
		}
	})
	for !within(shownEvery, ended) {
		u.show()
	}
	err := u.close()
	u.out.clear()
	if err == nil {
		u.out.say("Ended.")
	}
	return err
}

func (u *up) drainEnvoy(p *envoy.Process) {
	ctx, cancel := context.WithTimeout(context.Background(), u.drainTimeout)
	defer cancel()
	_ = p.Refuse(ctx) // Drain goes on asking
	sleep(ctx, u.delay())
	left := p.Drain(ctx)
	if left != 0 {
		u.out.say("%s cut: --drain-timeout has passed", runningOf(left))
	}
	u.awaitLogs(ctx)
	u.logs.ended.Store(true)
	p.End()
}

// awaitLogs waits, logsWithin at most, until Signalbox has heard of the end of every response.
func (u *up) awaitLogs(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, logsWithin)
	defer cancel()
	t := u.server.tree
	for t.streams.Open()+t.picker.Outlived() > 0 {
		if !sleep(ctx, 20*time.Millisecond) {
			return
		}
	}
}

func runningOf(requests int) string {
	switch {
	case requests < 0:
		return "All requests that run are"
	case requests == 1:
		return "1 request is"
	}
	return fmt.Sprintf("%d requests are", requests)
}

// close ends what was started, the last first.
func (u *up) close() error {
	var all []error
	for i := len(u.ends) - 1; i >= 0; i-- {
		all = append(all, u.ends[i]())
	}
	u.ends = nil
	return errors.Join(all...)
}

const (
	spanOfLines  = 10 * time.Second
	linesOfASpan = 10
)

// expected holds parts of lines of Envoy's log that do not concern the user of up: only an Envoy that faces the network
// needs that limit.
var expected = []string{"no configured limit to the number of allowed active downstream connections"}

// envoyLines hands on the lines of Envoy's log, a few in a span, and says how many it left out.
type envoyLines struct {
	say   func(format string, args ...any)
	ended atomic.Bool // Envoy was asked to end, so that what it logs of its end is left out
	since time.Time
	said  int
}

func (l *envoyLines) line(text string) {
	if l.ended.Load() || slices.ContainsFunc(expected, func(part string) bool { return strings.Contains(text, part) }) {
		return
	}
	if time.Since(l.since) >= spanOfLines {
		if more := l.said - linesOfASpan; more > 0 {
			l.say("envoy: %s left out", counted(more, "line"))
		}
		l.since, l.said = time.Now(), 0
	}
	if l.said++; l.said <= linesOfASpan {
		l.say("envoy: %s", admin.Clean(text))
	}
}
