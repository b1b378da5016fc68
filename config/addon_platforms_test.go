package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
)

// The component platforms has a Placement for each template, which differs from the one of
// the add-on in its selector only, and rolls out like it.
func TestAddOnPlatforms(t *testing.T) {
	objects, _ := buildFolder(t, withComponents(t, "addon", "addon/platforms"))
	placements, templates := map[string]clusterv1beta1.PlacementSpec{}, map[string]bool{}
	var addOn *addonv1alpha1.ClusterManagementAddOn
	for _, object := range objects {
		switch o := object.(type) {
		case *clusterv1beta1.Placement:
			placements[o.Name] = o.Spec
		case *addonv1alpha1.AddOnTemplate:
			templates[o.Name] = true
		case *addonv1alpha1.ClusterManagementAddOn:
			addOn = o
		}
	}
	strategies := addOn.Spec.InstallStrategy.Placements
	if len(strategies) != len(templates) || len(placements) != len(templates) {
		t.Fatalf("%d strategies and %d placements, want one for each of the templates %v", len(strategies), len(placements), templates)
	}
	first := strategies[0]
	for _, strategy := range strategies[1:] {
		t.Run(strategy.Name, func(t *testing.T) {
			platform := platformLabel(t, placements[strategy.Name])
			if strategy.Name != "plimsoll-exporter-"+platform || strategy.Namespace != first.Namespace {
				t.Errorf("placement %s/%s selects platform %q", strategy.Namespace, strategy.Name, platform)
			}
			if len(strategy.Configs) != 1 || strategy.Configs[0].Resource != "addontemplates" || strategy.Configs[0].Name != strategy.Name || !templates[strategy.Name] {
				t.Errorf("configs %+v", strategy.Configs)
			}
			if diff := cmp.Diff(first.RolloutStrategy, strategy.RolloutStrategy); diff != "" {
				t.Errorf("rollout:\n%s", diff)
			}
			other := placements[strategy.Name]
			other.Predicates = nil
			if diff := cmp.Diff(placements[first.Name], other); diff != "" {
				t.Errorf("placement:\n%s", diff)
			}
		})
	}
}

func platformLabel(t *testing.T, spec clusterv1beta1.PlacementSpec) string {
	t.Helper()
	if len(spec.Predicates) != 1 {
		t.Fatalf("predicates %+v", spec.Predicates)
	}
	return spec.Predicates[0].RequiredClusterSelector.LabelSelector.MatchLabels["plimsoll.dev/platform"]
}
