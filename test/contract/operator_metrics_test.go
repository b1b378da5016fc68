package contract

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// operatorReference is the reference of the operator's metrics.
const operatorReference = "operator/docs/metrics.md"

const operatorReferenceHead = "# Metrics of the operator\n\n" +
	"Generated from the operator's source by `make generate`. The operator serves them at `/metrics`, with TLS, to those who may read it: bind the ClusterRole `plimsoll-metrics-reader` to the ServiceAccount of your Prometheus. `config/prometheus/hub` scrapes them.\n\n" +
	"A histogram has the suffixes `_bucket` (with the label `le`), `_sum` and `_count`. `plimsoll_build_info` has the version, with `component=\"operator\"`. Also exported are the metrics of controller-runtime, client-go and the Go runtime. [Exporter metrics](../../exporter/METRICS.md)\n\n" +
	"| metric | type | labels | description |\n|---|---|---|---|\n"

// operatorMetric is a metric that the operator's source declares.
type operatorMetric struct{ name, kind, help string }

// The reference has all metrics of the operator: `make generate` writes it.
func TestOperatorMetricsReferenceIsGenerated(t *testing.T) {
	var b strings.Builder
	b.WriteString(operatorReferenceHead)
	for _, m := range documentedMetrics(t) {
		var names []string
		for _, label := range operatorLabels(t, m.name) {
			names = append(names, "`"+label+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(names, " "), strings.ReplaceAll(m.help, "|", `\|`))
	}
	path := filepath.Join(root, filepath.FromSlash(operatorReference))
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text := readFile(t, path)
	if text != b.String() {
		t.Errorf("%s is not up to date: make generate", operatorReference)
	}
	for name := range operatorMetrics {
		if !strings.Contains(text, "| `"+metricBase(name)+"` |") {
			t.Errorf("%s has no %s", operatorReference, metricBase(name))
		}
	}
}

// operatorLabels returns the labels of a metric in the table operatorMetrics, without le.
func operatorLabels(t *testing.T, name string) []string {
	t.Helper()
	for listed, labels := range operatorMetrics {
		if metricBase(listed) == name {
			return slices.DeleteFunc(slices.Clone(labels), func(label string) bool { return label == "le" })
		}
	}
	t.Errorf("%s is not in the table operatorMetrics", name)
	return nil
}

// documentedMetrics returns the metrics that the operator's source declares, by name. The description is
// the argument after the name, or the field Help beside it.
func documentedMetrics(t *testing.T) []operatorMetric {
	t.Helper()
	byName := map[string]operatorMetric{}
	name := regexp.MustCompile(`^plimsoll_[a-z_]+$`)
	add := func(metric, help ast.Expr, kind string) {
		m := operatorMetric{textOf(metric), kind, textOf(help)}
		if !name.MatchString(m.name) {
			return
		}
		if strings.HasSuffix(m.name, "_total") {
			m.kind = "counter"
		}
		byName[m.name] = m
	}
	for _, file := range operatorSources(t) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.CallExpr:
				if len(x.Args) > 1 {
					add(x.Args[0], x.Args[1], "gauge")
				}
			case *ast.CompositeLit:
				fields := map[string]ast.Expr{}
				for _, e := range x.Elts {
					if pair, ok := e.(*ast.KeyValueExpr); ok {
						if key, ok := pair.Key.(*ast.Ident); ok {
							fields[key.Name] = pair.Value
						}
					}
				}
				kind := "gauge"
				if selector, ok := x.Type.(*ast.SelectorExpr); ok && selector.Sel.Name == "HistogramOpts" {
					kind = "histogram"
				}
				add(fields["Name"], fields["Help"], kind)
			}
			return true
		})
	}
	declared := declaredOperatorMetrics(t)
	var metrics []operatorMetric
	for _, m := range byName {
		if m.help == "" {
			t.Errorf("%s has no description", m.name)
		}
		metrics = append(metrics, m)
	}
	for metric := range declared {
		if byName[metric].name == "" && !exporterMetrics(t)[metric] { // the operator reads some of the exporter's
			t.Errorf("%s: no description beside the name", metric)
		}
	}
	slices.SortFunc(metrics, func(a, b operatorMetric) int { return strings.Compare(a.name, b.name) })
	return metrics
}

// textOf returns the value of a string literal, or of a sum of them; otherwise "".
func textOf(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.BasicLit:
		if x.Kind == token.STRING {
			text, err := strconv.Unquote(x.Value)
			if err == nil {
				return text
			}
		}
	case *ast.BinaryExpr:
		return textOf(x.X) + textOf(x.Y)
	}
	return ""
}
