package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// writeRepository writes a module into a repository: package two imports one, and the tests of three
// import two. The branch work has a commit more than main.
func writeRepository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	runGit := func(args ...string) {
		t.Helper()
		if _, err := git(dir, append([]string{"-c", "user.name=n", "-c", "user.email=e"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, map[string]string{
		"go.mod":                         "module example.com/numbers\n\ngo 1.26.0\n",
		"README.md":                      "# Numbers\n",
		"one/one.go":                     "package one\n",
		"two/two.go":                     "package two\n\nimport _ \"example.com/numbers/one\"\n",
		"three/three.go":                 "package three\n",
		"three/three_test.go":            "//go:build e2e\n\npackage three\n\nimport _ \"example.com/numbers/two\"\n",
		"three/testdata/golden":          "3\n",
		"test/contract/contract.go":      "package contract\n",
		"test/contract/contract_test.go": "package contract\n",
	})
	runGit("init", "-q", "-b", "main")
	runGit("add", ".")
	runGit("commit", "-q", "-m", "first")
	runGit("checkout", "-q", "-b", "work")
	return dir
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestChangedPackages(t *testing.T) {
	for _, tc := range []struct {
		name, base        string
		files             map[string]string
		commit            bool
		changed, affected []string
	}{
		{name: "nothing", base: "main"},
		{name: "a file", base: "main", files: map[string]string{"one/one.go": "package one // changed\n"},
			changed: []string{"./one"}, affected: []string{"./one", "./two"}},
		{name: "a new file", base: "main", files: map[string]string{"two/new.go": "package two\n"},
			changed: []string{"./two"}, affected: []string{"./three", "./two"}},
		{name: "a commit", base: "main", files: map[string]string{"two/new.go": "package two\n"}, commit: true,
			changed: []string{"./two"}, affected: []string{"./three", "./two"}},
		{name: "a commit without the branch", base: "missing", files: map[string]string{"two/new.go": "package two\n"}, commit: true},
		{name: "test data", base: "main", files: map[string]string{"three/testdata/golden": "4\n"},
			changed: []string{"./three"}, affected: []string{"./test/contract", "./three"}},
		{name: "a document", base: "main", files: map[string]string{"README.md": "# Changed\n"},
			affected: []string{"./test/contract"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := writeRepository(t)
			write(t, dir, tc.files)
			if tc.commit {
				for _, args := range [][]string{{"add", "."}, {"-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "second"}} {
					if _, err := git(dir, args...); err != nil {
						t.Fatal(err)
					}
				}
			}
			for importers, want := range map[bool][]string{false: tc.changed, true: tc.affected} {
				if got, err := changedPackages(dir, tc.base, importers); err != nil || !slices.Equal(got, want) {
					t.Errorf("importers %t: got %v, %v, want %v", importers, got, err, want)
				}
			}
		})
	}
}
