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

func TestDashboardsFollowTheHouseRules(t *testing.T) {
	problems, err := lint(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	if queries, err := Queries(); err != nil || len(queries) == 0 {
		t.Errorf("Queries() = %d queries, %v; want all of them", len(queries), err)
	}
}

// TestLintNoticesEachFault breaks the committed dashboard in one way at a time.
func TestLintNoticesEachFault(t *testing.T) {
	good, err := files.ReadFile("fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"uid", `"uid": "plimsoll-fleet"`, `"uid": ""`, "uid"},
		{"file", `"uid": "plimsoll-fleet"`, `"uid": "plimsoll-flet"`, "uid"},
		{"title", `"Plimsoll / Fleet"`, `"Fleet"`, "title"},
		{"schema", `"schemaVersion": 42`, `"schemaVersion": 16`, "schemaVersion"},
		{"datasource", `"uid": "${datasource}"`, `"uid": "PBFA97CFB590B2093"`, "datasource"},
		{"unit", `"unit": "watt"`, `"unit": ""`, "unit"},
		{"description", `"description": "Power draw of all devices, in watts."`, `"description": ""`, "description"},
		{"syntax", `sum(plimsoll_gate_waiting_workloads)`, `sum(plimsoll_gate_waiting_workloads`, "parse"},
		{"variable", `model=~\"$model\"`, `model=~\"$modle\"`, "$modle"},
		{"cluster", `cluster=~\"$cluster\"`, `cluster=\"prod-1\"`, "hard-coded"},
		{"interval", `[$__rate_interval]`, `[5m]`, "$__rate_interval"},
		{"id", `"id": 2,`, `"id": 1,`, "id"},
		{"overlap", `"y": 13,`, `"y": 9,`, "overlap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := strings.Replace(string(good), c.old, c.new, 1)
			if bad == string(good) {
				t.Fatalf("fleet.json has no %s to break", c.old)
			}
			problems, err := lint(fstest.MapFS{"fleet.json": {Data: []byte(bad)}})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(problems, "\n"), c.want) {
				t.Errorf("with %s: problems %q, want one about %s", c.new, problems, c.want)
			}
		})
	}
}

func lint(from fs.FS) ([]string, error) {
	boards, err := load(from)
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(boards)) {
		b := boards[name]
		say := func(format string, args ...any) {
			problems = append(problems, name+": "+fmt.Sprintf(format, args...))
		}
		lintBoard(name, b, say)
		for _, p := range b.flat() {
			lintPanel(b, &p, say)
		}
	}
	return problems, nil
}

func lintBoard(name string, b *dashboard, say func(string, ...any)) {
	if want := "plimsoll-" + strings.TrimSuffix(name, ".json"); b.UID != want {
		say("uid is %q, must be %q, so that links to it last", b.UID, want)
	}
	if !strings.HasPrefix(b.Title, "Plimsoll / ") {
		say("title %q must begin with \"Plimsoll / \"", b.Title)
	}
	if b.SchemaVersion != 42 {
		say("schemaVersion is %d, must be 42", b.SchemaVersion)
	}
	kinds := map[string]string{}
	for _, v := range b.Templating.List {
		kinds[v.Name] = v.Type
		if v.Type == "query" {
			lintVariable(b, v, say)
		}
	}
	if kinds["datasource"] != "datasource" || kinds["cluster"] != "query" {
		say("variables datasource and cluster must exist")
	}
	ids := map[int]string{}
	panels := b.flat()
	for i, p := range panels {
		if other, taken := ids[p.ID]; taken {
			say("panels %q and %q have the same id %d", other, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		for _, q := range panels[:i] {
			if p.GridPos.X < q.GridPos.X+q.GridPos.W && q.GridPos.X < p.GridPos.X+p.GridPos.W &&
				p.GridPos.Y < q.GridPos.Y+q.GridPos.H && q.GridPos.Y < p.GridPos.Y+p.GridPos.H {
				say("panels %q and %q overlap", q.Title, p.Title)
			}
		}
	}
}

func lintVariable(b *dashboard, v variable, say func(string, ...any)) {
	if v.AllValue == "" {
		say("variable %s must have an allValue, which also matches series without the label", v.Name)
	}
	if v.Datasource.UID != "${datasource}" {
		say("variable %s has the datasource %q, must be ${datasource}", v.Name, v.Datasource.UID)
	}
	expr, err := labelValues(v.Definition)
	if err != nil {
		say("variable %s: %v", v.Name, err)
		return
	}
	lintExpr(b, "variable "+v.Name, expr, say)
}

var (
	fixedCluster = regexp.MustCompile(`\bcluster=~?"[^"$]+"`)
	fixedRange   = regexp.MustCompile(`\b(?:rate|irate|increase)\([^\[\]]*\[[^$\]]`)
)

func lintPanel(b *dashboard, p *panel, say func(string, ...any)) {
	if p.Title == "" || p.Description == "" {
		say("panel %d %q must have a title and a description", p.ID, p.Title)
	}
	if p.FieldConfig.Defaults.Unit == "" {
		say("panel %q must have a unit", p.Title)
	}
	if len(p.Targets) == 0 {
		say("panel %q asks nothing", p.Title)
	}
	sources := []datasource{p.Datasource}
	for _, t := range p.Targets {
		sources = append(sources, t.Datasource)
		lintExpr(b, p.Title, t.Expr, say)
	}
	for _, s := range sources {
		if s.UID != "${datasource}" {
			say("panel %q has the datasource %q, must be ${datasource}", p.Title, s.UID)
		}
	}
}

func lintExpr(b *dashboard, title, expr string, say func(string, ...any)) {
	set := substitute(expr, b.values())
	if left := variableName.FindString(set); left != "" {
		say("panel %q uses %s, which is no variable", title, left)
	}
	if _, err := parser.NewParser(parser.Options{}).ParseExpr(set); err != nil {
		say("panel %q: %s doesn't parse: %v", title, expr, err)
	}
	if found := fixedCluster.FindString(expr); found != "" {
		say("panel %q has the hard-coded %s", title, found)
	}
	if fixedRange.MatchString(expr) {
		say("panel %q must use $__rate_interval in %s", title, expr)
	}
}

func TestQueriesCanBeRunAsTheyAre(t *testing.T) {
	queries, err := Queries()
	if err != nil {
		t.Fatal(err)
	}
	want := Query{
		Dashboard: "fleet.json", Panel: "variable model",
		Raw:  `group by (model) (cluster_model:plimsoll_devices:sum{cluster=~"$cluster"})`,
		Expr: `group by (model) (cluster_model:plimsoll_devices:sum{cluster=~".*"})`,
	}
	if !slices.Contains(queries, want) {
		got, _ := json.MarshalIndent(queries, "", " ")
		t.Errorf("no %+v among %s", want, got)
	}
}

func TestSubstituteKnowsBothFormsOfVariables(t *testing.T) {
	values := map[string]string{"cluster": ".*"}
	got := substitute(`x{a=~"$cluster",b=~"${cluster:regex}",c=~"${cluster}",d="$other"}`, values)
	if want := `x{a=~".*",b=~".*",c=~".*",d="$other"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
