package kube

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// cluster is a kube-apiserver that runs, and its administrator.
type cluster struct {
	folder string
	flags  []string // of kube-apiserver, beside those of kubelab
	http   *http.Client
	server string // URL
	token  string
	ca     string // file of its certificate authority

	cmd   *exec.Cmd
	input io.Closer // held open as long as the process is to live
	ended chan struct{}
}

// object is an object as JSON has it.
type object map[string]any

// startCluster starts a kube-apiserver over a folder. It is tried a few times, for another process may take its port.
func startCluster(folder string, flags ...string) (*cluster, error) {
	c := &cluster{folder: folder, flags: flags}
	var failed error
	for range 4 {
		err := c.first()
		if err == nil {
			return c, c.connect()
		}
		failed = errors.Join(failed, err, os.RemoveAll(folder))
	}
	return nil, failed
}

// first starts the process over a folder without anything, at a port that it has again whenever it is restarted.
func (c *cluster) first() error {
	port, err := quietPort()
	err = errors.Join(err, os.MkdirAll(c.folder, 0o700),
		os.WriteFile(filepath.Join(c.folder, "port"), []byte(strconv.Itoa(port)), 0o600))
	if err != nil {
		return err
	}
	return c.start()
}

// quietPorts are those that quietPort has returned.
var quietPorts sync.Map

