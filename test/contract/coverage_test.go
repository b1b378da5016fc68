package contract

import (
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"plimsoll.dev/plimsoll/test/look/scripted"
)

// unshownMetrics are Plimsoll's own metrics that no rule and no panel reads, with the reason.
var unshownMetrics = map[string]string{
	"plimsoll_exporter_call_denied":               "a fact about the installation, which doctor and the log explain",
	"plimsoll_exporter_resource_slices_reachable": "a fact about the installation, which doctor and the log explain; devices have no room for shares of claims then",
	"plimsoll_exporter_unknown_claims":            "the reason why a device has no room for shares of claims; the log names a claim",
}

// A metric that no rule and no panel reads costs memory for nothing.
func TestEveryMetricIsInARuleOrPanel(t *testing.T) {
	exporter, operator := exporterMetrics(t), declaredOperatorMetrics(t)
	if len(exporter) < 30 || len(operator) < 30 {
		t.Errorf("METRICS.md has %d metrics of Plimsoll, and the operator's source %d", len(exporter), len(operator))
	}
	for name := range operatorMetrics {
		if !operator[metricBase(name)] {
			t.Errorf("the operator does not declare %s", metricBase(name))
		}
	}
	read := readMetrics(t)
	for name := range exporter.with(operator) {
		if reason := unshownMetrics[name]; read[name] == (reason != "") {
			t.Errorf("%s is in a rule or panel: %t, the reason not to show it is %q", name, read[name], reason)
		}
	}
	for name := range unshownMetrics {
		if !exporter[name] && !operator[name] {
			t.Errorf("%s does not exist", name)
		}
	}
}

// exporterMetrics returns the metrics of METRICS.md that are Plimsoll's own.
func exporterMetrics(t *testing.T) labelSet {
	t.Helper()
	own := labelSet{}
	for name := range parseMetricsMD(readFile(t, filepath.Join(root, "exporter", "METRICS.md"))) {
		own[name] = strings.HasPrefix(name, "plimsoll_")
	}
	maps.DeleteFunc(own, func(_ string, isOwn bool) bool { return !isOwn })
	return own
}

// declaredOperatorMetrics returns the metrics whose names are strings in the operator's source.
func declaredOperatorMetrics(t *testing.T) labelSet {
	t.Helper()
	declared := labelSet{}
	name := regexp.MustCompile(`"(plimsoll_[a-z_]+)"`)
	for _, file := range operatorSources(t) {
		for _, found := range name.FindAllStringSubmatch(readFile(t, file), -1) {
			declared[found[1]] = true
		}
	}
	return declared
}

// readMetrics returns the metrics that rules and panels read. Those of a histogram have its name.
func readMetrics(t *testing.T) labelSet {
	t.Helper()
	read := labelSet{}
	name := regexp.MustCompile(`\bplimsoll_[a-z_]+`)
	add := func(expr string) {
		for _, found := range name.FindAllString(expr, -1) {
			read[found], read[metricBase(found)] = true, true
		}
	}
	for _, g := range readRules(t, append(recordingFiles, alertFiles...)...).Groups {
		for _, r := range g.Rules {
			add(r.Expr)
		}
	}
	for _, e := range dashboardExpressions(t) {
		add(e.expr)
	}
	return read
}

// The scripted fleet of test/look exports only what the real components export.
func TestScriptedFleetExportsExistingMetrics(t *testing.T) {
	known := exportedMetrics(t)
	for name := range known { // buckets, count and sum exist together
		base := metricBase(name)
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if base != name && known[base+suffix] == nil {
				known[base+suffix] = known[name].with(newLabelSet("le"))
			}
		}
	}
	fleets := map[string]*scripted.Fleet{"Thanos": scripted.NewFleet(time.Now()), "one Prometheus": scripted.NewCluster(time.Now())}
	for name, fleet := range fleets {
		seen := map[string]bool{}
		fleet.Series(func(series labels.Labels) {
			have, exists := known[series.Get(model.MetricNameLabel)]
			if !exists {
				t.Errorf("%s: the metric of %s does not exist", name, series)
			}
			series.Range(func(l labels.Label) {
				if l.Name != model.MetricNameLabel && exists && !have[l.Name] {
					t.Errorf("%s: %s has the label %s, which the metric does not have", name, series, l.Name)
				}
			})
			if seen[series.String()] {
				t.Errorf("%s: %s is exported twice", name, series)
			}
			seen[series.String()] = true
		})
		if len(seen) < 1000 {
			t.Errorf("%s: only %d series", name, len(seen))
		}
	}
}
