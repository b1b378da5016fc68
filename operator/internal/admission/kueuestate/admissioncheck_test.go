package kueuestate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestParametersOfAdmissionChecks(t *testing.T) {
	check := func(controller, group, kind string) *kueue.AdmissionCheck {
		return &kueue.AdmissionCheck{Spec: kueue.AdmissionCheckSpec{ControllerName: controller,
			Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: group, Kind: kind, Name: "gpu"}}}
	}
	for _, tc := range []struct {
		name         string
		check        *kueue.AdmissionCheck
		gate, config string
	}{
		{"gate", check(v1alpha1.ControllerName, "plimsoll.dev", "PlacementGate"), "gpu", ""},
		{"gate with another group", check(v1alpha1.ControllerName, "example.com", "PlacementGate"), "", ""},
		{"gate with another kind", check(v1alpha1.ControllerName, "plimsoll.dev", "ScoringPolicy"), "", ""},
		{"gate with another controller", check("example.com/x", "plimsoll.dev", "PlacementGate"), "", ""},
		{"MultiKueue", check(kueue.MultiKueueControllerName, "kueue.x-k8s.io", "MultiKueueConfig"), "", "gpu"},
		{"MultiKueue with another kind", check(kueue.MultiKueueControllerName, "kueue.x-k8s.io", "MultiKueueCluster"), "", ""},
		{"no parameters", &kueue.AdmissionCheck{Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.ControllerName}}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			gate, isOurs := GateOf(tc.check)
			if want := tc.check.Spec.ControllerName == v1alpha1.ControllerName; isOurs != want {
				t.Errorf("ours: %t, want %t", isOurs, want)
			}
			config, _ := MultiKueueConfigOf(tc.check)
			if gate != tc.gate || config != tc.config {
				t.Errorf("got gate %q and config %q, want %q and %q", gate, config, tc.gate, tc.config)
			}
		})
	}
}

// Kueue adds the checks of some flavors after it has assigned the flavors.
func TestLacksChecks(t *testing.T) {
	queue := &kueue.ClusterQueue{}
	queue.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{
		{Name: "multikueue"}, {Name: "gate", OnFlavors: []kueue.ResourceFlavorReference{"h100"}}}}
	for _, tc := range []struct {
		name   string
		flavor string // empty = no quota
		checks []string
		want   bool
	}{
		{"no quota", "", nil, false},
		{"no check yet", "h100", nil, true},
		{"the check of the flavor is to come", "h100", []string{"multikueue"}, true},
		{"all checks", "h100", []string{"multikueue", "gate"}, false},
		{"a flavor without the check", "l4", []string{"multikueue"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := &kueue.Workload{}
			if tc.flavor != "" {
				wl.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{
					Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": kueue.ResourceFlavorReference(tc.flavor)}}}}
			}
			for _, name := range tc.checks {
				wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: kueue.AdmissionCheckReference(name)})
			}
			if got := LacksChecks(queue, wl); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
	if LacksChecks(&kueue.ClusterQueue{}, &kueue.Workload{Status: kueue.WorkloadStatus{Admission: &kueue.Admission{}}}) {
		t.Error("a queue without checks lacks one")
	}
}
