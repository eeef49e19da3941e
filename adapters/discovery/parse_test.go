package discovery

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestFilesThatAreGood(t *testing.T) {
	a := Entry{Name: "a", Namespace: "default", IP: ip("10.0.0.1"), Port: 8000}
	for name, c := range map[string]struct {
		file string
		want []Entry
	}{
		"all keys": {"endpoints:\n- name: a\n  namespace: prod\n  address: 10.0.0.1\n  port: \"8000\"\n  labels: " +
			"{role: decode, \"n\": 1}\n",
			[]Entry{{Name: "a", Namespace: "prod", IP: ip("10.0.0.1"), Port: 8000,
				Labels: map[string]string{"role": "decode", "n": "1"}}}},
		"port as a number": {"endpoints: [{name: a, address: 10.0.0.1, port: 8000}]", []Entry{a}},
		"JSON": {"{\n\t\"endpoints\": [\n\t\t{\"name\": \"a\", \"address\": \"10.0.0.1\", \"port\": " +
			"\"8000\"}\n\t]\n}\n", []Entry{a}},
		"IPv6": {`endpoints: [{name: a, address: "2001:db8::1", port: 1}]`,
			[]Entry{{Name: "a", Namespace: "default", IP: ip("2001:db8::1"), Port: 1}}},
		"IPv6 in brackets": {`endpoints: [{name: a, address: "[2001:db8::1]", port: 1}]`,
			[]Entry{{Name: "a", Namespace: "default", IP: ip("2001:db8::1"), Port: 1}}},
		"IPv4 within IPv6": {`endpoints: [{name: a, address: "::ffff:10.0.0.1", port: 8000}]`, []Entry{a}},
		"host name": {"endpoints: [{name: a, address: vLLM-0.my_pods.svc., port: 8000}]",
			[]Entry{{Name: "a", Namespace: "default", Host: "vllm-0.my_pods.svc", Port: 8000}}},
		"last of a name": {"endpoints: [{name: a, address: 10.0.0.9, port: 1}, {name: a, namespace: n, address: " +
			"h, port: 2}, {name: a, address: 10.0.0.1, port: 8000}]",
			[]Entry{{Name: "a", Namespace: "n", Host: "h", Port: 2}, a}},
		"no endpoints": {"endpoints: []", []Entry{}},
		"no labels":    {"endpoints: [{name: a, address: 10.0.0.1, port: 8000, labels: }]", []Entry{a}},
		"comments and CRLF": {"# mine\r\nendpoints:\r\n- {name: a, address: 10.0.0.1, port: 8000} # one\r\n",
			[]Entry{a}},
	} {
		got, _, err := Parse([]byte(c.file))
		for i := range got {
			got[i].line = 0
		}
		if err != nil || (len(got) > 0 || len(c.want) > 0) && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, %v\nwant %+v", name, got, err, c.want)
		}
	}
}

