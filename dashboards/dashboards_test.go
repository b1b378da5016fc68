package dashboards

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/prometheus/prometheus/promql/parser"
)

func TestDashboardsPassLint(t *testing.T) {
	problems, err := lint(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	if queries, err := Queries(); err != nil || len(queries) == 0 {
		t.Errorf("Queries() returned %d queries, %v", len(queries), err)
	}
}

// TestLintFindsMistakes changes fleet.json in one place at a time.
func TestLintFindsMistakes(t *testing.T) {
	for _, tc := range []struct{ name, old, replacement, want string }{
		{"no uid", `"uid": "plimsoll-fleet"`, `"uid": ""`, "uid"},
		{"uid differs from file name", `"uid": "plimsoll-fleet"`, `"uid": "plimsoll-flet"`, "uid"},
		{"title without prefix", `"Plimsoll / Fleet"`, `"Fleet"`, "title"},
		{"old schema", `"schemaVersion": 42`, `"schemaVersion": 16`, "schemaVersion"},
		{"fixed datasource", `"uid": "${datasource}"`, `"uid": "PBFA97CFB590B2093"`, "datasource"},
		{"no unit", `"unit": "watt"`, `"unit": ""`, "unit"},
		{"no description", `"description": "Power draw of all devices, in watts."`, `"description": ""`, "description"},
		{"PromQL syntax error", `sum(max by (gate) (plimsoll_gate_waiting_workloads))`, `sum(plimsoll_gate_waiting_workloads`, "parse"},
		{"unknown variable", `model=~\"$model\"`, `model=~\"$modle\"`, "$modle"},
		{"fixed cluster", `cluster=~\"$cluster\"`, `cluster=\"prod-1\"`, "hard-coded"},
		{"fixed interval", `sum(max by (gate) (plimsoll_gate_waiting_workloads))`, `sum(rate(plimsoll_gate_requeues_total[5m]))`, "$__rate_interval"},
		{"unknown is green", "\"color\": \"text\",\n                \"value\": null", "\"color\": \"green\",\n                \"value\": null", "green"},
		{"no color for unknown", `"match": "null+nan",`, `"match": "empty",`, "null+nan"},
		{"too many series", `cluster_resource_model:plimsoll_free_devices:sum{cluster=~\"$cluster\",resource=\"$resource\",model=~\"$model\"} @ end()`,
			`cluster_resource_model:plimsoll_free_devices:sum{cluster=~\"$cluster\",resource=\"$resource\",model=~\"$model\"}`, "@ end()"},
		{"no name on one cluster", `"renameByRegex"`, `"merge"`, "renameByRegex"},
		{"colors by order", `"mode": "palette-classic-by-name"`, `"mode": "palette-classic"`, "palette-classic-by-name"},
		{"legend as list", `"displayMode": "table"`, `"displayMode": "list"`, "legend"},
		{"axis up to 10000%", `"max": 1`, `"decimals": 1`, "axisSoftMax"},
		{"narrow model", `"value": 215`, `"value": 190`, "NVIDIA-H100-80GB-HBM3"},
		{"per second", `"unit": "watt"`, `"unit": "ops"`, "cpm"},
		{"link without time", "${__url_time_range}&var-cluster", "var-cluster", "__url_time_range"},
		{"link to an unknown dashboard", "/d/plimsoll-devices?", "/d/plimsoll-nodes?", "plimsoll-nodes"},
		{"link with an unknown variable", "&var-model=", "&var-modle=", "var-modle"},
		{"repeated query", `sum(cluster_resource_model:plimsoll_allocated_devices:sum{`, `sum(cluster_resource_model:plimsoll_free_devices:sum{`, "repeats"},
		{"editable", `"editable": false`, `"editable": true`, "editable"},
		{"duplicate panel id", `"id": 2,`, `"id": 1,`, "id"},
		{"overlapping panels", `"y": 14,`, `"y": 9,`, "overlap"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			good, err := files.ReadFile("fleet.json")
			if err != nil {
				t.Fatal(err)
			}
			bad := strings.Replace(string(good), tc.old, tc.replacement, 1)
			if bad == string(good) {
				t.Fatalf("fleet.json does not contain %s", tc.old)
			}
			all := fstest.MapFS{"fleet.json": {Data: []byte(bad)}}
			for _, name := range []string{"devices.json", "jobs.json", "admission.json"} { // targets of links
				content, err := files.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				all[name] = &fstest.MapFile{Data: content}
			}
			problems, err := lint(all)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(problems, "\n"), tc.want) {
				t.Errorf("with %s: problems %q, want one about %s", tc.replacement, problems, tc.want)
			}
		})
	}
}

// lint returns the problems of all dashboards in a file system.
func lint(from fs.FS) ([]string, error) {
	boards, err := load(from)
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(boards)) {
		b := boards[name]
		report := func(format string, args ...any) {
			problems = append(problems, name+": "+fmt.Sprintf(format, args...))
		}
		lintDashboard(name, b, report)
		for _, p := range b.flat() {
			lintPanel(b, &p, report)
			lintPresentation(&p, report)
			lintLinks(boards, &p, report)
		}
		lintRepetition(b, report)
	}
	return problems, nil
}

