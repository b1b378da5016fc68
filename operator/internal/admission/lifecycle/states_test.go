package lifecycle

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the section States of operator/docs/admission.md")

const (
	statesDocument = "../../../docs/admission.md"
	statesBegin    = "<!-- states:begin -->\n"
	statesEnd      = "<!-- states:end -->\n"
)

// statesSection renders the documented phases as diagram and table.
func statesSection() string {
	var b strings.Builder
	b.WriteString("\n```mermaid\nstateDiagram-v2\n    [*] --> Idle\n")
	for _, p := range phases {
		for _, to := range p.next {
			fmt.Fprintf(&b, "    %s --> %s\n", p.phase, to)
		}
	}
	b.WriteString("```\n\nThe first row whose condition holds is the state.\n\n| state | condition | step | next |\n|---|---|---|---|\n")
	for _, p := range phases {
		names := make([]string, len(p.next))
		for i, to := range p.next {
			names[i] = string(to)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.phase, p.condition, p.work, strings.Join(names, ", "))
	}
	return b.String() + "\n"
}

// declaredPhases are the Phase constants of phases.go, by value.
func declaredPhases(t *testing.T) []Phase {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "phases.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var phases []Phase
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Phase") || len(spec.Values) != 1 {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		phases = append(phases, Phase(value))
		return true
	})
	return phases
}

func TestStatesDocument(t *testing.T) {
	text, err := os.ReadFile(statesDocument)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, hasBegin := strings.Cut(string(text), statesBegin)
	section, after, hasEnd := strings.Cut(rest, statesEnd)
	if !hasBegin || !hasEnd {
		t.Fatalf("%s must have the markers %q and %q", statesDocument, statesBegin, statesEnd)
	}
	if *update {
		if err := os.WriteFile(statesDocument, []byte(before+statesBegin+statesSection()+statesEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(statesSection(), section); diff != "" {
		t.Errorf("run go test -run TestStatesDocument -update; section States (-code +document):\n%s", diff)
	}
}

func TestEveryPhaseIsDocumentedOnce(t *testing.T) {
	var documented []Phase
	for _, p := range phases {
		documented = append(documented, p.phase)
	}
	declared := declaredPhases(t)
	slices.Sort(documented)
	slices.Sort(declared)
	if len(declared) < 2 {
		t.Fatalf("found only %v in phases.go", declared)
	}
	if diff := cmp.Diff(declared, documented); diff != "" {
		t.Errorf("phases (-declared +documented):\n%s", diff)
	}
	for _, p := range phases {
		for _, to := range p.next {
			if !slices.Contains(declared, to) {
				t.Errorf("%s leads to %s, which is no phase", p.phase, to)
			}
		}
	}
}

// isDocumented reports whether the document has a transition.
func isDocumented(from, to Phase) bool {
	if slices.Contains([]Phase{from, PhaseDeleted, PhaseCacheStale, PhaseWriteRefused, PhaseEvicting, PhaseIdle}, to) {
		return true
	}
	i := slices.IndexFunc(phases, func(p phaseRow) bool { return p.phase == from })
	return i >= 0 && slices.Contains(phases[i].next, to)
}
