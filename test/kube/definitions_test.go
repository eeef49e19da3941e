package kube

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Definitions of a file come in the place of ours, which count where the file has none.
func TestDefinitionsOfAFile(t *testing.T) {
	text, err := os.ReadFile("testdata/inferencepools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "published.yaml")
	changed := strings.Replace(string(text), "unapproved, for tests", "unapproved, of a file", 1)
	if err := os.WriteFile(file, []byte("---\n"+changed+"---\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := *crds
	*crds = file
	t.Cleanup(func() { *crds = before })
	c := newCluster(t)
	if err := c.define("testdata/inferenceobjectives.yaml"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"inferencepools.inference.networking.k8s.io": "unapproved, of a file", "inferenceobjectives.llm-d.ai": "",
	} {
		made, err := c.do(http.MethodGet, definitions+"/"+name, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		notes, _ := made["metadata"].(map[string]any)["annotations"].(map[string]any)
		if got, _ := notes["api-approved.kubernetes.io"].(string); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
