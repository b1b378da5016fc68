package shape

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

type countedDevice struct{ Resource, Model string }

// The shipped queries count devices that the exporter measures, and name other requests. A
// gate with its own fit query counts all devices.
func TestCountedDevices(t *testing.T) {
	pod := func(list ...corev1.Container) corev1.PodSpec { return corev1.PodSpec{Containers: list} }
	withClaim := func(c corev1.Container) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{c}, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}}}
	}
	withModel := func(spec corev1.PodSpec, model string) corev1.PodSpec {
		spec.NodeSelector = map[string]string{"nvidia.com/gpu.product": model}
		return spec
	}
	gpu := countedDevice{Resource: "nvidia.com/gpu"}
	for _, tc := range []struct {
		name       string
		spec       corev1.PodSpec
		shipped    countedDevice
		unmeasured []string
		ownQuery   countedDevice
	}{
		{name: "whole devices", spec: pod(container("nvidia.com/gpu", "8")), shipped: gpu, ownQuery: gpu},
		{name: "device for virtual machines", spec: pod(container("nvidia.com/pgpu", "1")), unmeasured: []string{"nvidia.com/pgpu"}},
		{name: "claim", spec: withClaim(container("cpu", "1")), unmeasured: []string{"claim gpu"}},
		{name: "claim and devices", spec: withClaim(container("nvidia.com/gpu", "8")), shipped: gpu, unmeasured: []string{"claim gpu"}, ownQuery: gpu},
		{name: "two kinds, one measured", spec: pod(container("habana.ai/gaudi", "8"), container("google.com/tpu", "4")),
			shipped: countedDevice{Resource: "google.com/tpu"}, unmeasured: []string{"habana.ai/gaudi"}, ownQuery: countedDevice{Resource: "habana.ai/gaudi"}},
		{name: "AMD GPUs", spec: withModel(pod(container("amd.com/gpu", "8")), "AMD_Instinct_MI300X_OAM"),
			shipped: countedDevice{"amd.com/gpu", "AMD_Instinct_MI300X_OAM"}, ownQuery: countedDevice{"amd.com/gpu", "AMD_Instinct_MI300X_OAM"}},
		{name: "partitions of AMD GPUs", spec: withModel(pod(container("amd.com/cpx_nps4", "1")), "AMD_Instinct_MI300X_OAM"),
			shipped: countedDevice{"amd.com/cpx_nps4", "AMD_Instinct_MI300X_OAM-CPX-NPS4"}, ownQuery: countedDevice{"amd.com/cpx_nps4", "AMD_Instinct_MI300X_OAM-CPX-NPS4"}},
		{name: "AMD's other resources", spec: pod(container("amd.com/nic", "1")), unmeasured: []string{"amd.com/nic"}},
		{name: "time-shared, renamed resource", spec: pod(container("nvidia.com/gpu.shared", "1")),
			unmeasured: []string{"nvidia.com/gpu.shared"}, ownQuery: countedDevice{Resource: "nvidia.com/gpu.shared"}},
		{name: "time-shared, default resource", spec: withModel(pod(container("nvidia.com/gpu", "1")), "NVIDIA-L4-SHARED"),
			unmeasured: []string{"nvidia.com/gpu"}, ownQuery: countedDevice{"nvidia.com/gpu", "NVIDIA-L4-SHARED"}},
		{name: "time-shared MIG instances", spec: withModel(pod(container("nvidia.com/mig-1g.10gb.shared", "1")), h100),
			unmeasured: []string{"nvidia.com/mig-1g.10gb.shared"}, ownQuery: countedDevice{"nvidia.com/mig-1g.10gb.shared", h100 + "-MIG-1g.10gb"}},
		{name: "no devices", spec: pod(container("cpu", "1"))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: tc.spec}}}}}
			gate := v1alpha1.PlacementGateSpec{ModelFrom: []string{"nvidia.com/gpu.product"}}
			facts := FactsOf(wl, OptionsOf(&gate, nil))
			if got := counted(facts); got != tc.shipped {
				t.Errorf("shipped queries: got %v, want %v", got, tc.shipped)
			}
			if diff := cmp.Diff(tc.unmeasured, facts.Unmeasured); diff != "" {
				t.Errorf("unmeasured (-want +got):\n%s", diff)
			}
			gate.Queries.Fit = "room"
			if got := counted(FactsOf(wl, OptionsOf(&gate, nil))); got != tc.ownQuery {
				t.Errorf("own query: got %v, want %v", got, tc.ownQuery)
			}
		})
	}
}

// counted returns the device of the last pod set.
func counted(f Facts) (c countedDevice) {
	for _, p := range f.PodSets {
		c = countedDevice{p.Resource, p.Model}
	}
	return c
}
