package app

import (
	"strings"
	"testing"
)

func TestConfigConvert(t *testing.T) {
	t.Chdir(t.TempDir())
	const (
		older = "# ours\napiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: " +
			"passthrough-parser # all\nparser: {pluginRef: passthrough-parser}\n"
		newer = "# ours\napiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n- type: passthrough-parser # " +
			"all\n" +
			"requestHandler: {parsers: [{pluginRef: passthrough-parser}]}\n"
	)
	writeText(t, "older.yaml", older)
	writeText(t, "servers.yaml", "endpoints: []\n")
	for name, c := range map[string]struct{ args, stdin, out, err string }{
		"a file":         {args: "older.yaml", out: newer},
		"standard input": {args: "--to v1 -", stdin: older, out: newer},
		"is new":         {args: "-", stdin: newer, out: newer},
		"no file":        {args: "nowhere.yaml", err: "nowhere.yaml: open nowhere.yaml: no such file or directory"},
		"endpoints": {args: "servers.yaml",
			err: "servers.yaml: is an endpoints file; want a configuration"},
		"not YAML": {args: "-", stdin: "a: b: c",
			err: "-: line 1: not readable as YAML: mapping values are not allowed in this context"},
		"another version": {args: "--to v2 older.yaml", err: `--to: got "v2", want v1`},
		"two files": {
			args: "a b", err: "signalbox config convert: got 2 arguments, want 1: the FILE; - is standard input",
		},
	} {
		var out strings.Builder
		root := newRoot()
		root.SetArgs(append([]string{"config", "convert"}, strings.Fields(c.args)...))
		root.SetIn(strings.NewReader(c.stdin))
		root.SetOut(&out)
		err := root.ExecuteContext(t.Context())
		if got := errorText(err); out.String() != c.out || got != c.err {
			t.Errorf("%s: got\n%s---\n%s\nwant\n%s---\n%s", name, out.String(), got, c.out, c.err)
		}
	}
}
