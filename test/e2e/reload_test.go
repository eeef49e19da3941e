package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mount is a folder in which a configuration changes as editors, tools and ConfigMaps change it.
type mount struct {
	*testing.T
	folder, file string
}

func (m mount) try(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// write writes a configuration with this scorer.
func (m mount) write(path, scorer string) {
	m.Helper()
	text := `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: ` + scorer + `}, {type: max-score-picker}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: ` + scorer + `}, {pluginRef: max-score-picker}]}]
`
	m.try(os.WriteFile(path, []byte(text), 0o600))
}

// swap mounts another version: a link changes that the file's link leads through.
func (m mount) swap(version, scorer string) {
	m.Helper()
	m.try(os.Mkdir(filepath.Join(m.folder, version), 0o700))
	m.write(filepath.Join(m.folder, version, "config.yaml"), scorer)
	data := filepath.Join(m.folder, "data")
	m.try(os.Symlink(version, data+".new"))
	m.try(os.Rename(data+".new", data))
}

// shows waits two seconds at most until a page of the metrics port has all parts.
func (p *picker) shows(t *testing.T, page string, parts ...string) {
	t.Helper()
	eventually(t, 2*time.Second, strings.Join(parts, ", "), func() bool {
		_, got := get(p.metrics + page)
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(got, part) })
	})
}

// TestCommandConfigurationsAreReloaded changes the file while the command serves: mounted anew, renamed over, written,
// and bad. Each counts within two seconds.
func TestCommandConfigurationsAreReloaded(t *testing.T) {
	folder := t.TempDir()
	m := mount{t, folder, filepath.Join(folder, "config.yaml")}
	m.swap("1", "queue-scorer")
	m.try(os.Symlink(filepath.Join("data", "config.yaml"), m.file))
	p := serve(t, nil, "--config-file", m.file)
	p.shows(t, "/debug/config", "scorer  queue-scorer", "number        1,")
	m.swap("2", "kv-cache-utilization-scorer")
	p.shows(t, "/debug/config", "scorer  kv-cache-utilization-scorer", "number        2,")
	m.write(m.file+".new", "active-request-scorer")
	m.try(os.Rename(m.file+".new", m.file))
	p.shows(t, "/debug/config", "scorer  active-request-scorer", "number        3,")
	m.write(m.file, "no-such-scorer")
	p.shows(t, "/debug/config", "scorer  active-request-scorer", "number        3,", "no-such-scorer")
	p.shows(t, "/readyz", "ok\n", "configuration 3 stays in force")
	p.shows(t, "/metrics", "signalbox_config_last_reload_successful 0\n", "signalbox_config_number 3\n")

	for _, c := range []struct {
		path, scorer string
		want         int
		says         string
	}{
		{"reload", "no-such-scorer", 422, "no-such-scorer"},
		{"reload", "load-aware-scorer", 200, "scorer  load-aware-scorer"},
		{"restore", "load-aware-scorer", 200, "scorer  active-request-scorer"},
	} {
		m.write(m.file, c.scorer)
		code, body := postTo(t, p.metrics+"/debug/config/"+c.path)
		if code != c.want || !strings.Contains(body, c.says) {
			t.Errorf("POST %s: %d %s, want %d and %s", c.path, code, body, c.want, c.says)
		}
	}
	p.shows(t, "/metrics", "signalbox_config_last_reload_successful 1\n")
}

// TestEnvoyRequestsHaveThePriorityOfTheFile changes the priority of an objective while requests name it. The next
// request after the change has the new one, in its record and its metrics.
func TestEnvoyRequestsHaveThePriorityOfTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	objectives := func(list string) {
		writeFile(t, file, "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nobjectives: "+list+"\n")
	}
	objectives("[{name: chat, priority: 7}]")
	s := startStack(t, echoServers(t, 1), "--config-file", file)
	for i, c := range []struct {
		list, header, name string
		priority           int
	}{
		{"", "X-Llm-D-Inference-Objective", "chat", 7},
		{"", "X-Llm-D-Inference-Objective", "other", 0},
		{"[{name: chat, priority: -3}, {name: other, priority: 2}]", "X-Llm-D-Inference-Objective", "chat", -3},
		{"", "X-Gateway-Inference-Objective", "other", 2},
		{"[]", "X-Llm-D-Inference-Objective", "chat", 0},
	} {
		if c.list != "" {
			objectives(c.list)
			s.picker.shows(t, "/debug/config", "number        "+strconv.Itoa(1+(i+1)/2)+",")
		}
		flow := fmt.Sprintf("flow-%d", i)
		a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody(model, "hello", 4, false),
			http.Header{c.header: {c.name}, "X-Llm-D-Inference-Fairness-Id": {flow}})
		if got := a.echoed(t).Header[c.header]; !slices.Equal(got, []string{c.name}) {
			t.Errorf("%s %s: the server received %q", c.header, c.name, got)
		}
		record := regexp.MustCompile(fmt.Sprintf(`"fairness_id": "%s",\s+"priority": %d,`, flow, c.priority))
		eventually(t, 2*time.Second, record.String(), func() bool {
			_, page := get(s.picker.metrics + "/debug/requests?format=json")
			return record.MatchString(page)
		})
		s.picker.shows(t, "/metrics", fmt.Sprintf("_request_total{fairness_id=%q,model_name=%q,priority=\"%d\",", flow,
			model, c.priority))
	}
}

func postTo(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Post(url, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
