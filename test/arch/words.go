package arch

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// word is one that this repository has replaced. Identifiers, comments, literals and documents do without it, so that
// flags, metrics and pages do too.
type word struct {
	pattern *regexp.Regexp
	folders []string // where it is refused; nil = everywhere
	advice  string
}

// replaced lists words that may not come back. A word joins the list once the tree is free of it.
var replaced = []word{
	{regexp.MustCompile(`(?i)suspici(on|ous)`), nil, "an endpoint that comes last because of failures is degraded"},
	{regexp.MustCompile(`(?i)avoided`), nil, "an endpoint that gets no requests because of failures is ejected"},
	{regexp.MustCompile(`(?i)\baccus|\bblam(e|ing)|culprit`), nil, "a request reports a failure of an endpoint"},
	{regexp.MustCompile(`(?i)acquit|innocen`), nil, "a request reports a success of an endpoint"},
	{regexp.MustCompile(`(?i)evidence`), nil,
		"what is reported of an endpoint is a failure or a success, of a kind in a closed " +
			"set"},
	{regexp.MustCompile(`(?i)\btrials?\b`), nil, "one request that tries an endpoint is its probe"},
	{regexp.MustCompile(`(?i)forg[ia]ve`), nil, "an endpoint whose probe succeeds is healthy; Envoy fails open"},
	{regexp.MustCompile(`(?i)wonder|believ`), nil, "components do things; say what this one does"},
	{regexp.MustCompile(`\bScratch\b`), nil, "what holds the working memory of scheduling is schedule.Scheduler"},
	{regexp.MustCompile(`(?i)profile cycle`), nil, "one run of a profile is a profile run"},
	{regexp.MustCompile(`(?i)scheduling cycle`), nil, "a cycle is the life of a request; its decision is a scheduling"},
	{regexp.MustCompile(`(?i)(request|response|side|wrong)[ -]?lane\b|LaneMode|LaneEnded`), nil,
		"a side of a stream is its direction"},
	{regexp.MustCompile(`\bShown\b|body_shown`), nil, "a response's body that Signalbox sees is visible"},
	{regexp.MustCompile(`\bPasses\b`), nil, "a response's body that Signalbox does not see bypasses it"},
	{regexp.MustCompile(`(?i)\b(mock|stub)(s|ed)?\b`), []string{".", "messages", "engine", "actors", "adapters", "cmd"},
		"a test double is a fake"},
}

// selfPaths hold the words as data. The changelog tells what was renamed.
var selfPaths = []string{"test/arch/words.go", "test/arch/words_test.go", "CHANGELOG.md"}

// documents are the patterns, below the root, of what else people read.
var documents = []string{"*.md", "deploy/docs/*.md", "test/*/README.md", "Makefile"}

// checkWords holds Go files, and then documents, against the list.
func checkWords(t *Tree) []Violation {
	r := &report{tree: t}
	for _, p := range t.Packages {
		for _, f := range p.Files {
			r.wordsOf(f)
		}
	}
	for _, pattern := range documents {
		names, _ := filepath.Glob(filepath.Join(t.Root, pattern)) // the patterns are well formed
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				r.on(t.rel(name), "word", "cannot be read: %v", err)
				continue
			}
			r.words(t.rel(name), 1, string(text))
		}
	}
	return r.list
}

// wordsOf walks what a Go file names, quotes and comments.
func (r *report) wordsOf(f *File) {
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.Ident:
			r.words(f.Path, r.line(x.Pos()), x.Name)
		case *ast.BasicLit:
			if x.Kind == token.STRING {
				r.words(f.Path, r.line(x.Pos()), x.Value)
			}
		}
		return true
	})
	for _, group := range f.AST.Comments {
		for _, c := range group.List {
			r.words(f.Path, r.line(c.Pos()), c.Text)
		}
	}
}

func (r *report) line(pos token.Pos) int { return r.tree.Fset.Position(pos).Line }

// words finds replaced words in a text whose first line has the given number.
func (r *report) words(file string, first int, text string) {
	if slices.Contains(selfPaths, file) {
		return
	}
	for i, line := range strings.Split(text, "\n") {
		for _, w := range replaced {
			if w.folders != nil && !slices.Contains(w.folders, head(path.Dir(file), 1)) {
				continue
			}
			if found := w.pattern.FindString(line); found != "" {
				r.list = append(r.list, Violation{"word", file, first + i, found, "\"" + found + "\" was replaced; " +
					w.advice})
			}
		}
	}
}
