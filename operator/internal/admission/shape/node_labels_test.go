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

// A pod that requires a zone may fit on a cluster without room in that zone. The message has to say
// that the gate does not measure it.
func TestUnmeasuredNodeLabels(t *testing.T) {
	affinity := func(key string, operator corev1.NodeSelectorOperator, values ...string) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) {
			spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}}}}}
		}
	}
	selector := func(key, value string) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{key: value} }
	}
	flavor := func(labels map[string]string) Options {
		return Options{ModelFrom: []string{modelLabel}, FlavorLabels: func(string) map[string]string { return labels }}
	}
	withModel := map[string]string{modelLabel: h100}
	for _, tc := range []struct {
		name    string
		change  func(*corev1.PodSpec)
		options Options
		want    []string
	}{
		{"zone in the node selector", selector(zoneLabel, "eu-1"), flavor(nil), []string{"node label " + zoneLabel}},
		{"zone of the flavor", selector(zoneLabel, "eu-1"), flavor(map[string]string{zoneLabel: "eu-1"}), nil},
		{"zone of another flavor", selector(zoneLabel, "eu-1"), flavor(map[string]string{zoneLabel: "eu-2"}), []string{"node label " + zoneLabel}},
		{"zones in the affinity", affinity(zoneLabel, corev1.NodeSelectorOpIn, "eu-1", "eu-2"), flavor(nil), []string{"node label " + zoneLabel}},
		{"zone of the flavor in the affinity", affinity(zoneLabel, corev1.NodeSelectorOpIn, "eu-1"), flavor(map[string]string{zoneLabel: "eu-1"}), nil},
		{"excluded node", affinity("kubernetes.io/hostname", corev1.NodeSelectorOpNotIn, "n1"), flavor(nil), []string{"node label kubernetes.io/hostname"}},
		{"the model", selector(modelLabel, h100), flavor(nil), nil},
		{"one of two models", affinity(modelLabel, corev1.NodeSelectorOpIn, h100, "NVIDIA-L4"), flavor(nil), []string{"node label " + modelLabel}},
		{"one of two models, and the flavor decides", affinity(modelLabel, corev1.NodeSelectorOpIn, h100, "NVIDIA-L4"), flavor(withModel), nil},
		{"operating system", selector(corev1.LabelOSStable, "linux"), flavor(nil), nil},
		{"the gate's own node selector", selector("example.com/cluster", "vk-1"), Options{OwnLabels: map[string]string{"example.com/cluster": "vk-{cluster}"}}, nil},
		{"the gate's own fit query", selector(zoneLabel, "eu-1"), Options{AllDevices: true}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := corev1.PodSpec{Containers: []corev1.Container{container("nvidia.com/gpu", "8")}}
			tc.change(&spec)
			wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: spec}}}}}
			wl.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main",
				Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": "h100"}}}}
			if got := FactsOf(wl, tc.options).Unmeasured; !slices.Equal(got, tc.want) {
				t.Errorf("unmeasured %q, want %q", got, tc.want)
			}
		})
	}
}
