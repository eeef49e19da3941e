package kube

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// runControllers runs Kubernetes' own controllers of Deployments and ReplicaSets until the test ends.
func runControllers(t *testing.T, c *cluster) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "controllers")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./controllers")
	build.Dir = "../kubelab"
	build.Env = append(build.Environ(), "CGO_ENABLED=0", "GOFLAGS=") // as kubelab, with which it shares most packages
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the controllers: %v\n%s", err, out)
	}
	cmd := exec.Command(binary, c.kubeconfig())
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var problems bytes.Buffer
	cmd.Stderr = &problems
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait() // nothing depends on how it ends
	})
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "running\n" {
		t.Fatalf("the controllers say %q, %v\n%s", line, err, &problems)
	}
}

// kubelet runs the pods of a Deployment as processes, and writes their readiness, as the one of a node would. The test
// calls step again and again.
type kubelet struct {
	*space
	running       []*process // in the order in which they came
	last          *process   // that took the last request
	began         bool       // a pod was ready once
	picks, failed int
	noneReady     gap // no pod was ready that is not to end
	noneServes    gap // no pod was ready, those that are to end included, to which a Service then goes
}

// gap is the longest time in a row without something.
type gap struct {
	since   time.Time // zero while it is there
	longest time.Duration
}

func (g *gap) see(there bool) {
	switch {
	case there:
		g.since = time.Time{}
	case g.since.IsZero():
		g.since = time.Now()
	default:
		g.longest = max(g.longest, time.Since(g.since))
	}
}

// process is a pod that runs.
type process struct {
	*picker
	name  string
	ready bool          // as it was written last
	pause time.Duration // of preStop
	ends  time.Time     // when SIGTERM is due; zero until it is asked to end
	asked bool          // SIGTERM was sent
}

// step does once what a kubelet and the proxy of the Service do all the time.
func (k *kubelet) step() {
	k.t.Helper()
	list := k.must(http.MethodGet, k.pods()+"?labelSelector=llm-d-router-gateway", "", nil)
	for _, item := range list["items"].([]any) {
		pod := item.(map[string]any)
		meta := pod["metadata"].(map[string]any)
		name := meta["name"].(string)
		i := slices.IndexFunc(k.running, func(p *process) bool { return p.name == name })
		if i < 0 {
			k.start(name, pod["spec"].(map[string]any))
			continue
		}
		if p := k.running[i]; meta["deletionTimestamp"] != nil && p.ends.IsZero() {
			p.ends = time.Now().Add(p.pause)
		}
	}
	for _, p := range slices.Clone(k.running) {
		k.advance(p)
	}
	k.route()
}

// start binds a pod to a node, or the API server would not wait for its end, and starts it.
func (k *kubelet) start(name string, spec map[string]any) {
	k.t.Helper()
	k.must(http.MethodPost, k.pods()+"/"+name+"/binding", "", object{
		"metadata": object{"name": name}, "target": object{"kind": "Node", "name": "node"},
	})
	d := installed{space: k.space, deployment: object{"spec": map[string]any{"template": map[string]any{"spec": spec}}}}
	p := &process{name: name, picker: d.picker(name, "--drain-delay=10s", "--drain-timeout=30s")}
	if seconds, is := d.at(container + "lifecycle.preStop.sleep.seconds").(float64); is {
		p.pause = time.Duration(seconds) * time.Second
	}
	k.running = append(k.running, p)
	k.status(name, fmt.Sprintf("10.1.0.%d", len(k.running)), false)
}

