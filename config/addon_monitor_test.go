package config_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/config"
)

// With the component, each template installs the PodMonitor of prometheus/worker, and the
// permission to write it.
func TestAddOnWithPodMonitor(t *testing.T) {
	text, err := os.ReadFile("prometheus/worker/exporter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := yaml.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	objects, _ := buildFolder(t, withComponents(t, "addon", "addon/pod-monitor"))
	templates := 0
	for _, object := range objects {
		template, ok := object.(*addonv1alpha1.AddOnTemplate)
		if !ok {
			continue
		}
		templates++
		kinds := map[string]map[string]any{}
		for _, m := range template.Spec.AgentSpec.Workload.Manifests {
			var manifest map[string]any
			if err := yaml.Unmarshal(m.Raw, &manifest); err != nil {
				t.Fatal(err)
			}
			kinds[manifest["kind"].(string)] = manifest
		}
		if d := cmp.Diff(want, kinds["PodMonitor"]); d != "" {
			t.Errorf("%s: PodMonitor (-prometheus/worker +addon):\n%s", template.Name, d)
		}
		role, ok := kinds["ClusterRole"]
		if !ok || role["metadata"].(map[string]any)["labels"].(map[string]any)["open-cluster-management.io/aggregate-to-work"] != "true" {
			t.Errorf("%s: ClusterRole %v", template.Name, role)
		}
	}
	if templates != len(config.AddOnTemplates) {
		t.Errorf("%d templates", templates)
	}
}
