package main

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"unicode"
)

// prometheus is the path of the packages whose calls record metrics.
const prometheus = "github.com/prometheus/client_golang/"

// logPackages write log lines. No test should notice a change of those.
var logPackages = []string{"log", "log/slog", "github.com/go-logr/logr", "sigs.k8s.io/controller-runtime/pkg/log"}

// locks are excluded: without the race detector, no test can notice that one is missing.
var locks = []string{"Lock", "Unlock", "RLock", "RUnlock"}

// isExcludedFunction reports whether a function writes log lines, records metrics or formats a value
// for people.
func (f *finder) isExcludedFunction(fn *ast.FuncDecl) bool {
	if isLogName(fn.Name.Name) {
		return true
	}
	return fn.Recv != nil && (fn.Name.Name == "String" || isMetrics(f.source.info.TypeOf(fn.Recv.List[0].Type)))
}

// isLogName reports whether a function's name is logSOMETHING.
func isLogName(name string) bool {
	what, isLog := strings.CutPrefix(name, "log")
	return isLog && what != "" && unicode.IsUpper(rune(what[0]))
}

// isExcludedCall reports whether a call writes a log line, records a metric, panics or locks. Its
// arguments are excluded as well.
func (f *finder) isExcludedCall(call *ast.CallExpr) bool {
	_, callee := f.callee(call)
	if callee == nil {
		return false
	}
	if isLogName(callee.Name()) {
		return true
	}
	if _, isBuiltin := callee.(*types.Builtin); isBuiltin {
		return callee.Name() == "panic"
	}
	if s, isSelector := ast.Unparen(call.Fun).(*ast.SelectorExpr); isSelector {
		if receiver := f.source.info.TypeOf(s.X); receiver != nil && isMetrics(receiver) {
			return true
		}
	}
	path := packagePath(callee)
	return slices.Contains(logPackages, path) || strings.HasPrefix(path, prometheus) || path == "sync" && slices.Contains(locks, callee.Name())
}

// isMetrics reports whether a type is a struct, or a pointer to one, with a field of the Prometheus client.
func isMetrics(t types.Type) bool {
	s, isStruct := dereference(t).Underlying().(*types.Struct)
	if !isStruct {
		return false
	}
	for field := range s.Fields() {
		if named, isNamed := dereference(field.Type()).(*types.Named); isNamed && strings.HasPrefix(packagePath(named.Obj()), prometheus) {
			return true
		}
	}
	return false
}

func dereference(t types.Type) types.Type {
	if p, isPointer := t.(*types.Pointer); isPointer {
		return p.Elem()
	}
	return t
}

// isCapacity reports whether a literal is the capacity of a slice or the size of a map in a call of make.
func isCapacity(n *ast.BasicLit, parent ast.Node) bool {
	call, isCall := parent.(*ast.CallExpr)
	if !isCall {
		return false
	}
	name, isName := call.Fun.(*ast.Ident)
	if !isName || name.Name != "make" || call.Args[len(call.Args)-1] != n {
		return false
	}
	_, isMap := call.Args[0].(*ast.MapType)
	return isMap || len(call.Args) == 3
}

// callee returns the function that a call names, or nil for the call of an expression.
func (f *finder) callee(call *ast.CallExpr) (*ast.Ident, types.Object) {
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		return fun, f.source.info.Uses[fun]
	case *ast.SelectorExpr:
		return fun.Sel, f.source.info.Uses[fun.Sel]
	}
	return nil, nil
}

// packagePath returns the path of the package that declares an object. It is empty for builtin functions and
// types.
func packagePath(o types.Object) string {
	if o.Pkg() == nil {
		return ""
	}
	return o.Pkg().Path()
}
