//go:build !nokubernetes

package app

import (
	"encoding/json"
	"strings"
	"testing"
)

// Preflight takes the flags of serve, says what is wrong with them, and looks at clusters alone.
func TestPreflightFlags(t *testing.T) {
	for args, want := range map[string]string{
		"":                       "no endpoints: name a file with --endpoints",
		"--endpoints e.yaml":     "the endpoints come from the file e.yaml: want --pool-name or --endpoint-selector",
		"--endpoint-selector a=": "--endpoint-target-ports: got 0 ports",
		"--pool-name p --kubeconfig /no/such/file": "/no/such/file: ",
		"--pool-name p --config-text nonsense":     "--config-text:",
	} {
		_, err := ran(t, "", append([]string{"preflight"}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
}

// A cluster that has nothing: each problem has its remedy below it, and the command fails.
func TestPreflightPrintsChecks(t *testing.T) {
	args := []string{"preflight", "--pool-name", "llama", "--kubeconfig", emptyCluster(t)}
	out, err := ran(t, "", args...)
	const want = "problem  api server: the server could not find the requested resource\n         see that it runs, "
	if err == nil || err.Error() != "problems: 1" || !strings.HasPrefix(out, want) {
		t.Errorf("got %v and %q, want one problem and %q", err, out, want)
	}
	out, err = ran(t, "", append(args, "--json")...)
	var form struct {
		Serves bool
		Checks []struct{ Name, Result, Found, Remedy string }
	}
	if jsonErr := json.Unmarshal([]byte(out), &form); jsonErr != nil || err == nil || form.Serves ||
		len(form.Checks) != 1 || form.Checks[0].Result != "problem" || form.Checks[0].Remedy == "" {
		t.Errorf("as JSON: %v, %v: %s", err, jsonErr, out)
	}
}
