package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// lists are the tests here that go through all types, and say nothing of what one does.
var lists = []string{"catalogue_reference_test.go", "costs_test.go", "defaults_test.go", "facts_test.go"}

// Each plugin type has a test that names it: in the folder of its Go type or, if it is none of the types here, in
// another folder of engine.
func TestEachTypeHasATest(t *testing.T) {
	here := map[string]map[string]bool{} // words of the tests, by folder
	elsewhere := wordsOf(t, filepath.Join("..", "*"))
	for _, typ := range (*Catalogue)(nil).types() {
		of := reflect.TypeOf(construct(typ)).Elem()
		folder := of.PkgPath()[strings.LastIndex(of.PkgPath(), "/")+1:]
		if here[folder] == nil {
			here[folder] = wordsOf(t, filepath.Join("..", folder))
		}
		named := here[folder][of.Name()] || here[folder][typ]
		if folder != "config" {
			named = named || elsewhere[folder+"."+of.Name()] || elsewhere[typ]
		}
		if !named {
			t.Errorf("no test in engine/%s names %s or %s: write one, with figures worked out by hand", folder,
				of.Name(), typ)
		}
	}
}

// wordsOf returns the words of the tests of folders, without comments: names of types, with and without their package.
// Of this folder it leaves out lists, and all tests if the pattern means other folders too.
func wordsOf(t *testing.T, folders string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folders, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	for _, name := range files {
		folder, base := filepath.Split(name)
		if filepath.Base(folder) == "config" && (strings.Contains(folders, "*") || slices.Contains(lists, base)) {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(strings.TrimSpace(line), "//") {
				continue
			}
			for _, word := range strings.FieldsFunc(line, apart) {
				words[word] = true
				_, last, _ := strings.Cut(word, ".")
				words[last] = true
			}
		}
	}
	return words
}

// apart reports whether a character is none of a name.
func apart(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_' && r != '.'
}
