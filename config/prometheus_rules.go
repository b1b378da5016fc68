package config

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// RuleSet is the namespace of a PrometheusRule, and its files of rules/.
type RuleSet struct {
	Namespace string
	Files     []string
}

// PrometheusRules are the rule sets by folder of config/prometheus. Workers get the recording rules and
// their alerts, the hub gets the operator's alerts and the rules over all clusters. Thanos Ruler, or
// one Prometheus for hub and workers, gets each rule once.
var PrometheusRules = map[string]RuleSet{
	"worker": {"plimsoll-exporter", []string{
		"recording-nodes.yaml", "recording-devices.yaml", "recording-shares.yaml", "recording-topology.yaml", "recording-owners.yaml", "recording-queues.yaml",
		"alerts-capacity.yaml", "alerts-devices.yaml", "alerts-pipeline.yaml", "alerts-prometheus.yaml",
	}},
	"hub": {"plimsoll-system", []string{"recording-queues.yaml", "recording-fleet.yaml", "alerts-prometheus.yaml", "alerts-hub.yaml"}},
	"central": {"plimsoll-system", []string{
		"recording-nodes.yaml", "recording-devices.yaml", "recording-shares.yaml", "recording-topology.yaml", "recording-owners.yaml", "recording-queues.yaml", "recording-fleet.yaml",
		"alerts-capacity.yaml", "alerts-devices.yaml", "alerts-pipeline.yaml", "alerts-prometheus.yaml", "alerts-hub.yaml",
	}},
}

// prometheusFiles returns the PrometheusRules by their path below config.
func prometheusFiles(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for folder, set := range PrometheusRules {
		var groups []any
		for _, name := range set.Files {
			text, err := os.ReadFile(filepath.Join(root, "rules", name))
			if err != nil {
				return nil, err
			}
			var content struct {
				Groups []any `json:"groups"`
			}
			if err := yaml.UnmarshalStrict(text, &content); err != nil {
				return nil, fmt.Errorf("rules/%s: %w", name, err)
			}
			groups = append(groups, content.Groups...)
		}
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": "monitoring.coreos.com/v1",
			"kind":       "PrometheusRule",
			"metadata":   map[string]any{"name": "plimsoll", "namespace": set.Namespace},
			"spec":       map[string]any{"groups": groups},
		})
		if err != nil {
			return nil, err
		}
		files["prometheus/"+folder+"/rules.yaml"] = text
	}
	return files, nil
}
