package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
)

// concurrentImports are packages that start goroutines which call the importing package, or that
// protect its data from them.
var concurrentImports = []string{
	"sync", "sync/atomic", "net/http", "net/http/httptest", "golang.org/x/sync/errgroup",
	"k8s.io/client-go/tools/cache", "sigs.k8s.io/controller-runtime",
}

// divide returns the packages of the patterns that have tests: those whose files or tests start
// goroutines or import one of concurrentImports, and all others. Only the first can have data races
// of their own. Files that a build with the race detector leaves out do not count.
func divide(dir string, patterns ...string) (concurrent, sequential []string, err error) {
	packages, err := listPackages(dir, "", patterns)
	if err != nil {
		return nil, nil, err
	}
	raced, err := listPackages(dir, "race", patterns)
	if err != nil {
		return nil, nil, err
	}
	isConcurrent := map[string]bool{}
	for _, p := range raced {
		if len(p.testFiles()) == 0 {
			continue
		}
		for _, file := range slices.Concat(p.paths(p.GoFiles, p.CgoFiles), p.testFiles()) {
			found, err := startsGoroutines(file)
			if err != nil {
				return nil, nil, err
			}
			isConcurrent[p.ImportPath] = isConcurrent[p.ImportPath] || found
		}
	}
	for _, p := range packages {
		if isConcurrent[p.ImportPath] {
			concurrent = append(concurrent, p.ImportPath)
		} else if len(p.testFiles()) > 0 {
			sequential = append(sequential, p.ImportPath)
		}
	}
	return concurrent, sequential, nil
}

// startsGoroutines returns true if the file imports one of concurrentImports, has a go statement, or
// calls a method Go or Parallel.
func startsGoroutines(file string) (bool, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return false, err
	}
	for _, s := range parsed.Imports {
		name, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			return false, err
		}
		if slices.Contains(concurrentImports, name) {
			return true, nil
		}
	}
	found := false
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			found = found || ok && (f.Sel.Name == "Go" || f.Sel.Name == "Parallel")
		}
		return !found
	})
	return found, nil
}