func TestEveryProblemIsNamedWithItsLineAndPath(t *testing.T) {
	const file = `endpoint: []
endpoints:
- name: a
  address: 10.0.0.300
  port: "0"
- address: 10.0.0.1:8000
  port: [8000]
  labels: {x: {y: z}, w: }
  weight: 3
- just text
- name: ""
  name: b
  address: fe80::1%eth0
  port: 65536
- {name: c, namespace: , address: 0.0.0.0, port: 8000}
endpoints: []
`
	want := []string{
		"line 1: endpoint: unknown key, did you mean endpoints?",
		`line 4: endpoints[0].address: got "10.0.0.300", want an IPv4 or IPv6 address or a host name, without port`,
		`line 5: endpoints[0].port: got "0", want 1 to 65535`,
		"line 6: endpoints[1].name: missing",
		`line 6: endpoints[1].address: got "10.0.0.1:8000", want an IPv4 or IPv6 address or a host name, without port`,
		"line 7: endpoints[1].port: got a list, want text",
		"line 8: endpoints[1].labels.x: got a mapping, want text",
		"line 8: endpoints[1].labels.w: got nothing, want text",
		"line 9: endpoints[1].weight: unknown key, known are name, namespace, address, port, labels",
		`line 10: endpoints[2]: got "just text", want a mapping`,
		"line 12: endpoints[3].name: this key stands twice, first in line 11",
		`line 13: endpoints[3].address: got "fe80::1%eth0", want no zone: Envoy cannot reach it`,
		`line 14: endpoints[3].port: got "65536", want 1 to 65535`,
		`line 15: endpoints[4].address: got "0.0.0.0", want the address of one server`,
		"line 16: endpoints: this key stands twice, first in line 2",
	}
	entries, _, err := Parse([]byte(file))
	if err == nil || entries != nil {
		t.Fatalf("got %+v, %v", entries, err)
	}
	if got := strings.Split(err.Error(), "\n"); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

func TestEndpointsFileIsRecognised(t *testing.T) {
	for file, want := range map[string]bool{
		"endpoints: []": true, "{\"endpoints\": 5}": true, "endpoints:\nendpoints: []": true,
		"endpoint: []\nendpoints: []": true,
		"":                            false, "null": false, "- endpoints": false, "endpoints": false,
		"endpoints: [": false, "\xff": false, "endpoint: []": false,
		"apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nendpoints: []": false, "kind: x\nendpoints: []": false,
		"a: {endpoints: []}": false, "endpoints: [] #" + strings.Repeat("x", 1<<20): false,
	} {
		if got := Recognise([]byte(file)); got != want {
			t.Errorf("%.80q: recognised %t, want %t", file, got, want)
		}
	}
}

func TestFilesThatAreNoSet(t *testing.T) {
	many := strings.Repeat("- {}\n", 10_001)
	labels := ""
	for i := range 65 {
		labels += fmt.Sprintf("l%d: x, ", i)
	}
	for name, c := range map[string]struct{ file, want string }{
		"empty":             {"", "empty; a file without endpoints says endpoints: []"},
		"comment only":      {"# nothing\n", "endpoints: []"},
		"null":              {"---\n", "empty; a file without endpoints says endpoints: []"},
		"a list":            {"- name: a\n", "line 1: got a list, want a mapping"},
		"no key":            {"{}", "line 1: endpoints: missing; a file without endpoints says endpoints: []"},
		"key without value": {"endpoints:\n", "line 1: endpoints: got nothing, want a list"},
		"no YAML":           {"endpoints: [\n", "line "},
		"tab": {"endpoints:\n\t- name: a\n",
			"line 2: not readable as YAML: found character that cannot start any token"},
		"two documents": {"endpoints: []\n---\nendpoints: []\n", "line 2: got a second document, want one"},
		"label of nothing": {"endpoints: [{name: a, address: h, port: 1, labels: {a: }}]",
			"line 1: endpoints[0].labels.a: got nothing, want text"},
		"too long":          {"endpoints: [] #" + strings.Repeat("x", 1<<20), "more than 1048576 bytes"},
		"too many entries":  {"endpoints:\n" + many, "line 1: endpoints: got 10001 entries, want at most 10000"},
		"too many problems": {"endpoints:\n" + many[:5*200], "and 500 more"},
		"too many labels": {"endpoints: [{name: a, address: h, port: 1, labels: {" + labels + "}}]",
			"line 1: endpoints[0].labels: got 65, want at most 64"},
		"long name": {"endpoints: [{name: " + strings.Repeat("x", 254) + ", address: h, port: 1}]",
			"got 254 bytes, want 1 to 253"},
		"bad UTF-8": {"endpoints:\n- name: a\n  address: \"\xff\"\n",
			"line 3: not readable as YAML: byte 0xff is not UTF-8"},
		"control character": {"endpoints: []\n# \x01", "line 2: not readable as YAML: control character U+0001"},
		"no text":           {"\x00\x01\xff", ""},
	} {
		entries, _, err := Parse([]byte(c.file))
		if err == nil || entries != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %+v, %v\nwant %q", name, entries, err, c.want)
		}
	}
}

