package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// source is a package to mutate. It has no test files.
type source struct {
	path, module string
	files        []*sourceFile
	set          *token.FileSet
	config       types.Config
	info         *types.Info
}

// name is the import path below the module.
func (s *source) name() string { return strings.TrimPrefix(s.path, s.module+"/") }

// sourceFile is a parsed file. name is relative to the working directory, path is absolute.
type sourceFile struct {
	name, path string
	content    []byte
	syntax     *ast.File
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
	Module                  *struct{ Path string }
}

// load parses and type-checks the packages in folders, in the order of their import paths.
func load(ctx context.Context, folders []string) ([]*source, error) {
	args := []string{"list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,DepOnly,Module", "--"}
	for _, folder := range folders {
		args = append(args, "./"+filepath.ToSlash(filepath.Clean(folder)))
	}
	out, err := output(exec.CommandContext(ctx, "go", args...))
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	var roots []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			roots = append(roots, p)
		}
	}
	slices.SortFunc(roots, func(a, b listed) int { return cmp.Compare(a.ImportPath, b.ImportPath) })
	set := token.NewFileSet()
	config := types.Config{
		Sizes:    types.SizesFor("gc", runtime.GOARCH),
		Importer: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }),
	}
	sources := make([]*source, 0, len(roots))
	for _, p := range roots {
		s := &source{path: p.ImportPath, module: p.Module.Path, set: set, config: config}
		if err := s.parse(p); err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	return sources, nil
}

func (s *source) parse(p listed) error {
	working, err := os.Getwd()
	if err != nil {
		return err
	}
	syntax := make([]*ast.File, 0, len(p.GoFiles))
	for _, base := range p.GoFiles {
		f := &sourceFile{path: filepath.Join(p.Dir, base)}
		if f.name, err = filepath.Rel(working, f.path); err != nil {
			return err
		}
		if f.content, err = os.ReadFile(f.path); err != nil {
			return err
		}
		if f.syntax, err = parser.ParseFile(s.set, f.path, f.content, parser.ParseComments); err != nil {
			return err
		}
		s.files, syntax = append(s.files, f), append(syntax, f.syntax)
	}
	s.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	_, err = s.config.Check(s.path, s.set, syntax, s.info)
	return err
}

// compiles reports whether the mutant's package still type-checks.
func (m mutant) compiles() bool {
	syntax := make([]*ast.File, 0, len(m.source.files))
	for _, f := range m.source.files {
		one := f.syntax
		if f == m.file {
			changed, err := parser.ParseFile(m.source.set, f.path, m.content(), parser.SkipObjectResolution)
			if err != nil {
				return false
			}
			one = changed
		}
		syntax = append(syntax, one)
	}
	_, err := m.source.config.Check(m.source.path, m.source.set, syntax, nil)
	return err == nil
}

// output returns what a command prints. An error contains what it prints to stderr.
func output(cmd *exec.Cmd) ([]byte, error) {
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(problems.Bytes()))
	}
	return out, nil
}
