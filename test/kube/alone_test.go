package kube

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// alone is one picker with one fault. It reaches the API server through a front and a middle, by its own account.
type alone struct {
	t         *testing.T
	space     *space
	front     *front
	middle    *middle
	tokenFile string
	flags     []string // of the picker
	picker    *picker
	began     time.Time // the fault
	// Of void tokens: a picker that reviews tokens, and one of a reader.
	guarded *picker
	reader  string
}

// Each fault by itself: no pick fails, the picker stays ready, the metrics name the fault, and a pod that came
// meanwhile is known within 5 s once it is over.
func TestEachFaultAlone(t *testing.T) {
	// Without a cache, and with versions that are soon forgotten, a watch that was away is answered 410.
	forgetful := []string{"--watch-cache=false", "--etcd-compaction-interval=1s"}
	const held = 10 * time.Second
	const stays = "endpoints that stay in force: 1"
	on, inForce := (*alone).passOn, []string{stays}
	for name, c := range map[string]struct {
		own    []string // flags of an API server of its own; nil = the shared one
		begin  func(*alone)
		reason string        // by which it is counted
		held   time.Duration // since it was counted
		end    func(*alone)
		passes bool     // it is over as soon as it is counted, maybe before /readyz is asked
		says   []string // lines of the log
	}{
		"away":      {nil, (*alone).cutOff, "unreachable", held, on, false, inForce},
		"restarted": {[]string{}, (*alone).restart, "unreachable", 0, on, true, inForce},
		"throttling": {nil, func(a *alone) { a.front.refuse(http.StatusTooManyRequests) }, "throttled", held, on,
			false, inForce},
		"410 Gone":                 {forgetful, (*alone).outlast, "expired", 0, on, true, nil},
		"stalled":                  {nil, func(a *alone) { a.middle.stall(true) }, "timeout", 0, on, false, inForce},
		"forgotten":                {nil, func(a *alone) { a.middle.forget() }, "timeout", 0, on, true, inForce},
		"packets lost":             {nil, (*alone).losePackets, "timeout", retried, on, false, inForce},
		"packets lost, standalone": {nil, (*alone).losePackets, "timeout", retried, on, false, inForce},
		"answer lost":              {nil, (*alone).loseAnswers, "timeout", 0, on, false, inForce},
		"answer lost, standalone":  {nil, (*alone).loseAnswers, "timeout", 0, on, false, inForce},
		"rights taken away": {nil, (*alone).takeRights, "forbidden", held, func(a *alone) {
			a.bind("pods")
			a.bind("inferencepools." + poolGroup)
		}, false, []string{
			`is forbidden: .* cannot (list|watch) resource \\"pods\\" in API group \\"\\" .*` + stays,
			`is forbidden: .* cannot (list|watch) resource \\"inferencepools\\" in API group .*` + stays,
		}},
		"token void": {nil, (*alone).voidToken, "unauthorized", held, func(a *alone) {
			a.readsNoMore()
			a.writeToken(a.space.user("picker"))
		}, false, []string{"Unauthorized"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := shared
			if c.own != nil {
				server = newCluster(t, c.own...)
			}
			a := newAlone(t, server, strings.HasSuffix(name, "standalone"))
			stopPicks, stopReady := a.picker.pickAlways(), a.picker.readyAlways()
			a.began = time.Now()
			machine := lateness.Begin()
			c.begin(a)
			shown := false
			eventuallyWithin(t, 3*patience, "it is counted as "+c.reason, func() bool {
				shown = shown || strings.Contains(a.picker.page("/readyz"), stays)
				return (shown || c.passes) && a.counts(c.reason)
			})
			machine.Within(t, name+": noticed after it began", time.Since(a.began), time.Minute)
			for _, line := range c.says {
				a.picker.logs(regexp.MustCompile(line))
			}
			<-time.After(c.held)
			a.space.pod("b", "10.0.0.2", vllm, nil)
			c.end(a)
			machine = lateness.Begin()
			ended := time.Now()
			a.picker.knows("a-rank-0 10.0.0.1:8000", "b-rank-0 10.0.0.2:8000")
			machine.Within(t, name+": all is known after it was over", time.Since(ended), 5*time.Second)
			eventually(t, "fresh", func() bool {
				return strings.Contains(a.picker.page("/metrics"), "\nsignalbox_discovery_stale_seconds 0\n")
			})
			stopReady()
			t.Logf("FIGURES %s: %d picks", name, stopPicks())
		})
	}
}

