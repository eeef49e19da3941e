// Package kube tests discovery through Kubernetes on a real kube-apiserver, which test/kubelab builds: one process for
// the whole run, a namespace for each test. No pod is scheduled or runs there; the tests write what a kubelet would.
// Without the binary of `make kubelab` all tests are left out, with one line that says so. One that $KUBELAB names must
// be there.
package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Set once by TestMain, read by every test.
var (
	labBinary string   // the kube-apiserver
	signalbox string   // the command
	shared    *cluster // of all tests but those that stop it
)

// crds names a file whose definitions take the place of those of testdata that have their names, such as those that
// the projects publish.
var crds = flag.String("crds", "", "YAML file of CustomResourceDefinitions, in the place of those of testdata")

// referenceChart is the chart of the reference that is upgraded, such as one that its project publishes.
var referenceChart = flag.String("reference-chart", "testdata/reference", "folder of the reference's chart")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if labBinary, err = findLab(); err != nil && os.Getenv("KUBELAB") != "" {
		fmt.Fprintf(os.Stderr, "KUBELAB: %v\n", err)
		return 1
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "*** NO KUBE-APISERVER: the tests of test/kube are left out. `make kubelab` builds "+
			"one: %v ***\n", err)
		return 0
	}
	folder, err := os.MkdirTemp("", "kube")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	signalbox = filepath.Join(folder, "signalbox")
	if out, err := exec.Command("go", "build", "-o", signalbox, "../../cmd/signalbox").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building signalbox: %v\n%s", err, out)
		return 1
	}
	if shared, err = startCluster(filepath.Join(folder, "lab")); err == nil {
		defer shared.stop()
		err = shared.define("testdata/inferencepools.yaml", "testdata/loosepools.yaml")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// findLab returns the binary that $KUBELAB names, or the one that `make kubelab` built of the source as it is now.
func findLab() (string, error) {
	path := os.Getenv("KUBELAB")
	if path == "" {
		sum := sha256.New()
		for _, name := range []string{"main.go", "go.mod", "go.sum"} {
			text, err := os.ReadFile(filepath.Join("../kubelab", name))
			if err != nil {
				return "", err
			}
			sum.Write(text)
		}
		path = filepath.Join("../../.kubelab", "kubelab-"+hex.EncodeToString(sum.Sum(nil))[:16])
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	_, err = os.Stat(path)
	return path, err
}
