package app

import (
	"bytes"
	"embed"
	"fmt"
	"go/format"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/template"
)

// newPluginFiles are templates of a module with a plugin, and the body of one of each family.
//
//go:embed newplugin/*.tmpl newplugin/families/*.tmpl
var newPluginFiles embed.FS

// newTypeName is the name of a type: with the module that it is of, or without.
var newTypeName = regexp.MustCompile(`^(?:[a-z0-9.-]+\.[a-z]+/(?:[a-z0-9._-]+/)*)?([a-z][a-z0-9]*(?:-[a-z0-9]+)*)$`)

// pluginFamilies are the families of which a plugin can be begun.
func pluginFamilies() (names []string) {
	entries, _ := newPluginFiles.ReadDir("newplugin/families") // which is part of the program
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".tmpl"))
	}
	return names
}

// newModule is what the templates are filled with.
type newModule struct {
	Family, Type, Module string
	Name                 string // of the command and its folder
	Go                   string // of the struct
	Version              string // of Signalbox; "" = go mod tidy chooses one
	GoVersion            string
	Text                 string
	Imports              []string
	Body                 string
}

// writeModule writes a module with a plugin of a family to a folder below the present one, which must not be there.
func writeModule(w io.Writer, family, name string) error {
	parts := newTypeName.FindStringSubmatch(name)
	switch known := pluginFamilies(); {
	case !slices.Contains(known, family):
		return fmt.Errorf("no family %q; known are %s", family, strings.Join(known, ", "))
	case parts == nil:
		return fmt.Errorf("got %q, want a name in lower case, such as cheapest-first or example.com/cheapest-first",
			name)
	}
	m := newModule{Family: family, Type: name, Name: parts[1], Version: thisRelease(), GoVersion: goRelease()}
	if !strings.Contains(name, "/") {
		m.Type = "example.com/" + name
	}
	m.Module = m.Type
	words := strings.Split(m.Name, "-")
	for i := range words[1:] {
		words[i+1] = strings.ToUpper(words[i+1][:1]) + words[i+1][1:]
	}
	m.Go = strings.Join(words, "") + "Plugin"
	if err := m.fill(); err != nil {
		return err
	}
	if err := os.Mkdir(m.Name, 0o755); err != nil {
		return fmt.Errorf("nothing is written: %w", err)
	}
	for file, name := range map[string]string{"main.go": "main.go", "plugin.go": "plugin.go",
		"plugin_test.go": "test.go", "go.mod": "go.mod", "Containerfile": "Containerfile"} {
		text, err := m.execute("newplugin/" + name + ".tmpl")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(m.Name, file), text, 0o644); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s has a %s, %s. Next:\n\n  cd %s\n  go mod tidy\n  go test .\n  go build -o %s .\n  "+
		"./%s plugins %s\n", m.Name, family, m.Type, m.Name, m.Name, m.Name, m.Type)
	return err
}

// fill takes what the family has.
func (m *newModule) fill() error {
	t, err := template.ParseFS(newPluginFiles, "newplugin/families/"+m.Family+".tmpl")
	if err != nil {
		return err
	}
	get := func(name string) string {
		var b bytes.Buffer
		if err == nil {
			err = t.ExecuteTemplate(&b, name, m)
		}
		return strings.TrimSpace(b.String())
	}
	m.Text = get("text")
	for path := range strings.FieldsSeq(get("imports")) {
		if strings.HasPrefix(path, "engine/") {
			path = ownModule + "/" + path
		}
		m.Imports = append(m.Imports, path)
	}
	m.Body = get(m.Family + ".tmpl")
	return err
}

// execute fills a template. What is Go is formatted.
func (m *newModule) execute(name string) ([]byte, error) {
	t, err := template.ParseFS(newPluginFiles, name)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, m); err != nil {
		return nil, err
	}
	if !strings.HasSuffix(name, ".go.tmpl") {
		return b.Bytes(), nil
	}
	return format.Source(b.Bytes())
}

// thisRelease is the version of this program, if it is a release.
func thisRelease() string {
	if v := built().Version; regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`).MatchString(v) {
		return v
	}
	return ""
}

// goRelease is the version of Go that this program was built with, without its patch.
func goRelease() string {
	parts := strings.SplitN(strings.TrimPrefix(runtime.Version(), "go"), ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}
