package contract

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "generate the PrometheusRules of config/prometheus from rules/")

// prometheusRules lists the groups of rules/ in each PrometheusRule of
// config/prometheus. Workers get the recording rules and their alerts, the hub gets
// the operator's alerts.
var prometheusRules = map[string]struct {
	namespace string
	groups    map[string][]string // by file
}{
	"worker": {"plimsoll-exporter", map[string][]string{"recording.yaml": {"plimsoll-fleet"}, "alerts.yaml": {"plimsoll-fleet-alerts"}}},
	"hub":    {"plimsoll-system", map[string][]string{"alerts.yaml": {"plimsoll-hub-alerts"}}},
}

func TestPrometheusRulesAreGenerated(t *testing.T) {
	used := 0
	for folder, rules := range prometheusRules {
		var groups []any
		for _, file := range []string{"recording.yaml", "alerts.yaml"} {
			for _, name := range rules.groups[file] {
				groups = append(groups, rawGroup(t, file, name))
				used++
			}
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
	if all := len(readRules(t, "recording.yaml").Groups) + len(readRules(t, "alerts.yaml").Groups); used != all {
		t.Errorf("config/prometheus contains %d groups, rules/ contains %d", used, all)
	}
}

// rawGroup returns a group of rules with all its fields.
func rawGroup(t *testing.T, file, name string) any {
	t.Helper()
	var content struct {
		Groups []map[string]any `json:"groups"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, filepath.Join(root, "rules", file))), &content); err != nil {
		t.Fatal(err)
	}
	for _, g := range content.Groups {
		if g["name"] == name {
			return g
		}
	}
	t.Fatalf("%s has no group %s", file, name)
	return nil
}
