package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The tests notice each change of node:busy:max and Busy, and no change of Unseen. Of Slow they notice
// that it waits for longer than three minutes.
var fixture = map[string]string{
	"rules/alerts.yaml": `
groups:
- name: g
  rules:
  - record: node:busy:max
    expr: max by (node) (busy)
  - alert: Busy
    expr: node:busy:max > 5
    for: 3m
    keep_firing_for: 2m
    labels: {severity: warning}
    annotations:
      summary: '{{ $labels.node }} has {{ $value }}'
  - alert: Slow
    expr: vector(1)
    for: 3m
  - alert: Unseen
    expr: up == 0
`,
	"rules/tests/alerts_test.yaml": `
rule_files: [../alerts.yaml]
evaluation_interval: 1m
tests:
- name: busy
  interval: 1m
  input_series:
  - {series: 'busy{node="a",pod="x"}', values: '5 5 6x9 5x9'}
  - {series: 'busy{node="a",pod="y"}', values: '1x30'}
  - {series: 'busy{node="b",pod="x"}', values: '5x30'}
  promql_expr_test:
  - expr: 'node:busy:max'
    eval_time: 1m
    exp_samples:
    - {labels: 'node:busy:max{node="a"}', value: 5}
    - {labels: 'node:busy:max{node="b"}', value: 5}
  - {expr: 'ALERTS{alertname="Busy",alertstate="firing"}', eval_time: 4m, exp_samples: []}
  alert_rule_test:
  - alertname: Busy
    eval_time: 5m
    exp_alerts: &busy
    - exp_labels: {severity: warning, node: a}
      exp_annotations: {summary: a has 6}
  - {alertname: Busy, eval_time: 13m, exp_alerts: *busy}
  - {alertname: Busy, eval_time: 14m, exp_alerts: []}
  - {alertname: Slow, eval_time: 1m, exp_alerts: []}
  - {alertname: Slow, eval_time: 3m, exp_alerts: [{}]}
`,
}

func TestCheck(t *testing.T) {
	writeFixture(t, fixture)
	all := regexp.MustCompile("")
	found, err := options{file: all, rule: all, tests: all}.check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"alerts.yaml: Slow: 1 -> 0",
		"alerts.yaml: Slow: 1 -> 2",
		"alerts.yaml: Slow: for: 3m -> 2m",
		"alerts.yaml: Slow: keep_firing_for: none -> 5m",
		"alerts.yaml: Unseen: 0 -> 1",
		"alerts.yaml: Unseen: == -> != in up == 0",
		"alerts.yaml: Unseen: for: none -> 5m",
		"alerts.yaml: Unseen: keep_firing_for: none -> 5m",
		"alerts.yaml: Unseen: offset 1h added to up",
	}
	slices.Sort(found.survivors)
	if diff := cmp.Diff(want, found.survivors); diff != "" {
		t.Errorf("survivors (-want +got):\n%s", diff)
	}
	if found.total <= len(want)+10 {
		t.Errorf("%d mutants, want more than those that survive", found.total)
	}
}

// A test that fails with unchanged rules would notice every mutant.
func TestCheckFailsIfATestFails(t *testing.T) {
	failing := map[string]string{"rules/alerts.yaml": fixture["rules/alerts.yaml"], "rules/tests/alerts_test.yaml": `
rule_files: [../alerts.yaml]
evaluation_interval: 1m
tests:
- interval: 1m
  alert_rule_test:
  - {alertname: Slow, eval_time: 2m, exp_alerts: [{}]}
`}
	writeFixture(t, failing)
	all := regexp.MustCompile("")
	if _, err := (options{file: all, rule: all, tests: all}).check(t.Context()); err == nil {
		t.Error("no error")
	}
}

func TestReportSeparatesEquivalents(t *testing.T) {
	var found report
	known := rule{file: "f.yaml", content: ruleContent{Record: "node:plimsoll_unusable:info"}}
	found.add(known, mutant{change: "max -> sum in max by (cluster, node) (kube_node_status_condition)"})
	found.add(known, mutant{change: "max -> min in max by (cluster, node) (kube_node_status_condition)"})
	if len(found.equivalent) != 1 || len(found.survivors) != 1 {
		t.Errorf("%d equivalent and %d survivors, want one of each", len(found.equivalent), len(found.survivors))
	}
	unused := found.unused()
	if len(unused) != len(equivalents)-1 || slices.ContainsFunc(unused, func(text string) bool { return strings.HasPrefix(text, known.name()) }) {
		t.Errorf("one of %d entries is used, and these are unused: %q", len(equivalents), unused)
	}
}

// Only a run of all mutants and tests shows that an entry of equivalents.go is unused.
func TestIsFull(t *testing.T) {
	all, some := regexp.MustCompile(""), regexp.MustCompile("x")
	for _, tc := range []struct {
		name string
		o    options
		want bool
	}{
		{"all", options{file: all, rule: all, tests: all}, true},
		{"list", options{file: all, rule: all, tests: all, list: true}, false},
		{"files", options{file: some, rule: all, tests: all}, false},
		{"rules", options{file: all, rule: some, tests: all}, false},
		{"tests", options{file: all, rule: all, tests: some}, false},
	} {
		if got := tc.o.isFull(); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

// writeFixture writes files to a temporary folder and changes to it.
func writeFixture(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
