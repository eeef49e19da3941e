package kube

import (
	"bytes"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// inPod runs a command with the files of a folder where a container has those of its service account, in a view of the
// file system that nobody else has: path, folder, command.
const inPod = `mount -t tmpfs tmpfs /var/run && mkdir -p "$0" && mount --bind "$1" "$0" && shift && exec "$@"`

// apart is a command by which another one has a view of the file system of its own: in root's hands, or in those of a
// user, where the kernel lets users have namespaces.
func apart() []string {
	if os.Getuid() == 0 {
		return []string{"unshare", "-m"}
	}
	return []string{"unshare", "--map-root-user", "-m"}
}

// In a pod a picker finds the API server and its namespace, and is known, by the service account of the pod. A token
// that is refused is read again.
func TestServiceAccountOfThePod(t *testing.T) {
	mount := exec.Command(apart()[0], append(apart()[1:], "mount", "-t", "tmpfs", "tmpfs", "/var/run")...)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Skipf("no mounts of its own for a process: %v %s", err, out) //nolint:forbidigo // it takes Linux, and more
	}
	s := newSpace(t, shared)
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	token := s.user("picker")
	s.grant("", "pods")
	s.grant(poolGroup, "inferencepools")
	authority, err := os.ReadFile(s.ca)
	if err != nil {
		t.Fatal(err)
	}
	account := t.TempDir()
	write := func(name string, text []byte) {
		if err := os.WriteFile(filepath.Join(account, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ca.crt", authority)
	write("namespace", []byte(s.name))
	write("token", bytes.ToUpper([]byte(token)))
	server, err := url.Parse(s.server)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", server.Hostname())
	t.Setenv("KUBERNETES_SERVICE_PORT", server.Port())
	for _, other := range []string{"KUBECONFIG", "NAMESPACE", "POD_NAME"} {
		t.Setenv(other, "")
	}
	p := startPickerBy(t, append(apart(), "sh", "-c", inPod, "/var/run/secrets/kubernetes.io/serviceaccount", account,
		signalbox), "--pool-name", "llama")
	p.ready(false)
	eventually(t, "/readyz says why", func() bool { return strings.Contains(p.page("/readyz"), "Unauthorized") })
	write("token", []byte(token))
	machine := lateness.Begin()
	machine.Within(t, "ready after the token came", p.ready(true), 2*time.Second)
	p.serves("10.0.0.1:8000")
}