func TestDoublesAreNamedWithBothLines(t *testing.T) {
	const file = `endpoints:
- {name: a, address: 10.0.0.1, port: 1}
- {name: b, address: h, port: 1}
- {name: a, address: 10.0.0.2, port: 1}
- {name: c, address: "::ffff:10.0.0.2", port: 1}
- {name: d, address: H., port: 1}
- {name: d, namespace: n, address: h, port: 2}
`
	want := []string{
		"line 2: name: a stands in line 4 again: this entry is left out",
		"line 3: address: h:1 stands in line 6 again: this entry is left out",
		"line 4: address: 10.0.0.2:1 stands in line 5 again: this entry is left out",
	}
	entries, warnings, err := Parse([]byte(file))
	if err != nil || len(entries) != 3 {
		t.Fatalf("got %+v, %v, want 3 entries", entries, err)
	}
	if got := lines(warnings); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func lines(warnings Warnings) []string {
	var list []string
	for _, d := range warnings {
		list = append(list, d.String())
	}
	return list
}

func TestAliasesStandForWhatTheyName(t *testing.T) {
	entries, _, err := Parse([]byte("endpoints:\n- &a {name: a, address: h, port: 1, labels: {x: y}}\n- {<<: *a, " +
		"name: b, port: 2}\n"))
	if err != nil || len(entries) != 2 || entries[1].Name != "b" || entries[1].Labels["x"] != "y" ||
		entries[1].target() != "h:2" {
		t.Errorf("got %+v, %v", entries, err)
	}
}

// printed is a file of entries.
func printed(entries []Entry) string {
	type object = map[string]any
	list := []object{}
	for _, e := range entries {
		address := e.Host
		if address == "" {
			address = e.IP.String()
		}
		o := object{"name": e.Name, "namespace": e.Namespace, "address": address, "port": strconv.Itoa(int(e.Port))}
		if e.Labels != nil {
			o["labels"] = e.Labels
		}
		list = append(list, o)
	}
	b, err := yaml.Marshal(object{"endpoints": list})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// FuzzParse wants entries that are whole, and the same again once they are printed; or problems.
func FuzzParse(f *testing.F) {
	f.Add([]byte("endpoints:\n- {name: a, address: 10.0.0.1, port: 8000, labels: {a: b}}\n"))
	f.Add([]byte("{\"endpoints\": [{\"name\": \"a\", \"address\": \"::1\", \"port\": \"1\"}]}"))
	f.Add([]byte("endpoints: &a [*a]\n"))
	for _, file := range []string{
		"endpoints: []\n---\nendpoints: []\n", "endpoints:\n- {<<: {name: a}, address: h, port: 1}\n",
		"# mine\r\nendpoints:\r\n- {name: a, address: H., port: \"65535\"} # one\r\n",
		"endpoints: [{name: a, namespace: b, address: \"[::ffff:10.0.0.1]\", port: 0x10, labels: {x: !!binary eA==, " +
			"1: null}}]", "endpoints: [{name: a, address: 10.0.0.300, port: -1}, text, {name: a}]",
		"\xff\xfe{\x00}\x00",
	} {
		f.Add([]byte(file))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		entries, _, err := Parse(file)
		if err == nil && !Recognise(file) {
			t.Errorf("%q is not recognised", file)
		}
		if err != nil {
			var problems *strictyaml.Error
			if !errors.As(err, &problems) || entries != nil || len(problems.Problems) == 0 || err.Error() == "" {
				t.Errorf("%q: %+v, %v", file, entries, err)
			}
			return
		}
		names := map[string]bool{}
		for _, e := range entries {
			key := e.Namespace + "\x00" + e.Name
			if e.Name == "" || e.Namespace == "" || names[key] || e.Port == 0 || e.IP.IsValid() == (e.Host != "") {
				t.Errorf("%q: %+v", file, e)
			}
			names[key] = true
		}
		again, _, err := Parse([]byte(printed(entries)))
		for _, list := range [][]Entry{entries, again} {
			for i := range list {
				list[i].line = 0 // of each file its own
			}
		}
		if err != nil || len(entries)+len(again) > 0 && !reflect.DeepEqual(entries, again) {
			t.Errorf("%q: %+v, printed and read again %+v, %v", file, entries, again, err)
		}
	})
}

// A role that no filter reads is named with its line; a server without one, or of an odd other label, is not.
func TestRolesThatServeNothingAreNamed(t *testing.T) {
	file := "endpoints:\n"
	for i, labels := range []string{
		"llm-d.ai/role: decode", "llm-d.ai/role: decod", "", "role: decod", `llm-d.ai/role: ""`,
		"llm-d.ai/role: encode-prefill-decode",
	} {
		file += fmt.Sprintf("- {name: s%d, address: 10.0.0.%d, port: 1, labels: {%s}}\n", i, i+1, labels)
	}
	entries, warnings, err := Parse([]byte(file))
	if err != nil || len(entries) != 6 {
		t.Fatalf("%d entries, %v; want all 6", len(entries), err)
	}
	const want = ", want one of [decode prefill encode prefill-decode encode-prefill encode-prefill-decode both]: " +
		"profiles that filter by role pass this server by"
	if got := lines(warnings); !slices.Equal(got, []string{
		`line 3: labels.llm-d.ai/role: s1: got "decod"` + want, `line 6: labels.llm-d.ai/role: s4: got ""` + want,
	}) {
		t.Errorf("warnings:\n%s", strings.Join(got, "\n"))
	}
}
