package app

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/rewrites"
	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// pickingBy is a configuration whose only scorer, of this name, reads nothing that a server tells.
func pickingBy(name string) string {
	return `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: active-request-scorer, name: ` + name + `}
- {type: max-score-picker}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: ` + name + `, weight: 1}, {pluginRef: max-score-picker}]}
`
}

const badConfiguration = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins: [{type: no-such-scorer}]\n"

// configFile writes a configuration to a new file.
func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	rewrite(t, path, text)
	return path
}

func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitTrue waits until something is so.
func awaitTrue(t *testing.T, what string, so func() bool) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(20 * time.Second); !so(); <-look.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestABadConfigurationChangesNothing(t *testing.T) {
	var log bytes.Buffer
	file := configFile(t, pickingBy("a"))
	tr, end := quietTree(t, &log, "--config-file", file)
	f := tr.configuration
	first := f.current.Load()

	rewrite(t, file, badConfiguration)
	if err := f.reload(); err == nil || !strings.Contains(err.Error(), "line 3: plugins[0].type") {
		t.Errorf("a reload of a bad file: got %v, want its line", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := f.reload(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a reload without a file: got %v, want no such file", err)
	}
	v := f.view()
	if f.current.Load() != first || v.Number != 1 || v.Problem == nil || v.Before != 0 {
		t.Errorf("after bad files %+v is shown, want number 1 with a problem", v)
	}
	if c := f.concern(); !strings.Contains(c, "configuration 1 stays in force") {
		t.Errorf("readiness says %q, want that configuration 1 stays in force", c)
	}
	if n := testutil.ToFloat64(f.metrics.successful); n != 0 {
		t.Errorf("the last reload counts as %v, want 0", n)
	}

	rewrite(t, file, pickingBy("a"))
	if err := f.reload(); err != nil || f.current.Load() != first || f.concern() != "" || f.view().Problem != nil {
		t.Errorf("a reload of the first text: got %v, number %d, concern %q; want number 1 without a problem", err,
			f.view().Number, f.concern())
	}
	rewrite(t, file, pickingBy("b"))
	if err := f.reload(); err != nil || f.view().Number != 2 || f.view().Before != 1 {
		t.Errorf("a reload of a good file: got %v, %+v; want number 2 after 1", err, f.view())
	}
	for result, want := range map[string]float64{"refused": 2, "unchanged": 1, "changed": 1} {
		if n := testutil.ToFloat64(f.metrics.reloads.WithLabelValues(result)); n != want {
			t.Errorf("%v reloads are %s, want %v", n, result, want)
		}
	}
	end()
	for _, want := range []string{"configuration refused", "configuration in force", "all is well again"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &log)
		}
	}
}

func TestThePreviousConfigurationIsBroughtBackOnce(t *testing.T) {
	file := configFile(t, pickingBy("a"))
	tr, end := quietTree(t, io.Discard, "--config-file", file)
	defer end()
	f := tr.configuration
	var none admin.NotPossible
	if err := f.restore(); !errors.As(err, &none) {
		t.Errorf("a restore with nothing before: got %v, want that it is not possible", err)
	}
	rewrite(t, file, pickingBy("b"))
	if err := f.reload(); err != nil {
		t.Fatal(err)
	}
	if err := f.restore(); err != nil {
		t.Fatal(err)
	}
	v := f.view()
	if v.Number != 3 || v.Restored != 1 || !strings.Contains(v.Config, "scorer  a ") {
		t.Errorf("in force is %+v, want number 3, restored from 1", v)
	}
	if err := f.restore(); !errors.As(err, &none) || f.view().Number != 3 {
		t.Errorf("a second restore: got %v, number %d; want that it is not possible, number 3", err, f.view().Number)
	}
	if err := f.reload(); err != nil || f.view().Number != 4 || !strings.Contains(f.view().Config, "scorer  b ") {
		t.Errorf("a reload of what the file still holds: got %v, %+v; want number 4", err, f.view())
	}
}

// reloaded returns a configuration that is the second of its file, and the file.
func reloaded(t *testing.T) (file string, f *inForce, end func()) {
	t.Helper()
	file = configFile(t, pickingBy("a"))
	tr, end := quietTree(t, io.Discard, "--config-file", file)
	rewrite(t, file, pickingBy("b"))
	if err := tr.configuration.reload(); err != nil {
		t.Fatal(err)
	}
	return file, tr.configuration, end
}

// TestOnlyAGoodReadEndsAProblem brings another configuration into force while the file is bad: the next start would
// still fail.
func TestOnlyAGoodReadEndsAProblem(t *testing.T) {
	file, f, end := reloaded(t)
	defer end()
	rewrite(t, file, badConfiguration)
	_ = f.reload() // which has its own test
	for _, step := range []struct {
		name string
		do   func() error
		good float64
	}{
		{"a restore", f.restore, 0},
		{"a second restore", func() error { _ = f.restore(); return nil }, 0},
		{"other objectives", func() error {
			_ = f.add(config.Additions{Objectives: map[string]int{"o": 1}})
			return nil
		}, 0},
		{"the bad file again", func() error { f.read = nil; _ = f.reload(); return nil }, 0},
		{"a good file", func() error { rewrite(t, file, pickingBy("c")); return f.reload() }, 1},
		{"a restore after a good file", f.restore, 1},
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		gauge, problem, concern := testutil.ToFloat64(f.metrics.successful), f.view().Problem, f.concern()
		if gauge != step.good || (problem == nil) != (step.good == 1) || (concern == "") != (step.good == 1) {
			t.Errorf("after %s: gauge %v, problem %v, concern %q; want %v, and a problem only if 0", step.name, gauge,
				problem, concern, step.good)
		}
	}
}

