package kueuestate

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestWhoDecidesACheck(t *testing.T) {
	check := func(controller, group, kind string) *kueue.AdmissionCheck {
		return &kueue.AdmissionCheck{Spec: kueue.AdmissionCheckSpec{ControllerName: controller,
			Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: group, Kind: kind, Name: "gpu"}}}
	}
	for _, tc := range []struct {
		name         string
		check        *kueue.AdmissionCheck
		gate, config string
	}{
		{"a gate's", check(v1alpha1.ControllerName, "plimsoll.dev", "PlacementGate"), "gpu", ""},
		{"of another group", check(v1alpha1.ControllerName, "example.com", "PlacementGate"), "", ""},
		{"of another kind", check(v1alpha1.ControllerName, "plimsoll.dev", "ScoringPolicy"), "", ""},
		{"of another controller", check("example.com/x", "plimsoll.dev", "PlacementGate"), "", ""},
		{"MultiKueue's", check(kueue.MultiKueueControllerName, "kueue.x-k8s.io", "MultiKueueConfig"), "", "gpu"},
		{"MultiKueue's of another kind", check(kueue.MultiKueueControllerName, "kueue.x-k8s.io", "MultiKueueCluster"), "", ""},
		{"without parameters", &kueue.AdmissionCheck{Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.ControllerName}}, "", ""},
	} {
		gate, _ := GateOf(tc.check)
		config, _ := MultiKueueConfigOf(tc.check)
		if gate != tc.gate || config != tc.config {
			t.Errorf("%s: gate %q, configuration %q", tc.name, gate, config)
		}
	}
}
