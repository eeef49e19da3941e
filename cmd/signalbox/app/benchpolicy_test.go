package app

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The command reads traces, plays them, and writes a table and a page.
func TestBenchPolicy(t *testing.T) {
	t.Chdir(t.TempDir())
	var sessions strings.Builder
	for i := range 40 {
		fmt.Fprintf(
			&sessions,
			`{"tools":%d,"system":640,"r":[[0,9000,160,140,-1,0,0,1,0],[9,10000,160,156,1,140,3,1,0]]}`+"\n",
			640*(i%4),
		)
	}
	writeText(t, "sessions.jsonl", sessions.String())
	writeText(t, "mine.yaml", "featureGates: [flowControl]\n"+`apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: queue-scorer}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
`)
	var out strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs(
		strings.Fields("bench-policy --quiet --trace sessions.jsonl --config mine.yaml --scenarios one-to-four " +
			"--policies round-robin,without-file,mine.yaml --seeds 1 --timing cpu --html page.html"),
	)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nideal-sticky ", "\nround-robin ", "\nwithout-file ", "\nmine.yaml ",
		"clients of sessions.jsonl, 4 servers", "timing cpu\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant in it %q", out.String(), want)
		}
	}
	page, err := os.ReadFile("page.html")
	if err != nil || !strings.Contains(string(page), "<svg") || !strings.HasSuffix(string(page), "</html>\n") {
		t.Errorf("the page: %v, %d bytes; want a whole one with charts", err, len(page))
	}
}

func TestBenchPolicyRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	writeText(t, "short.jsonl", `{"timestamp":0,"input_length":5`)
	writeText(t, "requests.jsonl", `{"timestamp":0,"input_length":5,"output_length":1}`)
	for args, want := range map[string]string{
		"--seeds 0 --workers 0": "--seeds: got 0, want 1 to 64\n--workers: got 0, want 1 to 1024",
		"--loads 1,-1":          `--loads: got "-1", want numbers above 0, to 10`,
		"--loads NaN":           `--loads: got "NaN", want numbers above 0, to 10`,
		"--timing tpu":          `--timing: got "tpu", want gpu or cpu`,
		"--trace nowhere":       "open nowhere: no such file or directory",
		"--trace short.jsonl":   "short.jsonl: line 1: unexpected end of JSON input",
		"--trace requests.jsonl --trace requests.jsonl": "requests.jsonl: of the same kind as requests.jsonl; want " +
			"one trace of sessions and one of requests",
		"--config nowhere":         "open nowhere: no such file or directory",
		"--html nowhere/page.html": "open nowhere/page.html: no such file or directory",
		"--quiet --scenarios rain": `no scenario "rain"; there are agentic 0.7`,
	} {
		root := newRoot()
		root.SetArgs(append([]string{"bench-policy"}, strings.Fields(args)...))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
}
