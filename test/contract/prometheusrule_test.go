package contract

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the PrometheusRules of config/prometheus anew from rules/")

// prometheusRules are the rules as objects of prometheus-operator: recording rules
// and the alerts over them on each worker, alerts over the operator on the hub.
var prometheusRules = map[string]struct {
	namespace string
	groups    map[string][]string // by file
}{
	"worker": {"plimsoll-exporter", map[string][]string{"recording.yaml": {"plimsoll-fleet"}, "alerts.yaml": {"plimsoll-fleet-alerts"}}},
	"hub":    {"plimsoll-system", map[string][]string{"alerts.yaml": {"plimsoll-hub-alerts"}}},
}

func TestPrometheusRulesAreTheRules(t *testing.T) {
	placed := 0
	for folder, rules := range prometheusRules {
		var groups []any
		for _, file := range []string{"recording.yaml", "alerts.yaml"} {
			for _, name := range rules.groups[file] {
				groups = append(groups, rawGroup(t, file, name))
				placed++
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
		if diff := cmp.Diff(want, read(t, path)); diff != "" {
			t.Errorf("%s: run go test ./test/contract -update (-want +got):\n%s", path, diff)
		}
	}
	if all := len(readRules(t, "recording.yaml").Groups) + len(readRules(t, "alerts.yaml").Groups); placed != all {
		t.Errorf("%d groups are in config/prometheus, rules/ has %d", placed, all)
	}
}

// rawGroup is a group with every field that it has.
func rawGroup(t *testing.T, file, name string) any {
	t.Helper()
	var content struct {
		Groups []map[string]any `json:"groups"`
	}
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(root, "rules", file))), &content); err != nil {
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
