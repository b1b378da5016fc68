package shape

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// The shipped questions count what the exporter tells free; the rest is named, and a
// gate's own query may count any device.
func TestWhatIsMeasured(t *testing.T) {
	claims := func(c corev1.Container) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{c}, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}}}
	}
	pod := func(list ...corev1.Container) corev1.PodSpec { return corev1.PodSpec{Containers: list} }
	shared := pod(container("nvidia.com/gpu", "1"))
	shared.NodeSelector = map[string]string{"nvidia.com/gpu.product": "NVIDIA-L4-SHARED"}
	slices := pod(container("nvidia.com/mig-1g.10gb.shared", "1"))
	slices.NodeSelector = map[string]string{"nvidia.com/gpu.product": h100}
	type counts struct{ Resource, Model string }
	for _, tc := range []struct {
		name       string
		spec       corev1.PodSpec
		shipped    counts
		unmeasured []string
		own        counts
	}{
		{name: "whole devices", spec: pod(container("nvidia.com/gpu", "8")), shipped: counts{Resource: "nvidia.com/gpu"}, own: counts{Resource: "nvidia.com/gpu"}},
		{name: "a device of a virtual machine", spec: pod(container("nvidia.com/pgpu", "1")), unmeasured: []string{"nvidia.com/pgpu"}},
		{name: "a claim", spec: claims(container("cpu", "1")), unmeasured: []string{"claim gpu"}},
		{name: "a claim beside devices", spec: claims(container("nvidia.com/gpu", "8")), shipped: counts{Resource: "nvidia.com/gpu"},
			unmeasured: []string{"claim gpu"}, own: counts{Resource: "nvidia.com/gpu"}},
		{name: "two kinds, one of them measured", spec: pod(container("amd.com/gpu", "8"), container("google.com/tpu", "4")), shipped: counts{Resource: "google.com/tpu"},
			unmeasured: []string{"amd.com/gpu"}, own: counts{Resource: "amd.com/gpu"}},
		{name: "shared under a name of their own", spec: pod(container("nvidia.com/gpu.shared", "1")), unmeasured: []string{"nvidia.com/gpu.shared"}, own: counts{Resource: "nvidia.com/gpu.shared"}},
		{name: "shared under the usual name", spec: shared, unmeasured: []string{"nvidia.com/gpu"}, own: counts{"nvidia.com/gpu", "NVIDIA-L4-SHARED"}},
		{name: "shared instances", spec: slices, unmeasured: []string{"nvidia.com/mig-1g.10gb.shared"}, own: counts{"nvidia.com/mig-1g.10gb.shared", h100 + "-MIG-1g.10gb"}},
		{name: "nothing", spec: pod(container("cpu", "1"))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: tc.spec}}}}}
			spec := v1alpha1.PlacementGateSpec{ModelFrom: []string{"nvidia.com/gpu.product"}}
			asked := func() (c counts, unmeasured []string) {
				f := FactsOf(wl, OptionsOf(&spec, nil))
				for _, p := range f.PodSets {
					c = counts{p.Resource, p.Model}
				}
				return c, f.Unmeasured
			}
			got, unmeasured := asked()
			if got != tc.shipped || !cmp.Equal(unmeasured, tc.unmeasured) {
				t.Errorf("the shipped questions count %v, not %q, want %v, not %q", got, unmeasured, tc.shipped, tc.unmeasured)
			}
			spec.Queries.Fit = "room"
			if got, _ := asked(); got != tc.own {
				t.Errorf("a query of its own counts %v, want %v", got, tc.own)
			}
		})
	}
}
