package main

import (
	"strings"
	"testing"
)

// writeModule writes a module with two packages: both have a test without a tag, and the first
// has tests with tags.
func writeModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"go.mod":                      "module example.com/numbers\n\ngo 1.26.0\n",
		"one/one.go":                  "package one\n",
		"one/one_test.go":             "package one\n\nfunc TestMain() {}\n\nfunc TestUnit() {}\n",
		"one/tagged_test.go":          "//go:build integration\n\npackage one\n\nfunc TestInner() {}\n\nfunc helper() {}\n",
		"one/tagged_external_test.go": "//go:build integration\n\npackage one_test\n\nfunc TestOuter() {}\n\nfunc FuzzOuter() {}\n",
		"one/long_test.go":            "//go:build integration && long\n\npackage one\n\nfunc TestLong() {}\n",
		"one/short_test.go":           "//go:build !integration\n\npackage one\n\nfunc TestShort() {}\n",
		"two/two.go":                  "package two\n",
		"two/two_test.go":             "package two\n\nfunc TestOther() {}\n",
		"two/helpers_test.go":         "//go:build integration\n\npackage two\n\nfunc helper() {}\n",
		"three/three_test.go":         "//go:build integration\n\npackage three\n\nfunc TestAlone() {}\n",
	})
	return dir
}

func TestTestsOfTag(t *testing.T) {
	dir := writeModule(t)
	s, err := testsOfTag(dir, "integration", "./...")
	if err != nil {
		t.Fatal(err)
	}
	const want = "-run ^(FuzzOuter|TestAlone|TestInner|TestOuter)$ example.com/numbers/one example.com/numbers/three"
	if got := s.arguments(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTestsWithoutRace(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"go.mod":           "module example.com/numbers\n\ngo 1.26.0\n",
		"one/slow_test.go": "//go:build !race\n\npackage one\n\nfunc TestSlow() {}\n",
		"one/fast_test.go": "package one\n\nfunc TestFast() {}\n",
		"two/fast_test.go": "package two\n\nfunc TestFast() {}\n",
	})
	s, err := testsWithoutRace(dir, "./...")
	if want := "-run ^(TestSlow)$ example.com/numbers/one"; err != nil || s.arguments() != want {
		t.Errorf("got %s, %v, want %s", s.arguments(), err, want)
	}
	if s, err := testsWithoutRace(dir, "./two"); err == nil || !strings.Contains(err.Error(), "no test in ./two has the build tag !race") {
		t.Errorf("got %v, %v", s, err)
	}
}

func TestNoTestOfTag(t *testing.T) {
	dir := writeModule(t)
	for _, tc := range []struct{ tag, pattern, want string }{
		{"soak", "./...", "no test in ./... has the build tag soak"},
		{"integration", "./two", "no test in ./two has the build tag integration"},
		{"integration", "./missing/...", "no test in ./missing/..."},
	} {
		if s, err := testsOfTag(dir, tc.tag, tc.pattern); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: got %v, %v, want an error with %q", tc.tag, tc.pattern, s, err, tc.want)
		}
	}
}
