// Package contract tests that whatever reads metrics reads metrics that exist:
// exporter, operator, rules, dashboards and samples share nothing but names.
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

// expression of PromQL and where it stands.
type expression struct {
	where, expr string
	// perCluster: its answer must name the cluster.
	perCluster bool
}

func TestEveryExpressionReadsMetricsThatExist(t *testing.T) {
	known := exported(t)
	for _, p := range withRules(known, readRules(t, "recording.yaml")) {
		t.Error(p)
	}
	sources := map[string]func(*testing.T) []expression{
		"alerts": fromAlerts, "runbooks": fromRunbooks, "dashboards": fromDashboards, "samples": fromSamples, "the operator's defaults": fromOperator,
	}
	for name, source := range sources {
		found := source(t)
		if len(found) == 0 {
			t.Errorf("no expression in %s", name)
		}
		for _, e := range found {
			for _, p := range problems(known, e) {
				t.Error(p)
			}
		}
	}
}

func problems(known catalog, e expression) []string {
	have, wrong := known.check(e.expr)
	if len(wrong) == 0 && e.perCluster && !have["cluster"] {
		wrong = []string{"the answer has no label cluster"}
	}
	for i := range wrong {
		wrong[i] = fmt.Sprintf("%s: %s", e.where, wrong[i])
	}
	return wrong
}

func TestWhatIsMisspeltIsFound(t *testing.T) {
	known := exported(t)
	withRules(known, readRules(t, "recording.yaml"))
	for _, c := range []struct{ expr, want string }{
		{`sum by (cluster) (cluster_model:plimsoll_free_devices:sum{model="x"})`, ""},
		{`sum by (cluster) (cluster_model:plimsoll_free_device:sum)`, `"cluster_model:plimsoll_free_device:sum" is in no catalog`},
		{`sum by (cluster) (plimsol_node_devices)`, `"plimsol_node_devices" is in no catalog`},
		{`DCGM_FI_DEV_GPU_UTILISATION`, "is in no catalog"},
		{`plimsoll_node_devices{status="free"}`, `label "status"`},
		{`sum by (clutser) (plimsoll_node_devices)`, `label "clutser"`},
		{`sum by (model) (cluster:plimsoll_free_devices:sum)`, `label "model"`},
		{`plimsoll_node_devices * on (cluster, nod) group_left () node:plimsoll_placeable:bool`, `label "nod"`},
		{`plimsoll_score * on (cluster) group_left (model) cluster:plimsoll_free_devices:sum`, `label "model"`},
		{`label_replace(plimsoll_device_lost, "UUID", "$1", "UUID", "(.+)")`, `label "UUID"`},
		{`sum(plimsoll_node_devices)`, "no label cluster"},
		{`sum by (cluster) (up`, "unclosed"},
	} {
		got := strings.Join(problems(known, expression{"test", c.expr, true}), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.expr, got, c.want)
		}
	}
	broken := readRules(t, "recording.yaml")
	for i := range broken.Groups[0].Rules {
		r := &broken.Groups[0].Rules[i]
		r.Expr = strings.ReplaceAll(r.Expr, "plimsoll_node_devices", "plimsoll_node_device")
	}
	if withRules(exported(t), broken) == nil {
		t.Error("recording rules over a misspelt metric have no problem")
	}
}

var labelUse = regexp.MustCompile(`\$labels\.(\w+)`)

func TestAlertsSayWhatToDo(t *testing.T) {
	known := exported(t)
	withRules(known, readRules(t, "recording.yaml"))
	for _, g := range readRules(t, "alerts.yaml").Groups {
		for _, r := range g.Rules {
			have, _ := known.check(r.Expr)
			for _, key := range []string{"summary", "description"} {
				if r.Annotations[key] == "" {
					t.Errorf("%s has no %s", r.Alert, key)
				}
				for _, use := range labelUse.FindAllStringSubmatch(r.Annotations[key], -1) {
					if !have[use[1]] {
						t.Errorf("%s's %s uses %s, which its expression doesn't have", r.Alert, key, use[0])
					}
				}
			}
			if s := r.Labels["severity"]; s != "critical" && s != "warning" && s != "info" {
				t.Errorf("%s's severity is %q", r.Alert, s)
			}
			if want := "https://plimsoll.dev/runbooks/" + r.Alert; r.Annotations["runbook_url"] != want {
				t.Errorf("%s's runbook_url is %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
			}
			if _, err := os.Stat(filepath.Join(root, "rules", "runbooks", r.Alert+".md")); err != nil {
				t.Errorf("%s has no runbook: %v", r.Alert, err)
			}
			if !strings.HasPrefix(r.Alert, "Plimsoll") {
				t.Errorf("%s must begin with Plimsoll", r.Alert)
			}
		}
	}
}

func fromAlerts(t *testing.T) []expression {
	var found []expression
	for _, g := range readRules(t, "alerts.yaml").Groups {
		for _, r := range g.Rules {
			found = append(found, expression{where: "alert " + r.Alert, expr: r.Expr})
		}
	}
	return found
}

// fromRunbooks reads blocks marked as promql, an expression on each line.
func fromRunbooks(t *testing.T) []expression {
	var found []expression
	for _, file := range walk(t, filepath.Join(root, "rules", "runbooks"), ".md") {
		_, blocks, _ := strings.Cut(read(t, file), "```promql\n")
		for block := range strings.SplitSeq(blocks, "```promql\n") {
			block, _, _ = strings.Cut(block, "```")
			for line := range strings.Lines(block) {
				found = append(found, expression{where: filepath.Base(file), expr: line})
			}
		}
	}
	return found
}

func fromDashboards(t *testing.T) []expression {
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

// fromSamples reads every field named query of our kinds.
func fromSamples(t *testing.T) []expression {
	var found []expression
	for _, file := range walk(t, filepath.Join(root, "config", "samples"), ".yaml") {
		for doc := range strings.SplitSeq(read(t, file), "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if version, _ := object["apiVersion"].(string); strings.HasPrefix(version, "plimsoll.dev/") {
				found = append(found, queriesBelow(filepath.Base(file), object)...)
			}
		}
	}
	return found
}

func queriesBelow(where string, node any) []expression {
	var found []expression
	switch n := node.(type) {
	case []any:
		for _, item := range n {
			found = append(found, queriesBelow(where, item)...)
		}
	case map[string]any:
		for key, value := range n {
			if text, isText := value.(string); isText && key == "query" {
				found = append(found, expression{where: where, expr: withFacts(text), perCluster: n["scope"] != "Fleet"})
				continue
			}
			found = append(found, queriesBelow(where, value)...)
		}
	}
	return found
}

var fact = regexp.MustCompile(`\$[a-z_]+`)

// withFacts sets a gate's variables: any number does, also as a label's value.
func withFacts(expr string) string { return fact.ReplaceAllString(expr, "1") }

// fromOperator reads PromQL that the operator's source holds, with %s where the
// cluster's label goes.
func fromOperator(t *testing.T) []expression {
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
				found = append(found, expression{where: filepath.Base(file), expr: withFacts(strings.ReplaceAll(text, "%s", "cluster")), perCluster: true})
			}
			return true
		})
	}
	return found
}

func operatorSources(t *testing.T) []string {
	var files []string
	for _, file := range walk(t, filepath.Join(root, "operator"), ".go") {
		if !strings.HasSuffix(file, "_test.go") {
			files = append(files, file)
		}
	}
	return files
}

func walk(t *testing.T, dir, ext string) []string {
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

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
