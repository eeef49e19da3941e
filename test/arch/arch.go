// Package arch holds the rules of the house as checks over the source of a whole module: what may import what, what a
// message may be made of, how large things may grow, and which parts of ARCHITECTURE.md are written from the code.
//
// It owns the rules, the allow-list and the messages that say what to do instead. Its checks read source only: they
// never import or run what they check. Its tests run one thing, `signalbox tree`,
// whose print ARCHITECTURE.md must show.
//
// Linters hold what they hold as well, set in .golangci.yml and proved by test/lint: packages of others (depguard),
// locks, clocks, global random sources and calls that start goroutines (forbidigo), lengths of lines (lll) and of
// files, and parameters (revive), dot imports (staticcheck). Lengths of functions stay here because cases of a test's
// table do not count, nesting because revive counts no range. What the linters cannot see is here too: `go` statements,
// and in the folders that decide files of another platform and comments that switch depguard or forbidigo off.
//
// Test files are held to the same imports of our own packages and of third parties, and to the same sizes. Those of
// engine may read files and the clock, and start goroutines that prove a claim about concurrency; those of actors may
// not start any, since an actor is tested one message at a time.
package arch

import (
	"cmp"
	"fmt"
	"go/token"
	"slices"
)

// Violation is one place where the tree breaks a rule.
type Violation struct {
	Rule   string // name of the rule, as allow.txt spells it
	Path   string // file or folder below the root, with slashes
	Line   int    // 1 is the first; 0 = the whole file or folder
	Symbol string // function, type or field; empty = none
	Text   string // what is wrong; then, after a semicolon, what to do instead
}

func (v Violation) String() string {
	if v.Line == 0 {
		return fmt.Sprintf("%s: [%s] %s", v.Path, v.Rule, v.Text)
	}
	return fmt.Sprintf("%s:%d: [%s] %s", v.Path, v.Line, v.Rule, v.Text)
}

// Check is one family of rules. Run reports what breaks them, in any order.
type Check struct {
	Name  string
	Rules []string // every rule that Run may report
	Run   func(*Tree) []Violation
}

// Checks returns every check that needs nothing but the source, with the limits of the house.
func Checks() []Check {
	return []Check{
		{"layout", []string{"top-level", "depth", "package-name", "package-doc"}, checkLayout},
		{"imports", []string{"import"}, checkImports},
		{"dependencies", []string{"dependency"}, checkDependencies},
		{"uses", []string{"goroutine", "platform", "exception"}, checkUses},
		{"immutable", []string{"immutable"}, checkImmutable},
		{"sealed", []string{"sealed", "message-name", "switch-default"}, checkSealed},
		{"refusable", []string{"refusable"}, checkRefusable},
		{"messagedocs", []string{"message-doc", "field-doc"}, checkMessageDocs},
		{"reserved", []string{"reserved"}, checkReserved},
		{"plugins", []string{"plugin-table", "plugin-file", "plugin-doc", "plugin-init"}, checkPlugins},
		{"words", []string{"word"}, checkWords},
		{"sizes", SizeRules, HouseLimits.check},
	}
}

// report collects violations of one check.
type report struct {
	tree *Tree
	list []Violation
}

// at adds a violation at a position in the source.
func (r *report) at(pos token.Pos, rule, symbol, format string, args ...any) {
	p := r.tree.Fset.Position(pos)
	r.list = append(r.list, Violation{rule, r.tree.rel(p.Filename), p.Line, symbol, fmt.Sprintf(format, args...)})
}

// on adds a violation of a whole file or folder.
func (r *report) on(path, rule, format string, args ...any) {
	r.list = append(r.list, Violation{Rule: rule, Path: path, Text: fmt.Sprintf(format, args...)})
}

// sorted orders violations by path, line and rule, and drops repeated ones.
func sorted(list []Violation) []Violation {
	slices.SortFunc(list, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Symbol, b.Symbol), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(list)
}
