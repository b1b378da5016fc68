package gate_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	prommodel "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
)

// untimed are recorded series of sample gates that may be older than the sample time.
var untimed = map[string]string{
	"node:plimsoll_topology:info":                      "labels of nodes",
	"device_dimension_bound:plimsoll_share_policy:max": "attributes of devices",
	"device:plimsoll_utilization:placeable":            "a mean of 10 minutes",
}

// A gate releases a reservation when the sample time is later than the start of the pods. A result
// that is older than that time does not have these pods yet. Prometheus evaluates each group at another
// time, so results and sample time must be of one group, and the sample time its later rule.
func TestResultsAreAsNewAsTheSampleTime(t *testing.T) {
	rules := recordedRules(t)
	used := map[string]bool{}
	for name, spec := range sampleGates(t) {
		queries := map[string]string{}
		for _, q := range gate.Queries(&spec, "cluster") {
			queries[q.Name] = q.Expr
		}
		timed := rules[seriesOf(t, queries[gate.QuerySampleTime])[0]]
		for _, query := range []string{gate.QueryFit, gate.QueryEmptyFit} {
			for series := range readBy(t, rules, queries[query]) {
				if untimed[series] != "" {
					used[series] = true
					continue
				}
				if r := rules[series]; r.group != timed.group || r.place >= timed.place {
					t.Errorf("%s: %s reads %s, rule %d of %s; the sample time is rule %d of %s", name, query, series, r.place, r.group, timed.place, timed.group)
				}
			}
		}
	}
	if len(used) != len(untimed) {
		t.Errorf("of %v, gates read only %v", untimed, used)
	}
}

// The quota is of another group than the sample time, so it has a time of its own: read from the metrics
// of Kueue before the rules of the quota are evaluated, and shown after them.
func TestQuotaIsAsNewAsItsTime(t *testing.T) {
	rules := recordedRules(t)
	queries := map[string]string{}
	for _, q := range gate.Queries(&v1alpha1.PlacementGateSpec{}, "cluster") {
		queries[q.Name] = q.Expr
	}
	shown := rules[seriesOf(t, queries[gate.QueryQuotaTime])[0]]
	scraped := rules[seriesOf(t, shown.exprs[0])[0]]
	if scraped.group != shown.group || scraped.group == "" {
		t.Fatalf("the time of the quota is read in group %q and shown in %q", scraped.group, shown.group)
	}
	for _, query := range []string{gate.QueryQuota, gate.QueryKueueMetrics, gate.QueryNominalQuota, gate.QueryBorrowed} {
		recorded := readBy(t, rules, queries[query])
		if len(recorded) == 0 {
			t.Errorf("%s reads no recorded series", query)
		}
		for series := range recorded {
			if r := rules[series]; r.group != shown.group || r.place <= scraped.place || r.place >= shown.place {
				t.Errorf("%s reads %s, rule %d of %s; the time of the quota is read in rule %d and shown in rule %d of %s",
					query, series, r.place, r.group, scraped.place, shown.place, shown.group)
			}
		}
	}
}

// sampleGates returns a gate with the default queries and the sample gates.
func sampleGates(t *testing.T) map[string]v1alpha1.PlacementGateSpec {
	t.Helper()
	gates := map[string]v1alpha1.PlacementGateSpec{"defaults": {}, "tpu-slices": sampleGate(t, "../cookbook/tpu-slices")}
	files, err := filepath.Glob(filepath.Join(root, "config/samples/gates/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sample gates (%v)", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		gates[name] = sampleGate(t, name)
	}
	return gates
}

// recordedRule is the place of a series' rules in the rule files.
type recordedRule struct {
	group string
	place int // of the last rule, in the group
	exprs []string
}

func recordedRules(t *testing.T) map[string]recordedRule {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "rules/recording-*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no rules (%v)", err)
	}
	rules := map[string]recordedRule{}
	for _, file := range files {
		var content struct {
			Groups []struct {
				Name  string
				Rules []struct{ Record, Expr string }
			}
		}
		if err := yaml.Unmarshal(read(t, "rules/"+filepath.Base(file)), &content); err != nil {
			t.Fatal(err)
		}
		for _, g := range content.Groups {
			for place, r := range g.Rules {
				rules[r.Record] = recordedRule{g.Name, place, append(rules[r.Record].exprs, r.Expr)}
			}
		}
	}
	return rules
}

// readBy returns the recorded series that a query reads, and those that their rules read. It does not
// look into the rules of untimed series.
func readBy(t *testing.T, rules map[string]recordedRule, expr string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for queue := seriesOf(t, expr); len(queue) > 0; queue = queue[1:] {
		series := queue[0]
		r, recorded := rules[series]
		if !recorded || found[series] {
			continue
		}
		found[series] = true
		if untimed[series] == "" {
			for _, e := range r.exprs {
				queue = append(queue, seriesOf(t, e)...)
			}
		}
	}
	return found
}

// seriesOf returns the sorted names of the series that an expression selects.
func seriesOf(t *testing.T, expr string) []string {
	t.Helper()
	if expr == "" {
		return nil
	}
	template, problems := promql.ParseTemplate(expr, slices.Concat(shape.Variables, shape.ProfileVariables))
	if problems != nil {
		t.Fatal(promql.Strings(problems))
	}
	names := map[string]bool{}
	for _, matchers := range parser.ExtractSelectors(template.Expr()) {
		for _, m := range matchers {
			if m.Name == prommodel.MetricNameLabel {
				names[m.Value] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
