package config_test

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// The exporter holds the driver open, so it must leave a node before the driver is unloaded or the
// MIG mode changes. The DaemonSet controller deletes a pod whose required affinity no longer matches
// the node. GPU Operator says so by labels of the node: k8s-driver-manager sets the value
// paused-for-driver-upgrade, and mig-manager sets paused-for-mig-change.
func TestExporterLeavesNodeForDriverUpgrade(t *testing.T) {
	const client, dcgm, dra = "nvidia.com/gpu.deploy.client", "nvidia.com/gpu.deploy.dcgm-exporter", "nvidia.com/gpu.deploy.dcgm-exporter-dra"
	const driver, mig = "paused-for-driver-upgrade", "paused-for-mig-change"
	nodes := map[string]labels.Set{
		"GPU Operator":           {"nvidia.com/gpu.present": "true"},
		"node feature discovery": {"feature.node.kubernetes.io/pci-10de.present": "true"},
		"GKE":                    {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
	}
	cases := map[string]struct {
		labels labels.Set
		runs   bool
	}{
		"no label":                          {nil, true},
		"labels of a release before 26.7":   {labels.Set{dcgm: "true"}, true},
		"labels of release 26.7":            {labels.Set{client: "true", dcgm: "true"}, true},
		"no dcgm-exporter wanted":           {labels.Set{dcgm: "false"}, true},
		"labels of a GPUCluster":            {labels.Set{dra: "true"}, true},
		"upgrade of the driver":             {labels.Set{client: driver, dcgm: driver}, false},
		"the same before 26.7":              {labels.Set{dcgm: driver}, false},
		"the same without dcgm-exporter":    {labels.Set{client: driver, dcgm: "false"}, false},
		"the same in a GPUCluster":          {labels.Set{dra: driver}, false},
		"change of MIG":                     {labels.Set{client: mig, dcgm: mig}, false},
		"the same before 26.7, as MIG":      {labels.Set{dcgm: mig}, false},
		"the same without it, as MIG":       {labels.Set{client: mig, dcgm: "false"}, false},
		"an administrator stops its driver": {labels.Set{client: "false", dcgm: "true"}, false},
	}
	for _, component := range []string{"", "gke", "cdi", "kubelet-root", "pod-owners"} {
		folder := "exporter"
		if component != "" {
			folder = withComponents(t, "exporter", "exporter/"+component)
		}
		required := podTemplate(t, folder).Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		for platform, node := range nodes {
			for name, tc := range cases {
				t.Run(component+"/"+platform+"/"+name, func(t *testing.T) {
					all := maps.Clone(node)
					maps.Copy(all, tc.labels)
					if got := selects(t, required, all); got != tc.runs {
						t.Errorf("the exporter runs: %t", got)
					}
				})
			}
		}
		if selects(t, required, labels.Set{}) {
			t.Errorf("component %q: the exporter runs on a node without devices", component)
		}
	}
}

// selects reports whether a node selector matches a node with labels. Terms are alternatives.
func selects(t *testing.T, selector *corev1.NodeSelector, node labels.Set) bool {
	t.Helper()
	operators := map[corev1.NodeSelectorOperator]selection.Operator{
		corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn, corev1.NodeSelectorOpExists: selection.Exists}
	for _, term := range selector.NodeSelectorTerms {
		all := labels.NewSelector()
		for _, e := range term.MatchExpressions {
			r, err := labels.NewRequirement(e.Key, operators[e.Operator], e.Values)
			if err != nil {
				t.Fatal(err)
			}
			all = all.Add(*r)
		}
		if all.Matches(node) {
			return true
		}
	}
	return false
}
