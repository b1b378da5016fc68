// Package contract tests that rules, dashboards, samples and the operator only read
// metrics that the exporter, the operator, Kueue and kube-state-metrics export.
package contract

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/dashboards"
)

// expression is a PromQL expression with its place of definition.
type expression struct {
	where, expr string
	// perCluster requires the label cluster in the result.
	perCluster bool
}

func TestExpressionsReadExistingMetrics(t *testing.T) {
	known := exportedMetrics(t)
	for _, p := range addRecordingRules(known, readRules(t, recordingFiles...)) {
		t.Error(p)
	}
	sources := map[string]func(*testing.T) []expression{
		"alerts": alertExpressions, "runbooks": runbookExpressions, "dashboards": dashboardExpressions, "samples": sampleExpressions, "the operator's defaults": operatorExpressions,
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			found := source(t)
			if len(found) == 0 {
				t.Error("no expressions")
			}
			for _, e := range found {
				for _, p := range findProblems(known, e) {
					t.Error(p)
				}
			}
		})
	}
}

func findProblems(known catalog, e expression) []string {
	have, wrong := known.check(e.expr)
	if len(wrong) == 0 && e.perCluster && !have["cluster"] {
		wrong = []string{"the result has no label cluster"}
	}
	for i := range wrong {
		wrong[i] = fmt.Sprintf("%s: %s", e.where, wrong[i])
	}
	return wrong
}

