package shape

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	zoneLabel  = "topology.kubernetes.io/zone"
	modelLabel = "nvidia.com/gpu.product"
)

// The default query tests the labels that nodes must have. Requirements of other forms are named.
func TestNodeLabels(t *testing.T) {
	terms := func(key string, operator corev1.NodeSelectorOperator, values ...string) []corev1.NodeSelectorTerm {
		return []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}}
	}
	affinity := func(of ...[]corev1.NodeSelectorTerm) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) {
			spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: slices.Concat(of...)}}}
		}
	}
	zone := func(values ...string) []NodeLabel { return []NodeLabel{{zoneLabel, values}} }
	selector := func(key, value string) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{key: value} }
	}
	flavor := func(labels map[string]string) Options {
		return Options{ModelFrom: []string{modelLabel}, Flavor: func(string) kueue.ResourceFlavorSpec { return kueue.ResourceFlavorSpec{NodeLabels: labels} }}
	}
	withModel := map[string]string{modelLabel: h100}
	for _, tc := range []struct {
		name    string
		change  func(*corev1.PodSpec)
		options Options
		want    []NodeLabel
		named   []string
	}{
		{"zone in the node selector", selector(zoneLabel, "eu-1"), flavor(nil), zone("eu-1"), nil},
		{"zone of the flavor", selector(zoneLabel, "eu-1"), flavor(map[string]string{zoneLabel: "eu-1"}), zone("eu-1"), nil},
		{"zones in the affinity", affinity(terms(zoneLabel, corev1.NodeSelectorOpIn, "eu-2", "eu-1")), flavor(nil), zone("eu-1", "eu-2"), nil},
		{"the same zone in both", func(spec *corev1.PodSpec) {
			selector(zoneLabel, "eu-1")(spec)
			affinity(terms(zoneLabel, corev1.NodeSelectorOpIn, "eu-1"))(spec)
		}, flavor(nil), zone("eu-1"), nil},
		{"zone of each of two terms", affinity(terms(zoneLabel, corev1.NodeSelectorOpIn, "eu-1"), terms(zoneLabel, corev1.NodeSelectorOpIn, "eu-1")), flavor(nil), zone("eu-1"), nil},
		{"zone of one of two terms", affinity(terms(zoneLabel, corev1.NodeSelectorOpIn, "eu-1"), terms("disk", corev1.NodeSelectorOpIn, "ssd")), flavor(nil), nil, []string{"node label disk", "node label " + zoneLabel}},
		{"another zone in each term", affinity(terms(zoneLabel, corev1.NodeSelectorOpIn, "eu-1"), terms(zoneLabel, corev1.NodeSelectorOpIn, "eu-2")), flavor(nil), nil, []string{"node label " + zoneLabel}},
		{"excluded node", affinity(terms("kubernetes.io/hostname", corev1.NodeSelectorOpNotIn, "n1")), flavor(nil), nil, []string{"node label kubernetes.io/hostname"}},
		{"node by a field", affinity([]corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}}}), flavor(nil), nil, []string{"node label metadata.name"}},
		{"the model", selector(modelLabel, h100), flavor(nil), nil, nil},
		{"one of two models", affinity(terms(modelLabel, corev1.NodeSelectorOpIn, h100, "NVIDIA-L4")), flavor(nil), []NodeLabel{{modelLabel, []string{h100, "NVIDIA-L4"}}}, nil},
		{"one of two models, and the flavor decides", affinity(terms(modelLabel, corev1.NodeSelectorOpIn, h100, "NVIDIA-L4")), flavor(withModel), nil, nil},
		{"operating system", selector(corev1.LabelOSStable, "linux"), flavor(nil), nil, nil},
		{"the gate's own node selector", selector("example.com/cluster", "vk-1"), Options{OwnLabels: map[string]string{"example.com/cluster": "vk-{cluster}"}}, nil, nil},
		{"the gate's own fit query", selector(zoneLabel, "eu-1"), Options{AllDevices: true}, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/gpu", "8")}}
			tc.change(&spec)
			wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: spec}}}}}
			wl.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main",
				Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": "h100"}}}}
			f := FactsOf(wl, tc.options)
			if got := f.PodSets[0].NodeLabels; !slices.EqualFunc(got, tc.want, NodeLabel.equal) {
				t.Errorf("labels %q, want %q", got, tc.want)
			}
			if !slices.Equal(f.Unmeasured, tc.named) {
				t.Errorf("unmeasured %q, want %q", f.Unmeasured, tc.named)
			}
		})
	}
}