// A configuration from before that cannot be built any more is no problem of the file.
func TestAFailedRestoreIsNoProblemOfTheFile(t *testing.T) {
	_, f, end := reloaded(t)
	defer end()
	f.previous.source.text = []byte(badConfiguration)
	if err := f.restore(); err == nil || f.view().Number != 2 {
		t.Errorf("a restore of what is bad by now: %v, number %d; want an error, number 2", err, f.view().Number)
	}
	if c := f.concern(); c != "" || testutil.ToFloat64(f.metrics.successful) != 1 {
		t.Errorf("the file is said to be bad: %q", c)
	}
}

func TestWhatOnlyTheNextStartChangesIsNamed(t *testing.T) {
	discovery := func(path string) string {
		plugin := "- {type: file-discovery, parameters: {path: " + path + ", watchFile: true}}\n"
		return strings.Replace(pickingBy("a"), "plugins:\n", "plugins:\n"+plugin, 1) +
			"dataLayer: {discovery: {endpoints: {pluginRef: file-discovery}}}\n"
	}
	endpoints := configFile(t, "endpoints: [{name: a, address: 127.0.0.1, port: 9}]\n")
	file := configFile(t, discovery(endpoints))
	tr, end := quietTree(t, io.Discard, "--config-file", file, "--endpoints", "")
	defer end()
	rewrite(t, file, discovery("elsewhere.yaml"))
	if err := tr.configuration.reload(); err != nil {
		t.Fatal(err)
	}
	if w := strings.Join(tr.configuration.view().Waits, "\n"); !strings.Contains(w, endpoints) ||
		!strings.Contains(w, "elsewhere.yaml") {
		t.Errorf("%q waits for the next start, want both endpoints files", w)
	}
	text, endText := quietTree(t, io.Discard, "--config-text", pickingBy("a"))
	defer endText()
	var none admin.NotPossible
	if err := text.configuration.reload(); !errors.As(err, &none) || !strings.Contains(err.Error(), "--config-text") {
		t.Errorf("a reload of --config-text: got %v, want that it is not possible", err)
	}
}

// TestFilesAreFollowed changes the file in the three ways of editors, tools and ConfigMaps.
func TestFilesAreFollowed(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "config.yaml")
	place := func(version, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(folder, version), 0o700); err != nil {
			t.Fatal(err)
		}
		rewrite(t, filepath.Join(folder, version, "config.yaml"), text)
		next := filepath.Join(folder, "next")
		if err := errors.Join(os.Symlink(version, next), os.Rename(next, filepath.Join(folder, "data"))); err != nil {
			t.Fatal(err)
		}
	}
	place("1", pickingBy("mounted"))
	if err := os.Symlink(filepath.Join("data", "config.yaml"), file); err != nil {
		t.Fatal(err)
	}
	tr, end := quietTree(t, io.Discard, "--config-file", file)
	defer end()
	if err := tr.configuration.follow(); err != nil {
		t.Fatal(err)
	}
	shows := func(name string) {
		t.Helper()
		machine, began := lateness.Begin(), time.Now()
		awaitTrue(t, name+" in force", func() bool {
			return strings.Contains(tr.configuration.view().Config, "scorer  "+name+" ")
		})
		machine.Within(t, name+" in force", time.Since(began), 2*time.Second)
	}
	place("2", pickingBy("swapped"))
	shows("swapped")
	aside := filepath.Join(folder, "aside")
	rewrite(t, aside, pickingBy("renamed"))
	if err := os.Rename(aside, file); err != nil {
		t.Fatal(err)
	}
	shows("renamed")
	rewrite(t, file, pickingBy("written"))
	shows("written")
	rewrite(t, file, badConfiguration)
	awaitTrue(t, "the problem is shown", func() bool { return tr.configuration.view().Problem != nil })
	rewrite(t, file, pickingBy("written"))
	awaitTrue(t, "it is gone", func() bool { return tr.configuration.view().Problem == nil })
	if n := tr.configuration.view().Number; n != 4 {
		t.Errorf("number %d, want 4", n)
	}
}

