package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// selection is a set of tests and of the packages that have them.
type selection struct {
	tests    []string // sorted, without duplicates
	packages []string // import paths in the order of go list
}

// arguments returns the arguments that make `go test` run the selection. A test of another
// selected package with the name of a selected test runs as well.
func (s selection) arguments() string {
	return "-run " + alternatives(s.tests) + " " + strings.Join(s.packages, " ")
}

// testsOfTag returns the tests in files that are compiled with the build tag and not without
// it. Tests of a package that are compiled without the tag are not among them, although a
// build with the tag contains them, too. It returns an error if there are no such tests.
func testsOfTag(dir, tag string, patterns ...string) (selection, error) {
	return testsBetween(dir, tag, "", patterns)
}

// testsWithoutRace returns the tests that a build with the race detector does not contain.
func testsWithoutRace(dir string, patterns ...string) (selection, error) {
	return testsBetween(dir, "", "race", patterns)
}

// testsBetween returns the tests in files that are compiled with the first tags and not with the
// second. It returns an error if there are no such tests.
func testsBetween(dir, tags, otherTags string, patterns []string) (selection, error) {
	with, err := listPackages(dir, tags, patterns)
	if err != nil {
		return selection{}, err
	}
	without, err := listPackages(dir, otherTags, patterns)
	if err != nil {
		return selection{}, err
	}
	isCommon := map[string]bool{}
	for _, p := range without {
		for _, file := range p.testFiles() {
			isCommon[file] = true
		}
	}
	var s selection
	for _, p := range with {
		files := slices.DeleteFunc(p.testFiles(), func(file string) bool { return isCommon[file] })
		tests, err := testsIn(files)
		if err != nil {
			return selection{}, err
		}
		if len(tests) > 0 {
			s.tests, s.packages = append(s.tests, tests...), append(s.packages, p.ImportPath)
		}
	}
	if len(s.tests) == 0 {
		return selection{}, fmt.Errorf("no test in %s has the build tag %s", strings.Join(patterns, " "), cmp.Or(tags, "!"+otherTags))
	}
	slices.Sort(s.tests)
	s.tests = slices.Compact(s.tests)
	return s, nil
}

// listedPackage is a part of the output of go list -json.
type listedPackage struct {
	Dir          string
	ImportPath   string
	GoFiles      []string
	CgoFiles     []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// paths returns the paths of files of the package.
func (p listedPackage) paths(names ...[]string) []string {
	var paths []string
	for _, name := range slices.Concat(names...) {
		paths = append(paths, filepath.Join(p.Dir, name))
	}
	return paths
}

// testFiles returns the paths of the package's test files.
func (p listedPackage) testFiles() []string { return p.paths(p.TestGoFiles, p.XTestGoFiles) }

// listPackages returns the packages with the files that a build with the tags, separated by
// commas, contains.
func listPackages(dir, tags string, patterns []string) ([]listedPackage, error) {
	fields := "-json=Dir,ImportPath,GoFiles,CgoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports"
	cmd := exec.Command("go", append([]string{"list", "-e", "-tags", tags, fields}, patterns...)...)
	cmd.Dir = dir
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var problems strings.Builder
	cmd.Stderr = &problems
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var packages []listedPackage
	decoder := json.NewDecoder(pipe)
	for err == nil {
		var p listedPackage
		if err = decoder.Decode(&p); err == nil {
			packages = append(packages, p)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return nil, fmt.Errorf("list the packages of %s: %w: %s", strings.Join(patterns, " "), err, problems.String())
	}
	return packages, nil
}

// testsIn returns the names of the functions in the files that `go test` runs by default.
func testsIn(files []string) ([]string, error) {
	var tests []string
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declaration := range file.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if ok && f.Recv == nil && f.Name.Name != "TestMain" && isTestName(f.Name.Name) {
				tests = append(tests, f.Name.Name)
			}
		}
	}
	return tests, nil
}

// isTestName returns true for names of tests, of fuzz tests, whose seeds run as tests, and of
// examples.
func isTestName(name string) bool {
	return slices.ContainsFunc([]string{"Test", "Fuzz", "Example"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
