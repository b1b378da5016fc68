package main

import (
	"slices"
	"strings"
	"testing"
)

func TestCheckReportsPrivateWords(t *testing.T) {
	for _, tc := range []struct {
		name, file, text string
		want             []string
	}{
		{"plain English", "a.md", "The gate waits until the source responds.", nil},
		{"a verb", "a.md", "The exporter tells which GPU is free.", []string{`a.md:1: "tells": write reports, says, exports`}},
		{"the line", "a.yaml", "a: 1\n# asked anew", []string{`a.yaml:2: "asked": write query, queries; request`, `a.yaml:2: "anew": write again`}},
		{"part of another word", "a.md", "Tasks and retellings", nil},
		{"upper case", "a.md", "Nobody knows", []string{`a.md:1: "Nobody": write name the component`}},
		{"a method", "a.go", "package a\n\ntype t struct{ board int }\n\nfunc (t) park() {}\n", []string{
			"a.go:3:16: name board: write registry", "a.go:5:10: name park: write add"}},
		{"a local variable", "a.go", "package a\n\nfunc f() { left := 1; _ = left }\n", nil},
		{"allowed name", "operator/api/v1alpha1/scoringpolicy_status.go", "package a\n\ntype t struct{ Held int }\n", nil},
		{"allowed file", "operator/docs/glossary.md", "tells", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, _ := check(tc.file, []byte(tc.text)); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCheckReportsGoThatDoesNotParse(t *testing.T) {
	if got, _ := check("a.go", []byte("package")); len(got) != 1 || !strings.Contains(got[0], "expected") {
		t.Errorf("got %q", got)
	}
}

func TestCheckCountsPronounsOfComments(t *testing.T) {
	_, got := check("a.go", []byte("package a\n\n// what it does is one thing\nvar that = \"it\"\n"))
	if got != (count{pronouns: 3, words: 6}) || got.per100() != 50 {
		t.Errorf("got %+v, %.1f per 100 words", got, got.per100())
	}
	if got := (count{}).per100(); got != 0 {
		t.Errorf("no words: %.1f", got)
	}
}

func TestIsRead(t *testing.T) {
	for name, want := range map[string]bool{"a.go": true, "README.md": true, "Makefile": true, "a.png": false, "go.sum": false,
		"operator/api/v1alpha1/zz_generated.deepcopy.go": false, "config/crd/plimsoll.dev_metricssources.yaml": false} {
		t.Run(name, func(t *testing.T) {
			if got := isRead(name); got != want {
				t.Errorf("got %t, want %t", got, want)
			}
		})
	}
}
