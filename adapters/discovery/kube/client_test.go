package kube

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// A token that the API server takes no more is read again from its file.
func TestTokenFileIsReadAgain(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	const good = "Bearer second"
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != good {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`))
	}))
	defer api.Close()
	folder := t.TempDir()
	token, kubeconfig := filepath.Join(folder, "token"), filepath.Join(folder, "kubeconfig")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(token, "first\n")
	write(kubeconfig, "apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"clusters: [{name: c, cluster: {server: "+api.URL+", insecure-skip-tls-verify: true}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"users: [{name: u, user: {tokenFile: "+token+"}}]\n")
	cluster, err := Cluster(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(cluster, namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	target := Target{Selector: "app=vllm", Ports: []int{8000}}
	if _, err := r.Pods(t.Context(), target); reasonOf(err) != "unauthorized" {
		t.Fatalf("with the first token: %v, want that it is refused", err)
	}
	write(token, "second\n")
	_, _ = r.Pods(t.Context(), target) // a token is read again once it was refused to a call that did not read it
	if _, err := r.Pods(t.Context(), target); err != nil {
		t.Errorf("with the second token: %v", err)
	}
}