func TestTheConfigurationChangesByPost(t *testing.T) {
	file := configFile(t, pickingBy("a"))
	tr, end := quietTree(t, io.Discard, "--config-file", file, "--open-debug")
	defer end()
	ask := func(method, path string, change ...func(*http.Request)) (int, string) {
		r := httptest.NewRequest(method, path, nil)
		r.RemoteAddr, r.Host = "127.0.0.1:50000", "localhost:9090"
		for _, c := range change {
			c(r)
		}
		w := httptest.NewRecorder()
		tr.admin.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	rewrite(t, file, pickingBy("b"))
	for name, c := range map[string]func(*http.Request){
		"another machine": func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" },
		"a web page":      func(r *http.Request) { r.Header.Set("Origin", "https://example.com") },
		"a proxy":         func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") },
	} {
		if code, body := ask("POST", "/debug/config/reload", c); code != 403 || tr.configuration.view().Number != 1 {
			t.Errorf("%s: %d %s, number %d", name, code, body, tr.configuration.view().Number)
		}
	}
	for _, c := range []struct {
		method, path, text string
		want               int
		says               string
	}{
		{"GET", "/debug/config/reload", pickingBy("b"), 405, "POST only"},
		{"POST", "/debug/config/restore", pickingBy("b"), 409, "not-possible"},
		{"POST", "/debug/config/reload", badConfiguration, 422, "no-such-scorer"},
		{"GET", "/readyz", badConfiguration, 200, "configuration 1 stays in force"},
		{"GET", "/debug/config", badConfiguration, 200, "no-such-scorer"},
		{"POST", "/debug/config/reload", pickingBy("b"), 200, "number        2"},
		{"GET", "/readyz", pickingBy("b"), 200, "ok\n"},
		{"POST", "/debug/config/restore?format=json", pickingBy("b"), 200, `"restored_from": 1`},
		{"GET", "/debug/config", pickingBy("b"), 200, "brought back from number 1"},
	} {
		rewrite(t, file, c.text)
		if code, body := ask(c.method, c.path); code != c.want || !strings.Contains(body, c.says) {
			t.Errorf("%s %s: %d\n%s\nwant %d and %q", c.method, c.path, code, body, c.want, c.says)
		}
	}
}

// What Kubernetes adds comes into force beside what the file says, stays over a change of the file, and goes again.
func TestObjectivesAreAddedToTheConfiguration(t *testing.T) {
	file := configFile(t, pickingBy("a")+"objectives: [{name: own, priority: 2}]\n")
	tr, end := quietTree(t, io.Discard, "--config-file", file)
	defer end()
	f := tr.configuration
	priorities := func() map[string]int { return f.streams().Priorities }
	_ = f.add(config.Additions{Objectives: map[string]int{"own": 1, "added": -3}, Rewrites: []rewrites.Rewrite{
		{Name: "r", Rules: []rewrites.Rule{{Targets: []rewrites.Target{{Model: "b", Weight: 1}}}}},
	}})
	if got := priorities(); got["own"] != 2 || got["added"] != -3 || len(got) != 2 {
		t.Errorf("priorities %v, want own 2 and added -3", got)
	}
	if got, ok := f.streams().Rewrites.Decide("a", 1); !ok || got.Model != "b" || got.Rewrite != "r" {
		t.Errorf("a is rewritten to %v, %v; want b by r", got, ok)
	}
	if v := f.view(); v.Number != 2 || v.Before != 0 {
		t.Errorf("configuration %d, before it %d; want 2, and nothing to restore", v.Number, v.Before)
	}
	rewrite(t, file, pickingBy("b"))
	if err := f.reload(); err != nil {
		t.Fatal(err)
	}
	if got := priorities(); got["added"] != -3 || got["own"] != 1 {
		t.Errorf("after a change of the file: priorities %v, want added -3 and own 1", got)
	}
	_ = f.add(config.Additions{})
	if got := priorities(); len(got) != 0 {
		t.Errorf("priorities %v, want none", got)
	}
	if got, ok := f.streams().Rewrites.Decide("a", 1); ok {
		t.Errorf("a is still rewritten: %v", got)
	}
}

// What cannot be added stays away, with one line in the log, until a later try finds it possible; what is added already
// makes no configuration.
func TestAdditionsThatFailAreTriedAgain(t *testing.T) {
	var log bytes.Buffer
	tr, end := quietTree(t, &log, "--config-file", configFile(t, pickingBy("a")))
	f := tr.configuration
	wanted := config.Additions{Objectives: map[string]int{"added": -3}}
	f.mu.Lock()
	source := &f.current.Load().source
	good := source.text
	source.text = []byte(badConfiguration) // stands for what the text names, such as a certificate, and is gone
	f.mu.Unlock()
	for range 2 {
		if f.add(wanted) {
			t.Error("objectives are taken that cannot be built")
		}
	}
	source.text = good
	if len(f.streams().Priorities) != 0 {
		t.Errorf("priorities %v, want none", f.streams().Priorities)
	}
	for range 2 {
		if !f.add(wanted) || f.streams().Priorities["added"] != -3 || f.view().Number != 2 {
			t.Errorf("then: priorities %v in number %d, want added -3 in number 2", f.streams().Priorities,
				f.view().Number)
		}
	}
	end()
	if n := strings.Count(log.String(), "objectives and rewrites refused"); n != 1 {
		t.Errorf("the log names the refusal %d times, want once", n)
	}
}
