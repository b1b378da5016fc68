package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// mutant is a source file in which text replaces the bytes from start to end.
type mutant struct {
	source     *source
	file       *sourceFile
	function   string
	line       int
	change     string
	start, end int
	text       string
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", m.file.name, m.line, m.function, m.change)
}

func (m mutant) content() []byte {
	return []byte(string(m.file.content[:m.start]) + m.text + string(m.file.content[m.end:]))
}

// finder collects the mutants of a function or a package-level declaration.
type finder struct {
	source   *source
	file     *sourceFile
	function string
	found    []mutant
}

// mutantsOf returns the mutants of a package in the order of its files. Some do not compile.
func mutantsOf(s *source) []mutant {
	var found []mutant
	for _, file := range s.files {
		if ast.IsGenerated(file.syntax) {
			continue
		}
		for _, d := range file.syntax.Decls {
			f := finder{source: s, file: file, function: declaredName(d)}
			if fn, isFunc := d.(*ast.FuncDecl); f.function != "" && (!isFunc || !f.isExcludedFunction(fn)) {
				ast.PreorderStack(d, nil, f.visit)
			}
			found = append(found, f.found...)
		}
	}
	return found
}

// declaredName returns TYPE.METHOD, the name of a function, or the first name of a declaration of
// constants or variables. It is empty for imports and types.
func declaredName(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		return strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*") + "." + d.Name.Name
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, isValue := spec.(*ast.ValueSpec); isValue {
				return v.Names[0].Name
			}
		}
	}
	return ""
}

// visit adds the mutants of a node. It returns false if the nodes below are excluded.
func (f *finder) visit(n ast.Node, stack []ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		if f.isExcludedCall(n) {
			return false
		}
		f.swapMinMax(n)
	case *ast.BinaryExpr:
		if !f.isConcatenation(n) && !f.isErrorCheck(n, stack[len(stack)-1]) {
			f.swapOperator(n, n.OpPos, n.Op)
		}
	case *ast.BasicLit:
		if !isCapacity(n, stack[len(stack)-1]) {
			f.changeNumber(n, stack[len(stack)-1])
		}
	case *ast.IncDecStmt:
		f.swapOperator(n, n.TokPos, n.Tok)
	case *ast.AssignStmt:
		f.swapOperator(n, n.TokPos, n.Tok)
		f.removeAssignment(n)
	case *ast.ExprStmt:
		f.removeCall(n)
	case *ast.BranchStmt:
		if n.Tok == token.BREAK || n.Tok == token.CONTINUE {
			f.replace(n, "", fmt.Sprintf("removed: %s in %s", f.brief(n, n.End()), f.around(stack)))
		}
	case *ast.IfStmt:
		f.changeCondition(n)
	case *ast.ReturnStmt:
		f.flipResults(n, stack)
		if !f.isLastReturn(stack) && !f.isErrorReturn(stack) {
			f.replace(n, "", fmt.Sprintf("removed: %s in %s", f.brief(n, n.End()), f.around(stack)))
		}
	case *ast.CaseClause:
		f.replace(n, "", "case removed: "+f.header(n))
	}
	return true
}

var otherOperators = map[token.Token][]token.Token{
	token.LSS:        {token.LEQ, token.GEQ},
	token.LEQ:        {token.LSS, token.GTR},
	token.GTR:        {token.GEQ, token.LEQ},
	token.GEQ:        {token.GTR, token.LSS},
	token.EQL:        {token.NEQ},
	token.NEQ:        {token.EQL},
	token.LAND:       {token.LOR},
	token.LOR:        {token.LAND},
	token.ADD:        {token.SUB},
	token.SUB:        {token.ADD},
	token.INC:        {token.DEC},
	token.DEC:        {token.INC},
	token.ADD_ASSIGN: {token.SUB_ASSIGN},
	token.SUB_ASSIGN: {token.ADD_ASSIGN},
}

func (f *finder) swapOperator(n ast.Node, at token.Pos, op token.Token) {
	for _, other := range otherOperators[op] {
		f.replaceAt(at, at+token.Pos(len(op.String())), other.String(), fmt.Sprintf("%s -> %s in %s", op, other, f.brief(n, n.End())))
	}
}

var otherFunctions = map[string]string{"min": "max", "max": "min", "Min": "Max", "Max": "Min", "MinFunc": "MaxFunc", "MaxFunc": "MinFunc"}

// swapMinMax changes the builtin functions and those of the packages math and slices.
func (f *finder) swapMinMax(call *ast.CallExpr) {
	name, callee := f.callee(call)
	if callee == nil || otherFunctions[callee.Name()] == "" {
		return
	}
	if _, isBuiltin := callee.(*types.Builtin); isBuiltin || packagePath(callee) == "math" || packagePath(callee) == "slices" {
		other := otherFunctions[callee.Name()]
		f.replace(name, other, fmt.Sprintf("%s -> %s in %s", name.Name, other, f.brief(call, call.End())))
	}
}

func (f *finder) changeNumber(n *ast.BasicLit, parent ast.Node) {
	if other := map[string]string{"0": "1", "1": "0"}[n.Value]; other != "" {
		f.replace(n, other, fmt.Sprintf("%s -> %s in %s", n.Value, other, f.header(parent)))
	}
}

