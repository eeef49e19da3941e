package app

import (
	"encoding/json"
	"strings"
	"testing"
)

// ran runs a command line and returns what it prints.
func ran(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestConfigShowAndDiff(t *testing.T) {
	t.Chdir(t.TempDir())
	const file = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n- type: queue-scorer\n"
	writeText(t, "a.yaml", file)
	shown, err := ran(t, "", "config", "show", "a.yaml")
	if err != nil || !strings.Contains(shown, "- name: max-score-picker\n  type: max-score-picker\n  parameters:\n    "+
		"maxNumOfEndpoints: 3\n") {
		t.Errorf("show: %v\n%s", err, shown)
	}
	if out, err := ran(t, shown, "config", "diff", "a.yaml", "-"); err != nil || out != "" {
		t.Errorf("a file and what is shown of it: %q, %v", out, err)
	}
	other := file + "- {type: max-score-picker, parameters: {maxNumOfEndpoints: 1}}"
	out, err := ran(t, other, "config", "diff", "a.yaml", "-")
	if want := "plugins[max-score-picker].parameters.maxNumOfEndpoints: 3 -> 1\n"; out != want ||
		errorText(err) != "differences: 1" {
		t.Errorf("diff: got %q, %v; want %q", out, err, want)
	}
	for args, want := range map[string]string{
		"show a b":       "accepts at most 1 arg(s), received 2",
		"diff a.yaml":    "signalbox config diff: got 1 arguments, want 2: the FILES A and B; - is standard input",
		"diff a.yaml no": "no: open no: no such file or directory",
		"show -":         "-: empty; without a configuration file the default configuration holds",
	} {
		if _, err := ran(t, "", append([]string{"config"}, strings.Fields(args)...)...); errorText(err) != want {
			t.Errorf("config %s: got %v, want %s", args, err, want)
		}
	}
}

// What is shown without a file is a file to the same effect.
func TestConfigShowWithoutAFile(t *testing.T) {
	shown, err := ran(t, "", "config", "show")
	if err != nil || !strings.Contains(shown, "flowControl=false") || strings.Contains(shown, "learning-detector") ||
		!strings.Contains(shown, "expected-completion") {
		t.Errorf("%v\n%s", err, shown)
	}
	if again, err := ran(t, shown, "config", "show", "-"); err != nil || again != shown {
		t.Errorf("%v, and the file comes to\n%s", err, again)
	}
}

func TestConfigSchema(t *testing.T) {
	out, err := ran(t, "", "config", "schema")
	var schema struct {
		Version     string         `json:"$schema"`
		Definitions map[string]any `json:"definitions"`
	}
	if err != nil || json.Unmarshal([]byte(out), &schema) != nil || schema.Definitions["v1"] == nil ||
		schema.Version != "http://json-schema.org/draft-07/schema#" {
		t.Errorf("got %v, %.200s", err, out)
	}
}