// quietPort returns a port of 127.0.0.1 that is free, each one once. By default Linux gives none of its range to
// whoever asks for any port, so it stays free while what listens there is restarted.
func quietPort() (int, error) {
	for range 1000 {
		port := 15_000 + rand.IntN(15_000)
		if _, given := quietPorts.LoadOrStore(port, true); given {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no port from 15000 to 29999 is free")
}

// start starts the process, which has its objects from before.
func (c *cluster) start() error {
	c.cmd = exec.Command(labBinary, append([]string{c.folder}, c.flags...)...)
	c.ended = make(chan struct{})
	input, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	output, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	log := &bytes.Buffer{} // read once the process has ended
	c.input, c.cmd.Stderr = input, log
	if err := c.cmd.Start(); err != nil {
		return err
	}
	ready := make(chan bool, 1)
	go func() {
		line, _ := bufio.NewReader(output).ReadString('\n')
		ready <- strings.HasPrefix(line, "ready ")
		_, _ = io.Copy(io.Discard, output)
		_ = c.cmd.Wait() // it is killed
		close(c.ended)
	}()
	if <-ready {
		return nil
	}
	c.stop()
	etcd, _ := os.ReadFile(filepath.Join(c.folder, "etcd.log")) // what it cannot go on after is told there alone
	return fmt.Errorf("kube-apiserver is not ready: %v\n%s\n%s", c.cmd.ProcessState,
		log.Bytes()[max(0, log.Len()-4000):], etcd[max(0, len(etcd)-1000):])
}

// connect reads how the API server is reached.
func (c *cluster) connect() error {
	text, err := os.ReadFile(c.kubeconfig())
	if err != nil {
		return err
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `yaml:"server"`
				CA     string `yaml:"certificate-authority"`
			} `yaml:"cluster"`
		} `yaml:"clusters"`
		Users []struct {
			User struct {
				Token string `yaml:"token"`
			} `yaml:"user"`
		} `yaml:"users"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return err
	}
	pem, err := os.ReadFile(config.Clusters[0].Cluster.CA)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	c.http = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
		Timeout:   20 * time.Second,
	}
	c.server, c.token = config.Clusters[0].Cluster.Server, config.Users[0].User.Token
	c.ca = config.Clusters[0].Cluster.CA
	return nil
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.folder, "kubeconfig") }

// kubeconfigOf writes a kubeconfig of another user.
func (c *cluster) kubeconfigOf(t *testing.T, token string) string {
	t.Helper()
	text, err := os.ReadFile(c.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte(c.token), []byte(token)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// kill ends the process without notice, and waits for that.
func (c *cluster) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// stop ends the process.
func (c *cluster) stop() {
	_ = c.input.Close()
	select {
	case <-c.ended:
	case <-time.After(20 * time.Second):
		c.kill()
	}
}

// counted returns the sum of a counter of the API server, over the series with a label.
func (s *space) counted(name, label string) (sum float64) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.server+"/metrics", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	response, err := s.http.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, name+"{") && strings.Contains(line, label) {
			value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
			if err != nil {
				s.t.Fatal(err)
			}
			sum += value
		}
	}
	if sum == 0 || lines.Err() != nil {
		s.t.Fatalf("no counter %s with %s: %v", name, label, lines.Err())
	}
	return sum
}

// do calls the API server. Body is an object, bytes of YAML, or nil. A status of 300 or more is an error.
func (c *cluster) do(method, path, contentType string, body any) (object, error) {
	text, isText := body.([]byte)
	if !isText && body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(context.Background(), method, c.server+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", cmp.Or(contentType, "application/json"))
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s %s: %d %s", method, path, response.StatusCode, answer)
	}
	var o object
	return o, json.Unmarshal(answer, &o)
}

// define stores the definitions of files, and waits until the API server has them. One of -crds takes the place of the
// one that has its name.
func (c *cluster) define(files ...string) error {
	others := map[string]object{}
	if *crds != "" {
		all, err := documents(*crds)
		if err != nil {
			return err
		}
		for _, definition := range all {
			name, err := definedName(definition)
			if err != nil {
				return fmt.Errorf("%s: %w", *crds, err)
			}
			others[name] = definition
		}
	}
	for _, file := range files {
		all, err := documents(file)
		if err != nil {
			return err
		}
		for _, definition := range all {
			name, err := definedName(definition)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if other, is := others[name]; is {
				definition = other
			}
			if err := c.defineServed(definition); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// documents returns the objects of a YAML file.
func documents(file string) (all []object, _ error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	rest := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var o object
		err := rest.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

// definedName returns the name of a definition.
func definedName(definition object) (string, error) {
	about, _ := definition["metadata"].(object)
	name, ok := about["name"].(string)
	if !ok || definition["kind"] != "CustomResourceDefinition" {
		return "", fmt.Errorf("got a %v, want a CustomResourceDefinition with a name", definition["kind"])
	}
	return name, nil
}

// defineServed stores a definition, and waits until its first version that is served is there.
func (c *cluster) defineServed(definition object) error {
	versions, _ := definition["spec"].(object)["versions"].([]any)
	for _, v := range versions {
		if v.(object)["served"] == true {
			return c.defineOne(definition, v.(object)["name"].(string))
		}
	}
	return fmt.Errorf("%v: no version is served", definition["metadata"])
}

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// defineOne stores a definition, which serves this version.
func (c *cluster) defineOne(definition object, version string) error {
	made, err := c.do(http.MethodPost, definitions, "", definition)
	if err != nil {
		return err
	}
	spec := made["spec"].(map[string]any)
	served := fmt.Sprintf("/apis/%v/%s/%v", spec["group"], version, spec["names"].(map[string]any)["plural"])
	err = errors.New("not looked at")
	for end := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(end); {
		if _, err = c.do(http.MethodGet, served, "", nil); err == nil {
			err = c.discovered(served)
		}
		<-time.After(10 * time.Millisecond)
	}
	return err
}

// discovered returns an error unless the API server says of the version of a path that it has the resource. It may
// answer for the resource before.
func (c *cluster) discovered(path string) error {
	version, plural := filepath.Split(path)
	says, err := c.do(http.MethodGet, strings.TrimSuffix(version, "/"), "", nil)
	if err != nil {
		return err
	}
	all, _ := says["resources"].([]any)
	if !slices.ContainsFunc(all, func(r any) bool { return r.(map[string]any)["name"] == plural }) {
		return fmt.Errorf("%s is not said to have %s", version, plural)
	}
	return nil
}

// looseDefinition is that of a resource whose fields may have any type.
func looseDefinition(group, kind, plural string) object {
	return looseDefinitionOf(group, kind, plural, looseVersion("v1alpha2", true))
}

// looseVersion is a version of such a definition. Objects are stored as the one that is served.
func looseVersion(name string, served bool) object {
	return object{
		"name": name, "served": served, "storage": served, "schema": object{"openAPIV3Schema": object{
			"type": "object", "x-kubernetes-preserve-unknown-fields": true,
		}},
	}
}

// looseDefinitionOf is such a definition with versions.
func looseDefinitionOf(group, kind, plural string, versions ...object) object {
	return object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": plural + "." + group},
		"spec": object{
			"group": group, "scope": "Namespaced",
			"names": object{
				"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind),
			},
			"versions": versions,
		},
	}
}

var namespaces atomic.Int64

// space is a namespace of a cluster, for one test.
type space struct {
	*cluster
	t    *testing.T
	name string
}

func newSpace(t *testing.T, c *cluster) *space {
	t.Helper()
	s := &space{cluster: c, t: t, name: fmt.Sprintf("test-%d", namespaces.Add(1))}
	s.must(http.MethodPost, "/api/v1/namespaces", "", object{"metadata": object{"name": s.name}})
	return s
}

func (s *space) must(method, path, contentType string, body any) object {
	s.t.Helper()
	o, err := s.do(method, path, contentType, body)
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (s *space) pods() string { return "/api/v1/namespaces/" + s.name + "/pods" }

func (s *space) pools(group string) string {
	return "/apis/" + group + "/v1/namespaces/" + s.name + "/inferencepools"
}

const poolGroup = "inference.networking.k8s.io"

// pod creates a pod that is Ready at an address.
func (s *space) pod(name, ip string, labels map[string]string, annotations map[string]string) {
	s.t.Helper()
	s.must(http.MethodPost, s.pods(), "", object{
		"metadata": object{"name": name, "labels": labels, "annotations": annotations},
		"spec":     object{"containers": []object{{"name": "vllm", "image": "vllm"}}},
	})
	s.status(name, ip, true)
}

// status writes what a kubelet would.
func (s *space) status(name, ip string, ready bool) {
	s.t.Helper()
	is := "False"
	if ready {
		is = "True"
	}
	s.merge(s.pods()+"/"+name+"/status", object{"status": object{
		"phase": "Running", "podIP": ip, "podIPs": []object{{"ip": ip}},
		"conditions": []object{{"type": "Ready", "status": is}},
	}})
}

func (s *space) merge(path string, patch object) {
	s.t.Helper()
	s.must(http.MethodPatch, path, "application/merge-patch+json", patch)
}

// remove deletes an object at once.
func (s *space) remove(path string) {
	s.t.Helper()
	s.must(http.MethodDelete, path+"?gracePeriodSeconds=0", "", nil)
}

// pool creates the InferencePool llama of the pods with app=vllm.
func (s *space) pool(ports ...int) {
	s.t.Helper()
	s.must(http.MethodPost, s.pools(poolGroup), "", poolObject(poolGroup, "llama", ports...))
}

func poolObject(group, name string, ports ...int) object {
	return object{
		"apiVersion": group + "/v1", "kind": "InferencePool", "metadata": object{"name": name},
		"spec": object{
			"selector": object{"matchLabels": object{"app": "vllm"}}, "targetPorts": portObjects(ports),
			"endpointPickerRef": object{"name": "picker", "port": object{"number": 9002}},
		},
	}
}

func portObjects(ports []int) (all []object) {
	for _, p := range ports {
		all = append(all, object{"number": p})
	}
	return all
}

var vllm = map[string]string{"app": "vllm"}