// advance writes what has become of a pod, and ends it when it is to end.
func (k *kubelet) advance(p *process) {
	k.t.Helper()
	if _, over := p.log.with("\x00"); over { // no line has that
		k.running = slices.DeleteFunc(k.running, func(other *process) bool { return other == p })
		k.remove(k.pods() + "/" + p.name)
		return
	}
	if ready := p.isReady(); ready != p.ready {
		p.ready = ready
		k.status(p.name, "10.1.1.1", ready)
	}
	if !p.ends.IsZero() && !p.asked && time.Now().After(p.ends) {
		p.asked = true
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
}

// route sends a request where a proxy with a connection to the Service would: to the pod of the last one, until that
// announces its end and another one is ready; without a connection to one that is ready, and, if there is none, to one
// that is to end and is.
func (k *kubelet) route() {
	k.t.Helper()
	ready := slices.IndexFunc(k.running, func(p *process) bool { return p.ready && p.ends.IsZero() })
	serves := slices.IndexFunc(k.running, func(p *process) bool { return p.ready })
	k.began = k.began || ready >= 0
	k.noneReady.see(ready >= 0 || !k.began)
	k.noneServes.see(serves >= 0 || !k.began)
	if !slices.Contains(k.running, k.last) {
		k.last = nil
	}
	switch leaves := k.last == nil || k.last.asked; { // a connection lasts until its end is announced
	case leaves && ready >= 0:
		k.last = k.running[ready]
	case k.last == nil && serves >= 0:
		k.last = k.running[serves]
	}
	if k.last == nil {
		if k.began {
			k.failed++
		}
		return
	}
	k.picks++
	if got, status, text := k.last.pick(); status != http.StatusOK || !strings.HasPrefix(got, "10.0.0.1:") {
		k.failed++
		k.t.Logf("%s picked %q, %d %s", k.last.name, got, status, text)
	}
}

// until steps until something holds of the status of the Deployment.
func (k *kubelet) until(what string, holds func(status map[string]any) bool) {
	k.t.Helper()
	eventuallyWithin(k.t, 2*patience, what, func() bool {
		k.step()
		d := k.deployed()
		status, _ := d.at("status").(map[string]any)
		return d.at("metadata.generation") == status["observedGeneration"] && holds(status)
	})
}

// settled reports whether all pods are of the newest template and so many are ready.
func (k *kubelet) settled(ready int) func(map[string]any) bool {
	return func(status map[string]any) bool {
		return status["updatedReplicas"] == float64(2) && status["replicas"] == float64(2) && len(k.running) == 2 &&
			(status["readyReplicas"] == float64(ready))
	}
}

// Two replicas are updated by Kubernetes' own controllers, with a leader and without. A client with a connection sees
// nothing of it. Without a leader one is always ready. With one, the old leader serves until the new pods are up.
func TestUpdateOfTwoReplicas(t *testing.T) {
	c := newCluster(t)
	runControllers(t, c)
	for name, update := range map[string]struct {
		elects string
		ready  int
	}{"one leads": {"true", 1}, "all serve": {"false", 2}} {
		t.Run(name, func(t *testing.T) {
			k, flags := newKubelet(t, c), "router.epp.flags.ha-enable-leader-election="+update.elects
			k.release("install", flags)
			k.until("two replicas", k.settled(update.ready))
			machine := lateness.Begin()
			k.release("upgrade", flags, "router.epp.podAnnotations.a=b")
			k.until("the update is complete", k.settled(update.ready))
			_, late := machine.End()
			t.Logf("%d requests, %d failed; no pod that stays was ready for %v, none at all for %v", k.picks, k.failed,
				k.noneReady.longest.Round(time.Millisecond), k.noneServes.longest.Round(time.Millisecond))
			if k.failed > 0 || k.picks < 10 {
				t.Errorf("%d of %d requests failed, want 0 of 10 or more", k.failed, k.picks)
			}
			if update.ready == 1 && k.noneServes.longest > 1500*time.Millisecond+2*late {
				t.Errorf("no pod was ready for %v, want 1.5 s at most; the machine is late by %v", k.noneServes.longest,
					late)
			}
			if update.ready == 2 && k.noneReady.longest > 0 {
				t.Errorf("none was ready for %v, want that one always is", k.noneReady.longest)
			}
		})
	}
	t.Run("one leads and is kept", func(t *testing.T) {
		k, flags := newKubelet(t, c), `router.epp.deploymentStrategy.rollingUpdate.maxUnavailable=1`
		k.release("install", flags)
		k.until("two replicas", k.settled(1))
		leader := k.running[slices.IndexFunc(k.running, func(p *process) bool { return p.ready })]
		k.release("upgrade", flags, "router.epp.podAnnotations.a=b")
		k.until("two new pods beside the old leader", func(status map[string]any) bool {
			return status["updatedReplicas"] == float64(2) && status["replicas"] == float64(3) && len(k.running) == 3
		})
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			k.step()
		}
		if !slices.Contains(k.running, leader) || !leader.ends.IsZero() || !leader.ready {
			t.Error("the old leader does not lead on, so the chart's strategy need not allow that none is ready")
		}
	})
}

func newKubelet(t *testing.T, c *cluster) *kubelet {
	t.Helper()
	k := &kubelet{space: newSpace(t, c)}
	k.pod("a", "10.0.0.1", map[string]string{"app": "llama"}, nil)
	return k
}

// release installs or upgrades two replicas of the chart.
func (k *kubelet) release(command string, set ...string) {
	k.t.Helper()
	k.mustHelm(command, "llama", chart, "--values", values+"pool.yaml", "--set",
		strings.Join(append(set, "router.epp.replicas=2"), ","))
}
