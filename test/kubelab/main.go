// Kubelab is a kube-apiserver with its etcd in one process, for tests:
//
//	kubelab FOLDER [flags of kube-apiserver]
//
// It listens on a loopback port, writes FOLDER/kubeconfig, and prints "ready" once /readyz says ok. It ends when its
// standard input ends, so it never outlives the test that holds the other end, or on SIGTERM. A later run over the same
// folder has the same objects, address and token, as an API server that was restarted.
package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// readyWithin is how long a start may take on a busy machine.
const readyWithin = 90 * time.Second

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: kubelab FOLDER [flags of kube-apiserver]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubelab:", err)
		os.Exit(1)
	}
}

// cluster is what one folder holds.
type cluster struct {
	folder      string // absolute, and short: a path of a socket has 108 bytes at most
	port, token string
}

func run(folder string, flags []string) error {
	c, err := open(folder)
	if err != nil {
		return err
	}
	etcd, err := c.startEtcd()
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer etcd.Close()
	ended := make(chan int, 1)
	server := app.NewAPIServerCommand()
	server.SetArgs(append(c.flags(), flags...))
	go func() { ended <- cli.Run(server) }()
	if err := c.awaitReady(ended); err != nil {
		return err
	}
	if err := c.writeKubeconfig(); err != nil {
		return err
	}
	fmt.Println("ready", c.path("kubeconfig"))
	go endWithInput()
	if status := <-ended; status != 0 {
		return fmt.Errorf("kube-apiserver ended with status %d", status)
	}
	return nil
}

// endWithInput asks the API server to end once nobody holds the other end of standard input.
func endWithInput() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}

// open returns the cluster of a folder, with what the first run left there.
func open(folder string) (*cluster, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	c := &cluster{folder: folder}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	if c.port, err = c.kept("port", freePort); err != nil {
		return nil, err
	}
	if c.token, err = c.kept("token", newToken); err != nil {
		return nil, err
	}
	if _, err = c.kept("accounts.key", newKey); err != nil {
		return nil, err
	}
	users := c.token + ",admin,admin,system:masters\n"
	return c, os.WriteFile(c.path("users.csv"), []byte(users), 0o600)
}

func (c *cluster) path(name string) string { return filepath.Join(c.folder, name) }

// kept returns the text of a file, which the first run makes.
func (c *cluster) kept(name string, first func() (string, error)) (string, error) {
	text, err := os.ReadFile(c.path(name))
	if err == nil {
		return string(text), nil
	}
	made, err := first()
	if err != nil {
		return "", err
	}
	return made, os.WriteFile(c.path(name), []byte(made), 0o600)
}

// freePort returns a port that is free now. Another process may take it before the API server listens.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

func newToken() (string, error) { return rand.Text(), nil }

// newKey returns the key that signs tokens of service accounts.
func newKey() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})), err
}

// startEtcd starts etcd on sockets of the folder, which need no port. Its data need not outlive the machine.
func (c *cluster) startEtcd() (*embed.Etcd, error) {
	nowhere := url.URL{Scheme: "http", Host: "127.0.0.1:1"} // must be advertised; one member never dials it
	cfg := embed.NewConfig()
	cfg.Dir = c.path("etcd")
	cfg.LogLevel, cfg.LogOutputs = "error", []string{c.path("etcd.log")}
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: c.path("client")}}
	cfg.ListenPeerUrls = []url.URL{{Scheme: "unix", Path: c.path("peer")}}
	cfg.AdvertiseClientUrls, cfg.AdvertisePeerUrls = []url.URL{nowhere}, []url.URL{nowhere}
	cfg.InitialCluster = cfg.Name + "=" + nowhere.String()
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case <-time.After(readyWithin):
		etcd.Close()
		return nil, fmt.Errorf("not ready within %v", readyWithin)
	}
}

// flags returns those of kube-apiserver. Tests create pods themselves, so no service account is looked for in them.
func (c *cluster) flags() []string {
	return []string{
		"--etcd-servers=unix://" + c.path("client"),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + c.port,
		"--cert-dir=" + c.path("certs"),
		"--token-auth-file=" + c.path("users.csv"), "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubelab.test",
		"--service-account-key-file=" + c.path("accounts.key"),
		"--service-account-signing-key-file=" + c.path("accounts.key"),
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
		"--disable-admission-plugins=ServiceAccount", "--shutdown-delay-duration=0s",
	}
}

func (c *cluster) address() string { return "https://127.0.0.1:" + c.port }

func (c *cluster) certificate() string { return c.path("certs/apiserver.crt") }

// awaitReady waits until the API server says that it is ready.
func (c *cluster) awaitReady(ended <-chan int) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case status := <-ended:
			return fmt.Errorf("kube-apiserver ended with status %d before it was ready", status)
		case <-ctx.Done():
			return fmt.Errorf("not ready within %v: %w", readyWithin, c.ready(context.Background()))
		case <-look.C:
		}
		if c.ready(ctx) == nil {
			return nil
		}
	}
}

func (c *cluster) ready(ctx context.Context) error {
	certificate, err := os.ReadFile(c.certificate())
	if err != nil {
		return err // it is made by the API server
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address()+"/readyz", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(response.Body)
	return cmp.Or(err, errors.New(strings.TrimSpace(string(text))))
}

// writeKubeconfig writes the file by which clients reach the API server, whole or not at all.
func (c *cluster) writeKubeconfig() error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: kubelab, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: admin, user: {token: %q}}]
contexts: [{name: kubelab, context: {cluster: kubelab, user: admin}}]
current-context: kubelab
`, c.address(), c.certificate(), c.token)
	if err := os.WriteFile(c.path("kubeconfig.new"), []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(c.path("kubeconfig.new"), c.path("kubeconfig"))
}
