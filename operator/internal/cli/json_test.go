package cli

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	admissionexplain "plimsoll.dev/plimsoll/operator/internal/admission/explain"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shadow"
	"plimsoll.dev/plimsoll/operator/internal/cli/ask"
	"plimsoll.dev/plimsoll/operator/internal/cli/evaluation"
	"plimsoll.dev/plimsoll/operator/internal/cli/explanation"
)

var updateJSON = flag.Bool("update-json", false, "generate operator/docs/json.md")

const (
	module       = "plimsoll.dev/plimsoll/"
	documentFile = "../../docs/json.md"
)

// documents are the kinds that programs are meant to read, with their commands.
var documents = []struct {
	kind, commands string
	of             any
}{
	{"FitReport", "`fit`, and `preview` of a gate", ask.Report{}},
	{"WorkloadExplanation", "`explain workload`", admissionexplain.Report{}},
	{"GateReport", "`report gate`", shadow.GateReport{}},
	{"PolicyPreview", "`preview` of a policy", []evaluation.Row{}},
	{"PolicyExplanation", "`explain policy`", explanation.PolicyReport{}},
	{"ClusterExplanationList", "`explain cluster`", []explanation.ClusterReport{}},
}

// operator/docs/json.md lists every field of the documents that programs read.
func TestJSONReferenceIsGenerated(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# JSON documents of the CLI

` + "`-o json` and `-o yaml`" + ` print one document with ` + "`apiVersion: plimsoll.dev/v1alpha1` and a `kind`" + `; a list has its elements in ` + "`items`" + `.
Fields are added to a version, and never removed or given another meaning. An absent number is not known.
The inner fields of an object without rows of its own are for diagnosis: they follow the code, and may change.
This reference is generated from the Go types by ` + "`go test ./operator/internal/cli -run TestJSONReferenceIsGenerated -update-json`" + `.
`)
	w := fieldWriter{comments: map[string]map[string]string{}}
	for _, d := range documents {
		fmt.Fprintf(&b, "\n## %s\n\nOf %s.\n\n| field | type | meaning |\n|---|---|---|\n", d.kind, d.commands)
		if of := reflect.TypeOf(d.of); of.Kind() == reflect.Slice {
			w.write(t, &b, "items[].", of.Elem())
		} else {
			w.write(t, &b, "", of)
		}
	}
	if *updateJSON {
		if err := os.WriteFile(documentFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(b.String(), string(got)); d != "" {
		t.Errorf("operator/docs/json.md is not up to date (-want +got):\n%s", d)
	}
}

// fieldWriter writes rows of fields. comments are by type, with its path, and field.
type fieldWriter struct{ comments map[string]map[string]string }

// write writes a row for each field of a struct, depth first.
func (w *fieldWriter) write(t *testing.T, b *strings.Builder, prefix string, of reflect.Type) {
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
			continue
		}
		owner := of
		for _, i := range f.Index[:len(f.Index)-1] {
			owner = owner.Field(i).Type
		}
		if name == "" {
			t.Errorf("%s.%s has no name in JSON", owner, f.Name)
		}
		element, suffix := f.Type, ""
		for element.Kind() == reflect.Pointer || element.Kind() == reflect.Slice || element.Kind() == reflect.Map {
			suffix += map[reflect.Kind]string{reflect.Slice: "[]", reflect.Map: "{}"}[element.Kind()]
			element = element.Elem()
		}
		fmt.Fprintf(b, "| `%s%s%s` | %s | %s |\n", prefix, name, suffix, typeName(element), w.comment(t, owner, f.Name))
		if isDocumented(element) {
			w.write(t, b, prefix+name+suffix+".", element)
		}
	}
}

// innerTypes are types of other packages whose fields have rows of their own.
var innerTypes = []reflect.Type{
	reflect.TypeFor[gate.Explanation](), reflect.TypeFor[gate.ClusterExplanation](), reflect.TypeFor[gate.Decision](),
	reflect.TypeFor[gate.BrokenRule](), reflect.TypeFor[gate.RequirementResult](), reflect.TypeFor[gate.Number](),
}

// isDocumented reports whether the fields of a type have rows of their own.
func isDocumented(of reflect.Type) bool {
	inner := []string{"operator/api/v1alpha1", "operator/internal/cli/ask", "operator/internal/cli/evaluation", "operator/internal/cli/explanation", "operator/internal/admission/explain"}
	return of.Kind() == reflect.Struct && slices.Contains(inner, strings.TrimPrefix(of.PkgPath(), module)) || slices.Contains(innerTypes, of)
}

// isText reports whether a type is one value in JSON.
func isText(of reflect.Type) bool {
	_, ok := reflect.New(of).Interface().(interface{ MarshalJSON() ([]byte, error) })
	return ok
}

func typeName(of reflect.Type) string {
	switch {
	case of.Kind() == reflect.Struct && (of.Name() == "Time" || of.Name() == "MicroTime"):
		return "time"
	case of.Name() == "Duration":
		return "integer, nanoseconds"
	case of.Kind() == reflect.Struct && isText(of), of.Kind() == reflect.Float64:
		return "number"
	case of.Kind() == reflect.Struct:
		return "object"
	case of.Kind() == reflect.Bool:
		return "boolean"
	case of.Kind() == reflect.String:
		return "string"
	}
	return "integer"
}

// comment returns the comment of a field, on one line.
func (w *fieldWriter) comment(t *testing.T, of reflect.Type, field string) string {
	if w.comments[of.PkgPath()] == nil {
		w.comments[of.PkgPath()] = commentsOf(t, of.PkgPath())
	}
	text := strings.ReplaceAll(w.comments[of.PkgPath()][of.Name()+"."+field], "|", "\\|")
	return strings.TrimSpace(strings.Join(strings.Fields(text), " "))
}

// commentsOf returns the comments of the fields of a package, by type and field. A comment stands for
// the fields that follow on the next lines.
func commentsOf(t *testing.T, path string) map[string]string {
	dir := filepath.Join("../../..", strings.TrimPrefix(path, module))
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	marker, comments := regexp.MustCompile(`(?m)^\+.*$`), map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						comments[spec.Name.Name+"."+name.Name] = marker.ReplaceAllString(f.Doc.Text()+f.Comment.Text(), "")
					}
				}
			}
			return true
		})
	}
	return comments
}
