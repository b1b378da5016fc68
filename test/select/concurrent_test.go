package main

import (
	"slices"
	"testing"
)

func TestDivide(t *testing.T) {
	dir := t.TempDir()
	const test = "package p\n\nimport \"testing\"\n\nfunc TestP(t *testing.T) {"
	write(t, dir, map[string]string{
		"go.mod":               "module example.com/numbers\n\ngo 1.26.0\n",
		"pure/p.go":            "package p\n",
		"pure/p_test.go":       test + "}\n",
		"untested/p.go":        "package p\n\nimport _ \"sync\"\n",
		"mutex/p.go":           "package p\n\nimport \"sync\"\n\nvar mu sync.Mutex\n",
		"mutex/p_test.go":      test + "}\n",
		"statement/p.go":       "package p\n\nfunc start(f func()) { go f() }\n",
		"statement/p_test.go":  test + "}\n",
		"parallel/p.go":        "package p\n",
		"parallel/p_test.go":   test + " t.Parallel() }\n",
		"serverof/p.go":        "package p\n",
		"serverof/p_test.go":   "package p_test\n\nimport (\n\t_ \"net/http/httptest\"\n\t\"testing\"\n)\n\nfunc TestP(*testing.T) {}\n",
		"groupof/p.go":         "package p\n",
		"groupof/p_test.go":    "package p\n\nimport \"testing\"\n\nfunc TestP(*testing.T) { var g group; g.Go(nil) }\n",
		"groupof/fake_test.go": "package p\n\ntype group struct{}\n\nfunc (group) Go(func()) {}\n",
	})
	concurrent, sequential, err := divide(dir, "./...")
	if err != nil {
		t.Fatal(err)
	}
	const module = "example.com/numbers/"
	if want := []string{module + "groupof", module + "mutex", module + "parallel", module + "serverof", module + "statement"}; !slices.Equal(concurrent, want) {
		t.Errorf("concurrent: got %v, want %v", concurrent, want)
	}
	if want := []string{module + "pure"}; !slices.Equal(sequential, want) {
		t.Errorf("sequential: got %v, want %v", sequential, want)
	}
}
