package shape

import (
	"slices"
	"testing"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// A gate whose fit query reads a topology fits it. Other gates name the topology, and their facts
// are those of a pod set without one.
func TestTopologyThatTheFitQueryReads(t *testing.T) {
	const domains = `max by (cluster) (fit{level="$required_topology"})`
	const slicesOfTPUs = `sum by (cluster) (fit{topology="$node_selector_cloud_google_com_gke_tpu_topology"})`
	rack := topology(kueue.PodSetTopologyRequest{Required: ptr.To("rack")})
	for _, tc := range []struct {
		name, fit  string
		set        kueue.PodSet
		level      string
		unmeasured []string
	}{
		{"required and read", domains, kueuePodSet("main", 4, "nvidia.com/gpu", 8, rack), "rack", nil},
		{"slices within the required level", domains, kueuePodSet("main", 4, "nvidia.com/gpu", 8, topology(kueue.PodSetTopologyRequest{Required: ptr.To("rack"), PodSetSliceRequiredTopology: ptr.To("host")})),
			"rack", []string{"required topology host"}},
		{"preferred", domains, kueuePodSet("main", 4, "nvidia.com/gpu", 8, topology(kueue.PodSetTopologyRequest{Preferred: ptr.To("rack")})), "cluster", nil},
		{"none", domains, kueuePodSet("main", 4, "nvidia.com/gpu", 8), "cluster", nil},
		{"required and not read", "fit", kueuePodSet("main", 4, "nvidia.com/gpu", 8, rack), "", []string{"required topology rack"}},
		{"slice and read", slicesOfTPUs, kueuePodSet("main", 4, "google.com/tpu", 4, selecting(tpuTopologyLabel, "4x4")), "", nil},
		{"slice and not read", domains, kueuePodSet("main", 4, "google.com/tpu", 4, selecting(tpuTopologyLabel, "4x4")), "cluster", []string{"slice of TPU topology 4x4"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := v1alpha1.PlacementGateSpec{}
			spec.Queries.Fit = tc.fit
			f := FactsOf(&kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{tc.set}}}, OptionsOf(&spec, nil))
			if got := f.Vars(f.PodSets[0])["required_topology"]; got != tc.level {
				t.Errorf("$required_topology is %q, want %q", got, tc.level)
			}
			if !slices.Equal(f.Unmeasured, tc.unmeasured) {
				t.Errorf("unmeasured %q, want %q", f.Unmeasured, tc.unmeasured)
			}
		})
	}
}
