package operator_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThreatModelNamesExistingTests checks that each row of a table in docs/threat-model.md
// names tests, and that they exist. A test is named as PACKAGE.TestNAME, and the package is
// the name of a folder. A test of the rules is named by its file.
func TestThreatModelNamesExistingTests(t *testing.T) {
	document, err := os.ReadFile("docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	existing := testFunctions(t)
	name := regexp.MustCompile("`([a-z0-9-]+\\.Test[A-Za-z0-9]+|rules/tests/[a-z_]+\\.yaml)`")
	for line := range strings.Lines(string(document)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| attempt") {
			continue
		}
		tests := name.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("no test in the row %s", line)
		}
		for _, test := range tests {
			if _, err := os.Stat(filepath.Join("..", test[1])); err != nil && !existing[test[1]] {
				t.Errorf("%s does not exist", test[1])
			}
		}
	}
}

// testFunctions returns the tests of the repository as PACKAGE.TestNAME.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	found := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && len(entry.Name()) > 2 && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Abs(filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, match := range function.FindAllSubmatch(bytes.TrimSpace(source), -1) {
			found[filepath.Base(folder)+"."+string(match[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