func TestCheckFindsMistakes(t *testing.T) {
	known := exportedMetrics(t)
	addRecordingRules(known, readRules(t, recordingFiles...))
	for _, tc := range []struct{ name, expr, want string }{
		{"correct", `sum by (cluster) (cluster_resource_model:plimsoll_free_devices:sum{model="x"})`, ""},
		{"unknown recording rule", `sum by (cluster) (cluster_model:plimsoll_free_device:sum)`, `"cluster_model:plimsoll_free_device:sum" is unknown`},
		{"unknown metric", `sum by (cluster) (plimsol_node_devices)`, `"plimsol_node_devices" is unknown`},
		{"unknown DCGM metric", `DCGM_FI_DEV_GPU_UTILISATION`, "is unknown"},
		{"label in a selector", `plimsoll_node_devices{status="free"}`, `label "status"`},
		{"label in by", `sum by (clutser) (plimsoll_node_devices)`, `label "clutser"`},
		{"label that the rule removed", `sum by (model) (cluster_resource:plimsoll_free_devices:sum)`, `label "model"`},
		{"label in on", `plimsoll_node_devices * on (cluster, nod) group_left () node:plimsoll_placeable:bool`, `label "nod"`},
		{"label in group_left", `plimsoll_score * on (cluster) group_left (model) cluster_resource:plimsoll_free_devices:sum`, `label "model"`},
		{"label in label_join", `label_join(plimsoll_device_lost, "x", ".", "uuid", "UUID")`, `label "UUID"`},
		{"label in label_replace", `label_replace(plimsoll_device_lost, "UUID", "$1", "UUID", "(.+)")`, `label "UUID"`},
		{"result without cluster", `sum(plimsoll_node_devices)`, "no label cluster"},
		{"one of several metrics", `sum by (cluster) ({__name__=~"plimsoll_device_lost|plimsol_device_hung"})`, `"plimsol_device_hung" is unknown`},
		{"label of one of several metrics", `sum by (cluster) ({__name__=~"plimsoll_device_owner_info|plimsoll_device_lost",pod="x"})`, `label "pod"`},
		{"metrics by a pattern", `sum by (cluster) ({__name__=~"plimsoll_device_.+"})`, "does not list its metrics"},
		{"syntax error", `sum by (cluster) (up`, "unclosed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := strings.Join(findProblems(known, expression{"test", tc.expr, true}), "\n")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("problems %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCheckFindsMistakesInRules(t *testing.T) {
	broken := readRules(t, recordingFiles...)
	for i := range broken.Groups[0].Rules {
		r := &broken.Groups[0].Rules[i]
		r.Expr = strings.ReplaceAll(r.Expr, "plimsoll_node_devices", "plimsoll_node_device")
	}
	if addRecordingRules(exportedMetrics(t), broken) == nil {
		t.Error("want problems for rules with a misspelled metric")
	}
}

var labelUse = regexp.MustCompile(`\$labels\.(\w+)`)

func TestAlertsAreComplete(t *testing.T) {
	known := exportedMetrics(t)
	addRecordingRules(known, readRules(t, recordingFiles...))
	readme := readFile(t, filepath.Join(root, "rules", "README.md"))
	for _, g := range readRules(t, alertFiles...).Groups {
		for _, r := range g.Rules {
			have, _ := known.check(r.Expr)
			for _, key := range []string{"summary", "description"} {
				if r.Annotations[key] == "" {
					t.Errorf("%s has no %s", r.Alert, key)
				}
				for _, use := range labelUse.FindAllStringSubmatch(r.Annotations[key], -1) {
					if !have[use[1]] {
						t.Errorf("the %s of %s uses %s, but the expression has no such label", key, r.Alert, use[0])
					}
				}
			}
			if s := r.Labels["severity"]; s != "critical" && s != "warning" && s != "info" {
				t.Errorf("the severity of %s is %q", r.Alert, s)
			}
			if want := "https://plimsoll.dev/runbooks/" + r.Alert; r.Annotations["runbook_url"] != want {
				t.Errorf("the runbook_url of %s is %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
			}
			if _, err := os.Stat(filepath.Join(root, "rules", "runbooks", r.Alert+".md")); err != nil {
				t.Errorf("%s has no runbook: %v", r.Alert, err)
			}
			if !strings.Contains(readme, "| ["+r.Alert+"](runbooks/"+r.Alert+".md) |") {
				t.Errorf("%s is not in the table of rules/README.md", r.Alert)
			}
			if !strings.HasPrefix(r.Alert, "Plimsoll") {
				t.Errorf("%s must begin with Plimsoll", r.Alert)
			}
		}
	}
}

func alertExpressions(t *testing.T) []expression {
	var found []expression
	for _, g := range readRules(t, alertFiles...).Groups {
		for _, r := range g.Rules {
			found = append(found, expression{where: "alert " + r.Alert, expr: r.Expr})
		}
	}
	return found
}

// runbookExpressions reads the code blocks marked as promql, with one expression per
// line.
func runbookExpressions(t *testing.T) []expression {
	var found []expression
	for _, file := range findFiles(t, filepath.Join(root, "rules", "runbooks"), ".md") {
		_, blocks, _ := strings.Cut(readFile(t, file), "```promql\n")
		for block := range strings.SplitSeq(blocks, "```promql\n") {
			block, _, _ = strings.Cut(block, "```")
			for line := range strings.Lines(block) {
				found = append(found, expression{where: filepath.Base(file), expr: line})
			}
		}
	}
	return found
}

func dashboardExpressions(t *testing.T) []expression {
	queries, err := dashboards.Queries()
	if err != nil {
		t.Fatal(err)
	}
	var found []expression
	for _, q := range queries {
		found = append(found, expression{where: q.Dashboard + ", " + q.Panel, expr: q.Expr})
	}
	return found
}

// sampleExpressions reads all fields named query in objects of plimsoll.dev.
func sampleExpressions(t *testing.T) []expression {
	var found []expression
	for _, file := range findFiles(t, filepath.Join(root, "config", "samples"), ".yaml") {
		for doc := range strings.SplitSeq(readFile(t, file), "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if version, _ := object["apiVersion"].(string); strings.HasPrefix(version, "plimsoll.dev/") {
				found = append(found, findQueries(filepath.Base(file), object)...)
			}
		}
	}
	return found
}

func findQueries(where string, node any) []expression {
	var found []expression
	switch n := node.(type) {
	case []any:
		for _, item := range n {
			found = append(found, findQueries(where, item)...)
		}
	case map[string]any:
		for key, value := range n {
			if text, isText := value.(string); isText && key == "query" {
				found = append(found, expression{where: where, expr: substituteVariables(text), perCluster: n["scope"] != "Fleet"})
				continue
			}
			if queries, isMap := value.(map[string]any); isMap && key == "queries" { // of a gate
				for _, q := range queries {
					found = append(found, expression{where: where, expr: substituteVariables(q.(string)), perCluster: true})
				}
				continue
			}
			found = append(found, findQueries(where, value)...)
		}
	}
	return found
}

var gateVariable = regexp.MustCompile(`\$[a-z_]+`)

// substituteVariables replaces $cluster_label by cluster, and a gate's variables by 1, which
// is valid as a number and as the value of a label.
func substituteVariables(expr string) string {
	return gateVariable.ReplaceAllString(strings.ReplaceAll(expr, "$cluster_label", "cluster"), "1")
}

// operatorExpressions reads the string literals with PromQL in the operator's source.
// They contain %s in place of the cluster label.
func operatorExpressions(t *testing.T) []expression {
	var found []expression
	for _, file := range operatorSources(t) {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err == nil && strings.Contains(text, " by (%s) (") && strings.Contains(text, "plimsoll_") {
				found = append(found, expression{where: filepath.Base(file), expr: substituteVariables(strings.ReplaceAll(text, "%s", "cluster")), perCluster: true})
			}
			return true
		})
	}
	return found
}

// operatorSources returns the operator's Go files without tests.
func operatorSources(t *testing.T) []string {
	var files []string
	world := filepath.Join("operator", "internal", "world") + string(filepath.Separator) // a model of other programs
	for _, file := range findFiles(t, filepath.Join(root, "operator"), ".go") {
		if !strings.HasSuffix(file, "_test.go") && !strings.Contains(file, world) {
			files = append(files, file)
		}
	}
	return files
}

// findFiles returns all files below dir with the extension, such as .yaml.
func findFiles(t *testing.T, dir, ext string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ext {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
