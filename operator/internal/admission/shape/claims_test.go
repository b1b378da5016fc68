package shape

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// Kueue counts the devices of a claim under a resource of its own. A gate with its own fit query
// fits them as devices, other gates name the claim.
func TestDevicesOfClaims(t *testing.T) {
	one, two := []string{"gpu"}, []string{"gpu", "nic"}
	for _, tc := range []struct {
		name    string
		claims  []string
		fit     string
		usage   corev1.ResourceList
		devices int64
		named   []string
	}{
		{"four pods with two devices", one, "fit", corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), "cpu": resource.MustParse("16")}, 2, nil},
		{"the shipped query", one, "", corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}, 0, []string{"claim gpu"}},
		{"a resource that is no device", one, "fit", corev1.ResourceList{"cpu": resource.MustParse("16")}, 0, []string{"claim gpu"}},
		{"not the same for each pod", one, "fit", corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("7")}, 0, []string{"claim gpu"}},
		{"several claims", two, "fit", corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}, 0, []string{"claim gpu", "claim nic"}},
		{"not counted by Kueue", one, "fit", nil, 0, []string{"claim gpu"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set := kueuePodSet("main", 4, "cpu", 4)
			for _, name := range tc.claims {
				set.Template.Spec.ResourceClaims = append(set.Template.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: ptr.To("t")})
			}
			wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{set}}}
			wl.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: ptr.To[int32](4), ResourceUsage: tc.usage,
				Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": "h100"}}}}
			spec := v1alpha1.PlacementGateSpec{}
			spec.Queries.Fit = tc.fit
			f := FactsOf(wl, OptionsOf(&spec, nil))
			var got PodSet
			if len(f.PodSets) > 0 {
				got = f.PodSets[0]
			}
			if got.DevicesPerPod != tc.devices || (tc.devices > 0) != (got.Resource == "nvidia.com/gpu" && got.Flavor == "h100") {
				t.Errorf("%d devices of %q in flavor %q, want %d", got.DevicesPerPod, got.Resource, got.Flavor, tc.devices)
			}
			if !slices.Equal(f.Unmeasured, tc.named) {
				t.Errorf("unmeasured %q, want %q", f.Unmeasured, tc.named)
			}
		})
	}
}

// The pod of a claim has no container that requests devices. It holds whole devices.
func TestShareOfClaimedDevices(t *testing.T) {
	set := kueuePodSet("main", 1, "cpu", 1)
	set.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("t")}}
	wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{set}}}
	wl.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: ptr.To[int32](1),
		ResourceUsage: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}
	spec := v1alpha1.PlacementGateSpec{}
	spec.Queries.Fit = "sum by (cluster) (free / $share_memory_ratio)"
	f := FactsOf(wl, OptionsOf(&spec, nil))
	if len(f.PodSets) != 1 || f.PodSets[0].Share == nil || *f.PodSets[0].Share != wholeDevice {
		t.Fatalf("pod sets %+v, want one with whole devices", f.PodSets)
	}
	if slots, ok := f.PodSets[0].Share.SlotsTaken(Share{MemoryPercent: 50}); slots != 1 || !ok {
		t.Errorf("another share takes %d slots (known %t), want 1", slots, ok)
	}
}