func lintDashboard(name string, b *dashboard, report func(string, ...any)) {
	if want := "plimsoll-" + strings.TrimSuffix(name, ".json"); b.UID != want {
		report("uid is %q, must be %q to keep links valid", b.UID, want)
	}
	if !strings.HasPrefix(b.Title, "Plimsoll / ") {
		report("title %q must begin with \"Plimsoll / \"", b.Title)
	}
	if b.SchemaVersion != 42 {
		report("schemaVersion is %d, must be 42", b.SchemaVersion)
	}
	if b.Editable {
		report("the dashboard must not be editable: a change in Grafana is lost with the next version")
	}
	kinds := map[string]string{}
	for _, v := range b.Templating.List {
		kinds[v.Name] = v.Type
		if v.Type == "query" {
			lintVariable(b, v, report)
		}
	}
	if kinds["datasource"] != "datasource" || kinds["cluster"] != "query" {
		report("variables datasource and cluster must exist")
	}
	for _, a := range b.Annotations.List {
		if a.Datasource.UID != "${datasource}" {
			report("annotation %s has the datasource %q, must be ${datasource}", a.Name, a.Datasource.UID)
		}
		lintExpr(b, "annotation "+a.Name, a.Expr, report)
	}
	ids := map[int]string{}
	panels := b.flat()
	for i, p := range panels {
		if other, taken := ids[p.ID]; taken {
			report("panels %q and %q have the same id %d", other, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		for _, q := range panels[:i] {
			if p.GridPos.X < q.GridPos.X+q.GridPos.W && q.GridPos.X < p.GridPos.X+p.GridPos.W &&
				p.GridPos.Y < q.GridPos.Y+q.GridPos.H && q.GridPos.Y < p.GridPos.Y+p.GridPos.H {
				report("panels %q and %q overlap", q.Title, p.Title)
			}
		}
	}
}

func lintVariable(b *dashboard, v variable, report func(string, ...any)) {
	if v.AllValue == "" {
		report("variable %s must have an allValue, which also matches series without the label", v.Name)
	}
	if v.Datasource.UID != "${datasource}" {
		report("variable %s has the datasource %q, must be ${datasource}", v.Name, v.Datasource.UID)
	}
	expr, err := labelValues(v.Definition)
	if err != nil {
		report("variable %s: %v", v.Name, err)
		return
	}
	lintExpr(b, "variable "+v.Name, expr, report)
}

var (
	fixedCluster = regexp.MustCompile(`\bcluster=~?"[^"$]+"`)
	fixedRange   = regexp.MustCompile(`\b(?:rate|irate|increase)\([^\[\]]*\[[^$\]]`)
)

func lintPanel(b *dashboard, p *panel, report func(string, ...any)) {
	if p.Title == "" || p.Description == "" {
		report("panel %d %q must have a title and a description", p.ID, p.Title)
	}
	if p.FieldConfig.Defaults.Unit == "" {
		report("panel %q must have a unit", p.Title)
	}
	if len(p.Targets) == 0 {
		report("panel %q has no queries", p.Title)
	}
	sources := []datasource{p.Datasource}
	for _, t := range p.Targets {
		sources = append(sources, t.Datasource)
		lintExpr(b, p.Title, t.Expr, report)
	}
	for _, s := range sources {
		if s.UID != "${datasource}" {
			report("panel %q has the datasource %q, must be ${datasource}", p.Title, s.UID)
		}
	}
}

func lintExpr(b *dashboard, title, expr string, report func(string, ...any)) {
	substituted := substitute(expr, b.values())
	if unknown := variableName.FindString(substituted); unknown != "" {
		report("panel %q uses the unknown variable %s", title, unknown)
	}
	if _, err := parser.NewParser(parser.Options{}).ParseExpr(substituted); err != nil {
		report("panel %q: cannot parse %s: %v", title, expr, err)
	}
	if found := fixedCluster.FindString(expr); found != "" {
		report("panel %q has the hard-coded %s", title, found)
	}
	if fixedRange.MatchString(expr) {
		report("panel %q must use $__rate_interval in %s", title, expr)
	}
}

func TestQueriesHaveNoVariables(t *testing.T) {
	queries, err := Queries()
	if err != nil {
		t.Fatal(err)
	}
	want := Query{
		Dashboard: "fleet.json", Panel: "variable model",
		Raw:  `group by (model) (cluster_resource_model:plimsoll_devices:sum{cluster=~"$cluster"})`,
		Expr: `group by (model) (cluster_resource_model:plimsoll_devices:sum{cluster=~".*"})`,
	}
	if !slices.Contains(queries, want) {
		got, err := json.MarshalIndent(queries, "", " ")
		t.Errorf("no %+v in %s (%v)", want, got, err)
	}
}

func TestSubstituteReplacesAllFormsOfVariables(t *testing.T) {
	values := map[string]string{"cluster": ".*"}
	got := substitute(`x{a=~"$cluster",b=~"${cluster:regex}",c=~"${cluster}",d="$other"}`, values)
	if want := `x{a=~".*",b=~".*",c=~".*",d="$other"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
