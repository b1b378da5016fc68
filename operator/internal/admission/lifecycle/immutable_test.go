package lifecycle

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// builders are the files of the controller that build a situation.
var builders = []string{"claim_templates.go", "component.go", "lost_quota.go", "observe.go", "observe_preemption.go", "observe_without_quota.go", "replaced_slice.go", "running_slice.go"}

// Only what observes and measures a workload assigns to its situation: `s` in both packages.
func TestNothingElseChangesASituation(t *testing.T) {
	for dir, builds := range map[string]bool{".": false, "../../controller/workload": true} {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name := file.Name()
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || builds && slices.Contains(builders, name) {
				continue
			}
			for _, at := range assignments(t, dir+"/"+name) {
				t.Errorf("%s assigns to a field of a situation", at)
			}
		}
	}
}

// assignments are the positions of assignments to fields of a parameter or receiver that is a *Situation.
func assignments(t *testing.T, path string) []string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		names := situations(fn)
		ast.Inspect(fn, func(n ast.Node) bool {
			assign, ok := n.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for _, left := range assign.Lhs {
				if _, isField := left.(*ast.SelectorExpr); isField && slices.Contains(names, root(left)) {
					found = append(found, set.Position(left.Pos()).String())
				}
			}
			return true
		})
	}
	return found
}

// situations are the names of the receiver and the parameters of type *Situation.
func situations(fn *ast.FuncDecl) []string {
	fields := slices.Clone(fn.Type.Params.List)
	if fn.Recv != nil {
		fields = append(fields, fn.Recv.List...)
	}
	var names []string
	for _, field := range fields {
		pointer, ok := field.Type.(*ast.StarExpr)
		if !ok {
			continue
		}
		of := pointer.X
		if qualified, ok := of.(*ast.SelectorExpr); ok {
			of = qualified.Sel
		}
		if id, ok := of.(*ast.Ident); ok && id.Name == "Situation" {
			for _, name := range field.Names {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

func root(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return root(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// No other package puts the inputs of a decision together, so that explanation, moves and demo decide as the operator does.
func TestInputsAreBuiltHereOnly(t *testing.T) {
	err := filepath.WalkDir("../../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "lifecycle/inputs.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, call := range []string{"gate.Inputs{", "gate.Decide("} {
			if strings.Contains(string(text), call) {
				t.Errorf("%s has %s: call Situation.Inputs", path, call)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