func (f *finder) removeAssignment(n *ast.AssignStmt) {
	name, isName := n.Lhs[0].(*ast.Ident)
	if n.Tok == token.DEFINE || isName && name.Name == "_" {
		return
	}
	f.replace(n, "", "removed: "+f.brief(n, n.End()))
}

func (f *finder) removeCall(n *ast.ExprStmt) {
	if call, isCall := n.X.(*ast.CallExpr); isCall && !f.isExcludedCall(call) {
		f.replace(n, "", "removed: "+f.brief(n, n.End()))
	}
}

// changeCondition negates a condition. A comparison has such a mutant already, unless it is the check
// of an error: then the check is removed.
func (f *finder) changeCondition(n *ast.IfStmt) {
	e, isBinary := n.Cond.(*ast.BinaryExpr)
	switch {
	case isBinary && f.isErrorCheck(e, n):
		f.replaceAt(n.Cond.End(), n.Cond.End(), " && false", "error check removed: "+f.header(n))
	case !isBinary || e.Op == token.LAND || e.Op == token.LOR:
		f.replace(n.Cond, "!("+f.text(n.Cond.Pos(), n.Cond.End())+")", "condition negated: "+f.header(n))
	}
}

// flipResults flips the results true and false.
func (f *finder) flipResults(n *ast.ReturnStmt, stack []ast.Node) {
	for _, r := range n.Results {
		name, isName := r.(*ast.Ident)
		if !isName || f.source.info.Uses[name] == nil || f.source.info.Uses[name].Parent() != types.Universe {
			continue
		}
		if other := map[string]string{"true": "false", "false": "true"}[name.Name]; other != "" {
			f.replace(name, other, fmt.Sprintf("%s -> %s in %s, in %s", name.Name, other, f.brief(n, n.End()), f.around(stack)))
		}
	}
}

// isErrorCheck reports whether an expression is the condition of an if and compares an error with nil,
// as in if err != nil.
func (f *finder) isErrorCheck(e *ast.BinaryExpr, parent ast.Node) bool {
	n, isIf := parent.(*ast.IfStmt)
	return isIf && n.Cond == e && e.Op == token.NEQ && f.source.info.Types[e.Y].IsNil() &&
		types.Identical(f.source.info.TypeOf(e.X), types.Universe.Lookup("error").Type())
}

// isConcatenation reports whether an expression adds strings.
func (f *finder) isConcatenation(e *ast.BinaryExpr) bool {
	basic, isBasic := f.source.info.TypeOf(e).Underlying().(*types.Basic)
	return isBasic && basic.Info()&types.IsString != 0
}

// isLastReturn reports whether a return ends a function. stack are the nodes around the return.
func (f *finder) isLastReturn(stack []ast.Node) bool {
	if _, isBlock := stack[len(stack)-1].(*ast.BlockStmt); !isBlock {
		return false
	}
	switch stack[len(stack)-2].(type) {
	case *ast.FuncDecl, *ast.FuncLit:
		return true
	}
	return false
}

// isErrorReturn reports whether a return is the only statement below the check of an error. Without
// the check, it never runs, so that its removal would be the same mutant.
func (f *finder) isErrorReturn(stack []ast.Node) bool {
	block, isBlock := stack[len(stack)-1].(*ast.BlockStmt)
	n, isIf := stack[len(stack)-2].(*ast.IfStmt)
	if !isBlock || !isIf || block != n.Body || len(block.List) != 1 {
		return false
	}
	e, isBinary := n.Cond.(*ast.BinaryExpr)
	return isBinary && f.isErrorCheck(e, n)
}

func (f *finder) replace(n ast.Node, text, change string) {
	f.replaceAt(n.Pos(), n.End(), text, change)
}

func (f *finder) replaceAt(from, to token.Pos, text, change string) {
	start := f.source.set.Position(from)
	f.found = append(f.found, mutant{source: f.source, file: f.file, function: f.function, line: start.Line, change: change,
		start: start.Offset, end: f.source.set.Position(to).Offset, text: text})
}

// around returns the header of the innermost statement or function around a statement.
func (f *finder) around(stack []ast.Node) string {
	for i := len(stack) - 1; i > 0; i-- {
		switch n := stack[i].(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.CaseClause, *ast.CommClause, *ast.FuncLit:
			return f.header(n)
		}
	}
	return f.function
}

// header returns the text of a node up to the block or the statements that it contains.
func (f *finder) header(n ast.Node) string {
	end := n.End()
	switch n := n.(type) {
	case *ast.IfStmt:
		end = n.Body.Lbrace
	case *ast.ForStmt:
		end = n.Body.Lbrace
	case *ast.RangeStmt:
		end = n.Body.Lbrace
	case *ast.FuncLit:
		end = n.Body.Lbrace
	case *ast.CaseClause:
		end = n.Colon
	case *ast.CommClause:
		end = n.Colon
	}
	return f.brief(n, end)
}

func (f *finder) text(from, to token.Pos) string {
	return string(f.file.content[f.source.set.Position(from).Offset:f.source.set.Position(to).Offset])
}

// brief returns the text from a node's start to end in one line of at most 80 characters.
func (f *finder) brief(n ast.Node, end token.Pos) string {
	text := []rune(strings.Join(strings.Fields(f.text(n.Pos(), end)), " "))
	if len(text) > 80 {
		return string(text[:79]) + "…"
	}
	return string(text)
}
