package app

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const fileDiscoveryText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- {type: file-discovery, parameters: {path: PATH}}
dataLayer: {discovery: {endpoints: {pluginRef: file-discovery}}}
`

// checked is what config check says of files, and whether it ends well.
func checked(ctx context.Context, stdin string, args ...string) (out, problems string, err error) {
	var o, p strings.Builder
	c := newRoot()
	c.SetArgs(append([]string{"config", "check"}, args...))
	c.SetIn(strings.NewReader(stdin))
	c.SetOut(&o)
	c.SetErr(&p)
	err = c.ExecuteContext(ctx)
	return o.String(), p.String(), err
}

func TestConfigCheckTakesFilesOfBothKinds(t *testing.T) {
	t.Chdir(t.TempDir())
	names := strings.NewReplacer("PATH", "endpoints.yaml")
	for name, text := range map[string]string{
		"endpoints.yaml": "endpoints:\n- {name: a, address: 10.0.0.1, port: 1}\n- {name: a, address: 10.0.0.2, port: " +
			"1}\n",
		"broken.yaml": "endpoints:\n- {name: a, address: 10.0.0.1, port: 0}\n- {name: b, port: 1}\n",
		"good.yaml":   names.Replace(fileDiscoveryText), "absent.yaml": strings.ReplaceAll(fileDiscoveryText, "PATH",
			"nowhere.yaml"),
		"far.yaml":  strings.ReplaceAll(fileDiscoveryText, "PATH", "broken.yaml"),
		"loop.yaml": strings.ReplaceAll(fileDiscoveryText, "PATH", "good.yaml"),
		"dash.yaml": strings.ReplaceAll(fileDiscoveryText, "PATH", `"-"`), "empty.yaml": "",
		"utf8.yaml": "endpoints:\n- name: \"\xff\"\n",
	} {
		writeText(t, name, text)
	}
	const (
		good = "profile default\n  scorer  queue-scorer, weight 1\n  picker  max-score-picker\nhandler   " +
			"single-profile-handler\nendpoints endpoints.yaml\n"
		doubled  = "endpoints.yaml: warning: line 2: name: a stands in line 3 again: this entry is left out\n"
		notThere = "absent.yaml: line 5: plugins[1].parameters.path: open nowhere.yaml: no such file or directory; a " +
			"relative path begins at the working directory\n"
		broken = "broken.yaml: line 2: endpoints[0].port: got \"0\", want 1 to 65535\nbroken.yaml: line 3: " +
			"endpoints[1].address: missing\n"
		another = "good.yaml: line 1: apiVersion: unknown key, the only one is endpoints\n" +
			"good.yaml: line 1: endpoints: missing; a file without endpoints says endpoints: []\n" +
			"good.yaml: line 2: kind: unknown key, the only one is endpoints\n" +
			"good.yaml: line 3: plugins: unknown key, the only one is endpoints\ngood.yaml: line 6: dataLayer: " +
			"unknown key, the only one is endpoints\n"
		empty = "empty.yaml: empty; without a configuration file the default configuration holds\n"
	)
	for name, c := range map[string]struct {
		args                      string
		stdin, out, problems, err string
	}{
		"configuration": {args: "good.yaml", out: good, problems: doubled},
		"endpoints":     {args: "endpoints.yaml", out: "endpoints 1\n", problems: doubled},
		"both": {args: "endpoints.yaml good.yaml", out: "endpoints.yaml:\nendpoints 1\n\ngood.yaml:\n" +
			good, problems: doubled + doubled},
		"standard input": {args: "-", stdin: "endpoints: []", out: "endpoints 0\n"},
		"bad standard input": {args: "-", stdin: "plugins: 5", problems: "-: line 1: plugins: got 5, want a list\n" +
			"-: line 1: apiVersion: missing, want llm-d.ai/v1\n-: line 1: kind: missing, want EndpointPickerConfig\n",
			err: "problems: 3, in 1 of 1 files"},
		"file of a path": {args: "absent.yaml", problems: notThere, err: "problems: 1, in 1 of 1 files"},
		"files are elsewhere": {args: "--files=false absent.yaml", out: strings.ReplaceAll(good, "endpoints.yaml",
			"nowhere.yaml")},
		"what a path names":    {args: "far.yaml", problems: broken, err: "problems: 2, in 1 of 1 files"},
		"path to another kind": {args: "loop.yaml", problems: another, err: "problems: 5, in 1 of 1 files"},
		"a path of -": {args: "dash.yaml", stdin: "endpoints: []", err: "problems: 1, in 1 of 1 files",
			problems: "dash.yaml: line 5: plugins[1].parameters.path: open -: no such file or directory; a relative " +
				"path begins at the working directory\n"},
		"some are bad": {args: "empty.yaml endpoints.yaml broken.yaml", out: "\nendpoints.yaml:\nendpoints 1\n",
			problems: empty + doubled + broken, err: "problems: 3, in 2 of 3 files"},
		"not UTF-8": {args: "utf8.yaml",
			problems: "utf8.yaml: line 2: not readable as YAML: byte 0xff is not UTF-8\n",
			err:      "problems: 1, in 1 of 1 files"},
		"a directory": {args: ".", problems: ".: read .: is a directory\n", err: "problems: 1, in 1 of 1 files"},
		"not there": {args: "nowhere", problems: "nowhere: open nowhere: no such file or directory\n",
			err: "problems: 1, in 1 of 1 files"},
		"too long": {args: "-", stdin: strings.Repeat("#", 3<<20), problems: "-: more than 1048576 bytes, the limit\n",
			err: "problems: 1, in 1 of 1 files"},
	} {
		out, problems, err := checked(t.Context(), c.stdin, strings.Fields(c.args)...)
		if got := errorText(err); out != c.out || problems != c.problems || got != c.err {
			t.Errorf("%s: got\n%s---\n%s---\n%s\nwant\n%s---\n%s---\n%s", name, out, problems, got, c.out, c.problems,
				c.err)
		}
	}
}

// What the light lane takes from a plugin is said with its reason; a file that it does not concern has no such line.
func TestConfigCheckSaysWhatTheLightLaneChanges(t *testing.T) {
	const head = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n"
	const counts = ", in which a request counts until Envoy's access log tells its end; without that log it counts " +
		"until the headers of its response\n"
	const audits = "prefix-cache-scorer reads prefix-blocks, which may have what a server has lost for some 400 " +
		"requests, because one answer in twenty shows cached tokens; with a file of signalbox envoy-config --lane " +
		"full all do\n"
	const evicts = "featureGates: [flowControl]\nflowControl: {enableEviction: true}\n"
	const follows = "- {type: approx-prefix-cache-producer, parameters: {followCaches: true}}\n"
	for name, c := range map[string]struct{ text, want string }{
		"samples and labels": {text: "- type: queue-scorer\n- type: decode-filter\n"},
		"prompts": {"- type: queue-scorer\n- type: prefix-cache-scorer\n" + follows,
			"-: light lane: line 5: plugins[1]: " + audits},
		"prompts, as in the reference": {text: "- type: queue-scorer\n- type: prefix-cache-scorer\n"},
		"nothing that runs": {"- {type: active-request-scorer, name: idle}\n- type: queue-scorer\n" +
			"schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]\n",
			"-: warning: line 4: plugins[0]: nothing names idle, so it has no effect\n"},
		"requests in flight": {"- {type: active-request-scorer, name: busy}\n- {type: prefix-cache-scorer, " +
			"parameters: {yieldAboveRequests: 8}}\n" + follows,
			"-: light lane: line 4: plugins[0]: busy reads inflight-requests" + counts +
				"-: light lane: line 5: plugins[1]: " + audits +
				"-: light lane: line 5: plugins[1]: prefix-cache-scorer reads inflight-requests" + counts},
		"tokens in flight": {"- type: queue-scorer\n- type: endpoint-attribute-filter\n  parameters: {attributeKey: " +
			"inflight-tokens, algorithm: {threshold: {operator: LessThan, value: 9}}}\n",
			"-: light lane: line 5: plugins[1]: endpoint-attribute-filter reads inflight-tokens" + counts},
		"stages": {"- type: queue-scorer\n- type: always-disagg-pd-decider\n- type: disagg-profile-handler\n" +
			"  parameters: {profiles: {decode: all, prefill: p}, deciders: {prefill: always-disagg-pd-decider}}\n" +
			"schedulingProfiles: [{name: all, plugins: [{pluginRef: queue-scorer}]}, " +
			"{name: p, plugins: [{pluginRef: queue-scorer}]}]\n",
			"-: light lane: line 6: plugins[2]: disagg-profile-handler: prefill and encode servers have a request's " +
				"load until the headers of its response, not until its first token\n"},
		"rewrites": {"- type: queue-scorer\nmodelRewrites: [{name: r, rules: [{targets: [{modelRewrite: m}]}]}]\n",
			"-: light lane: line 5: modelRewrites: answers name the model that served, not the one that the client " +
				"asked for; with a file of signalbox envoy-config --lane full they name the latter\n"},
		"eviction": {"- type: queue-scorer\n" + evicts + "objectives: [{name: batch, priority: -1}]\n",
			"-: light lane: line 6: flowControl.enableEviction: a running request is ended only until the headers of " +
				"its response: its body bypasses Signalbox, which cannot end it then; with a file of signalbox " +
				"envoy-config --lane full answers that have begun are ended\n"},
		"eviction of none": {"- type: queue-scorer\n" + evicts, "-: warning: line 6: flowControl.enableEviction: no " +
			"objective has a negative priority, so no running request is ever ended\n"},
		"a handler without stages": {text: "- type: queue-scorer\n- {type: disagg-profile-handler, parameters: " +
			"{profiles: " +
			"{decode: all}}}\nschedulingProfiles: [{name: all, plugins: [{pluginRef: queue-scorer}]}]\n"},
	} {
		if _, problems, err := checked(t.Context(), head+c.text, "-"); problems != c.want || err != nil {
			t.Errorf("%s: got\n%s%v, want\n%s", name, problems, err, c.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Nothing that a command reads keeps it from ending at the first signal, which ends its context.
func TestPipesAreGivenUpAtTheFirstSignal(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args   []string
		writer bool // stands at the other end, and writes nothing
	}{
		"nothing writes":       {[]string{"config", "check", pipe}, false},
		"serve":                {[]string{"--endpoints", "e.yaml", "--config-file", pipe}, false},
		"a file for Envoy":     {[]string{"envoy-config", "--endpoints", pipe}, false},
		"a writer that stands": {[]string{"config", "check", pipe}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, signal := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				root := newRoot()
				root.SetArgs(c.args)
				ended <- root.ExecuteContext(ctx)
			}()
			var writer *os.File
			if c.writer {
				within10s(t, "opening the pipe", func() bool {
					// fails until the command has opened it
					var err error
					writer, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
					return err == nil
				})
			}
			signal()
			select {
			case err := <-ended:
				if err == nil || !strings.Contains(err.Error(), "interrupted") {
					t.Errorf("got %v, want that it was interrupted", err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("config check does not end within 10 s")
			}
			writer.Close()
			within10s(t, "the end of what reads the pipe", func() bool {
				// What waits to open the pipe goes on, and reads to its end. It may begin to wait only now, and a
				// goroutine that has not run yet stands there by what began it.
				unblock, err := os.OpenFile(pipe, os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				unblock.Close()
				stacks := make([]byte, 1<<20)
				return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("app.inBackground"))
			})
		})
	}
}
