package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const forge = "../../.github"

// workflow is what matters here of a file that a forge runs.
type workflow struct {
	On   map[string]any
	Jobs map[string]struct {
		Steps []struct {
			Uses string
			Run  string
			With map[string]any
		}
	}
}

// TestForgeRunsWhatEverybodyCan: no check lives in a workflow alone, and its Go is the module's.
func TestForgeRunsWhatEverybodyCan(t *testing.T) {
	var w workflow
	parse(t, filepath.Join(forge, "workflows/ci.yml"), &w)
	if _, ok := w.On["pull_request"]; !ok {
		t.Errorf("it runs on %v, not on pull requests", w.On)
	}
	var runs []string
	var goVersion any
	for _, job := range w.Jobs {
		for _, step := range job.Steps {
			if step.Run != "" {
				runs = append(runs, step.Run)
			}
			if strings.HasPrefix(step.Uses, "actions/setup-go@") {
				goVersion = step.With["go-version"]
			}
		}
	}
	slices.Sort(runs)
	if want := []string{"bash .ci/run", "bash .ci/run gateway"}; !slices.Equal(runs, want) {
		t.Errorf("it runs %q, want %q alone: checks belong into the Makefile", runs, want)
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod); m == nil || goVersion != string(m[1]) {
		t.Errorf("it sets Go %v up, go.mod wants %q", goVersion, m)
	}
}

// form is an issue form. Unknown fields are refused, for a forge shows no form that has one.
type form struct {
	Name, Description string
	Labels            []string
	Body              []field
}

type field struct {
	Type, ID    string
	Attributes  struct{ Label, Description, Value, Placeholder, Render string }
	Validations struct{ Required bool }
}

func TestIssueForms(t *testing.T) {
	for _, name := range []string{"bug", "feature"} {
		var f form
		parse(t, filepath.Join(forge, "ISSUE_TEMPLATE", name+".yml"), &f)
		ids := map[string]bool{"": true}
		for _, x := range f.Body {
			asks := x.Type == "input" || x.Type == "textarea"
			if asks && (ids[x.ID] || x.Attributes.Label == "") {
				t.Errorf("%s: a field has the id %q, another's or none, or the empty label %q", name, x.ID,
					x.Attributes.Label)
			}
			if !asks && (x.Type != "markdown" || x.Attributes.Value == "") {
				t.Errorf("%s: a field has the type %q and the text %q", name, x.Type, x.Attributes.Value)
			}
			ids[x.ID] = true
		}
		if f.Name == "" || f.Description == "" || len(ids) < 3 {
			t.Errorf("%s: %+v has no name, no description or too few fields", name, f)
		}
	}
}

// TestForgeFilesParse sees files that no other test reads.
func TestForgeFilesParse(t *testing.T) {
	files, err := filepath.Glob(forge + "/*/*")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		if ext := filepath.Ext(path); ext != ".yml" {
			t.Errorf("%s is no .yml file", path)
		}
		parse(t, path, &map[string]any{})
	}
}

// parse reads a file that may have known fields only.
func parse(t *testing.T, path string, into any) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	_, strict := into.(*form)
	d.KnownFields(strict)
	if err := d.Decode(into); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}
