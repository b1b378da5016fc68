package contract

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"plimsoll.dev/plimsoll/test/look/scripted"
)

// unshownMetrics are the exporter's own metrics that no rule and no panel reads, with the
// reason.
var unshownMetrics = map[string]string{
	"plimsoll_exporter_call_denied":               "a fact about the installation, which doctor and the log explain",
	"plimsoll_exporter_resource_slices_reachable": "a fact about the installation, which doctor and the log explain; devices have no room for shares of claims then",
	"plimsoll_exporter_unknown_claims":            "the reason why a device has no room for shares of claims; the log names a claim",
}

// A metric that no rule and no panel reads costs memory for nothing.
func TestEveryExporterMetricIsInARuleOrPanel(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "exporter", "METRICS.md"))
	if err != nil {
		t.Fatal(err)
	}
	var read strings.Builder
	for _, g := range readRules(t, append(recordingFiles, alertFiles...)...).Groups {
		for _, r := range g.Rules {
			read.WriteString(r.Expr + "\n")
		}
	}
	for _, e := range dashboardExpressions(t) {
		read.WriteString(e.expr + "\n")
	}
	n := 0
	for name := range parseMetricsMD(string(content)) {
		if !strings.HasPrefix(name, "plimsoll_") {
			continue
		}
		n++
		isRead := regexp.MustCompile(`\b` + name + `\b`).MatchString(read.String())
		if reason := unshownMetrics[name]; isRead == (reason != "") {
			t.Errorf("%s is in a rule or panel: %t, the reason not to show it is %q", name, isRead, reason)
		}
	}
	if n < 30 {
		t.Errorf("METRICS.md has %d metrics of Plimsoll", n)
	}
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
