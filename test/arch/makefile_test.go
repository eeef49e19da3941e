package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMakefileNamesTests: a name in a list of tests that a target leaves out is that of a test, or how it begins. One
// that was renamed would be played again, or left out of what is never looked at.
func TestMakefileNamesTests(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		tests.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	lists := regexp.MustCompile(`(?m)^(?:NO_RACES|AT_LENGTH) := .*$`).FindAllString(string(makefile), -1)
	names := regexp.MustCompile(`\^(Test\w*)\(([^)]*)\)`).FindAllStringSubmatch(strings.Join(lists, "\n"), -1)
	for _, group := range names {
		for name := range strings.SplitSeq(group[2], "|") {
			found++
			whole, exactly := strings.CutSuffix(name, "$$")
			if begin := "func " + group[1] + whole; !strings.Contains(tests.String(), begin) ||
				exactly && !strings.Contains(tests.String(), begin+"(") {
				t.Errorf("no test has the name %s%s of the Makefile", group[1], name)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d names in the lists of the Makefile, want more", found)
	}
}
