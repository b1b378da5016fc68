package contract

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "generate the PrometheusRules of config/prometheus from rules/")

// prometheusRules lists the files of rules/ in each PrometheusRule of
// config/prometheus. Workers get the recording rules and their alerts, the hub gets
// the operator's alerts and the rules over all clusters. Thanos Ruler, or one Prometheus for
// hub and workers, gets each rule once.
var prometheusRules = map[string]struct {
	namespace string
	files     []string
}{
	"worker":  {"plimsoll-exporter", []string{"recording-nodes.yaml", "recording-devices.yaml", "recording-shares.yaml", "recording-topology.yaml", "recording-owners.yaml", "recording-queues.yaml", "alerts-capacity.yaml", "alerts-devices.yaml", "alerts-pipeline.yaml", "alerts-prometheus.yaml"}},
	"hub":     {"plimsoll-system", []string{"recording-queues.yaml", "recording-fleet.yaml", "alerts-prometheus.yaml", "alerts-hub.yaml"}},
	"central": {"plimsoll-system", append(slices.Clone(recordingFiles), alertFiles...)},
}

func TestPrometheusRulesAreGenerated(t *testing.T) {
	used := map[string]bool{}
	for folder, rules := range prometheusRules {
		var groups []any
		for _, file := range rules.files {
			groups = append(groups, rawGroups(t, file)...)
			used[file] = true
		}
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": "monitoring.coreos.com/v1",
			"kind":       "PrometheusRule",
			"metadata":   map[string]any{"name": "plimsoll", "namespace": rules.namespace},
			"spec":       map[string]any{"groups": groups},
		})
		if err != nil {
			t.Fatal(err)
		}
		want := "# Generated from rules/: go test ./test/contract -update\n" + string(text)
		path := filepath.Join(root, "config", "prometheus", folder, "rules.yaml")
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, readFile(t, path)); diff != "" {
			t.Errorf("%s is not up to date; run go test ./test/contract -update (-want +got):\n%s", path, diff)
		}
	}
	for _, file := range append(slices.Clone(recordingFiles), alertFiles...) {
		if !used[file] {
			t.Errorf("config/prometheus does not contain the rules of %s", file)
		}
	}
}

// rules/README.md names the files of a Prometheus without prometheus-operator. They are those of the
// PrometheusRules: with alerts-hub.yaml on a worker, PlimsollOperatorAbsent would always fire.
func TestReadmeListsTheFilesOfEachPrometheus(t *testing.T) {
	readme := readFile(t, filepath.Join(root, "rules", "README.md"))
	ruleFiles := regexp.MustCompile("`((?:recording|alerts)-[a-z]+\\.yaml)`")
	for _, folder := range []string{"worker", "hub"} {
		_, row, found := strings.Cut(readme, "\n| configuration file, "+folder+" |")
		if !found {
			t.Errorf("rules/README.md has no row for the configuration file of a %s", folder)
			continue
		}
		row, _, _ = strings.Cut(row, "\n")
		var listed []string
		for _, match := range ruleFiles.FindAllStringSubmatch(row, -1) {
			listed = append(listed, match[1])
		}
		if diff := cmp.Diff(prometheusRules[folder].files, listed); diff != "" {
			t.Errorf("files of a %s (-PrometheusRule +README):\n%s", folder, diff)
		}
	}
}

// Of a rule that is evaluated twice, the second result is rejected as a duplicate sample.
func TestNoPrometheusRuleHasAGroupTwice(t *testing.T) {
	for folder, rules := range prometheusRules {
		seen := map[string]bool{}
		for _, file := range rules.files {
			for _, g := range readRules(t, file).Groups {
				if seen[g.Name] {
					t.Errorf("config/prometheus/%s/rules.yaml has the group %s twice", folder, g.Name)
				}
				seen[g.Name] = true
			}
		}
	}
}

// rawGroups returns the groups of a file with all their fields.
func rawGroups(t *testing.T, file string) []any {
	t.Helper()
	var content struct {
		Groups []any `json:"groups"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, filepath.Join(root, "rules", file))), &content); err != nil {
		t.Fatal(err)
	}
	return content.Groups
}