func newAlone(t *testing.T, server *cluster, standalone bool) *alone {
	t.Helper()
	a := &alone{t: t, space: newSpace(t, server)}
	a.space.pod("a", "10.0.0.1", vllm, nil)
	a.space.pool(8000)
	token := a.space.user("picker")
	a.space.grant("", "pods")
	a.space.grant(poolGroup, "inferencepools")
	var kubeconfig string
	a.front, a.middle, kubeconfig = newFront(t, server)
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	a.tokenFile = filepath.Join(filepath.Dir(kubeconfig), "token")
	a.writeToken(token)
	text = bytes.ReplaceAll(text, []byte("token: "+server.token), []byte("tokenFile: "+a.tokenFile))
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	a.flags = a.space.inPool("--kubeconfig", kubeconfig)
	if standalone {
		a.flags = []string{"--kubeconfig", kubeconfig, "--pool-namespace", a.space.name,
			"--endpoint-selector", "app=vllm", "--endpoint-target-ports", "8000"}
	}
	a.picker = startPicker(t, a.flags...)
	a.picker.knows("a-rank-0 10.0.0.1:8000")
	a.picker.ready(true)
	return a
}

func (a *alone) writeToken(token string) {
	a.t.Helper()
	if err := os.WriteFile(a.tokenFile, []byte(token), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// logs waits for a line of the log that matches.
func (p *picker) logs(want *regexp.Regexp) {
	p.t.Helper()
	eventually(p.t, "the log has a line like "+want.String(), func() bool {
		p.log.mu.Lock()
		defer p.log.mu.Unlock()
		return slices.ContainsFunc(p.log.all, want.MatchString)
	})
}

// counts reports whether a failure of pods or of the pool is counted by a reason.
func (a *alone) counts(reason string) bool {
	page := a.picker.page("/metrics")
	const name = "signalbox_discovery_errors_total"
	return strings.Contains(page, name+`{reason="`+reason+`",resource="pods"}`) ||
		strings.Contains(page, name+`{reason="`+reason+`",resource="inferencepools.`+poolGroup+`"}`)
}

func (a *alone) passOn() {
	a.middle.stall(false)
	a.middle.passPackets()
	a.middle.set(false, 0)
	if refusal, _ := a.front.now(); refusal != 0 {
		a.front.refuse(0)
	}
}

// retried is how long packets are lost. A kernel that tries to connect waits for 8 s from about then.
const retried = 12 * time.Second

func (a *alone) losePackets() {
	a.middle.losePackets(a.t)
	a.middle.cut()
}

func (a *alone) loseAnswers() {
	a.front.refuse(lost)
	a.middle.cut()
}

func (a *alone) cutOff() {
	a.middle.set(true, 0)
	a.middle.cut()
}

// restart kills the API server, and starts it again once the picker has missed it, which pauses before it asks anew.
func (a *alone) restart() {
	a.space.kill()
	a.space.http.CloseIdleConnections()
	eventually(a.t, "the API server is missed", func() bool { return a.counts("unreachable") })
	if err := a.space.start(); err != nil {
		a.t.Fatal(err)
	}
}

// outlast has the API server forget the version that the picker knows of the pool, which does not change meanwhile.
// Then the watches end, and the next one of the pool begins there.
func (a *alone) outlast() {
	for range 12 { // each moves the version on, so that there is something to forget
		a.space.merge(a.space.pods()+"/a", object{"metadata": object{"annotations": object{
			"example.com/now": time.Now().Format(time.RFC3339Nano),
		}}})
		<-time.After(500 * time.Millisecond)
	}
	a.began = time.Now()
	a.front.refuse(0)
}

const bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/"

// takeRights takes away what newAlone granted. The API server ends no watch for that, so they are cut.
func (a *alone) takeRights() {
	for _, role := range []string{"picker-pods", "picker-inferencepools." + poolGroup} {
		a.space.remove(bindings + a.space.name + "/rolebindings/" + role)
	}
	a.middle.cut()
}

// bind gives the picker a role again.
func (a *alone) bind(resource string) {
	a.t.Helper()
	a.space.must(http.MethodPost, bindings+a.space.name+"/rolebindings", "", object{
		"metadata": object{"name": "picker-" + resource},
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "picker-" + resource},
		"subjects": []object{{"kind": "ServiceAccount", "name": "picker", "namespace": a.space.name}},
	})
}

// voidToken deletes the account of the picker. The API server goes on taking the token for some seconds.
func (a *alone) voidToken() {
	a.space.reviewer()
	a.reader, _ = a.space.reader("reader", "/metrics")
	a.guarded = startPicker(a.t, append(a.flags, "--metrics-endpoint-auth")...)
	a.guarded.answers(a.reader, http.StatusOK)
	a.began = time.Now()
	a.space.remove("/api/v1/namespaces/" + a.space.name + "/serviceaccounts/picker")
	eventually(a.t, "the token is void", func() bool {
		a.middle.cut()
		<-time.After(500 * time.Millisecond)
		return a.counts("unauthorized")
	})
}

// readsNoMore checks that while the picker's token is void, no token opens the metrics port: the API server answers,
// so an account that had the right may have lost it.
func (a *alone) readsNoMore() {
	a.t.Helper()
	a.guarded.answers("of-a-stranger", http.StatusServiceUnavailable)
	a.guarded.says("tokens cannot be reviewed")
	a.guarded.answers(a.reader, http.StatusServiceUnavailable)
	a.guarded.gets("/metrics", "", http.StatusUnauthorized)
}
