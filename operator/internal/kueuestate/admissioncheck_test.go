package kueuestate

import (
	"testing"

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
			gate, _ := GateOf(tc.check)
			config, _ := MultiKueueConfigOf(tc.check)
			if gate != tc.gate || config != tc.config {
				t.Errorf("got gate %q and config %q, want %q and %q", gate, config, tc.gate, tc.config)
			}
		})
	}
}
