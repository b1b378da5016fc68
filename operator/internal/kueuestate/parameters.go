package kueuestate

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// NamedBy is the PlacementGate that a check names to decide it; false when the check
// is not ours or names none.
func GateOf(check *kueue.AdmissionCheck) (string, bool) {
	return parameter(check, v1alpha1.ControllerName, v1alpha1.GroupVersion.Group, "PlacementGate")
}

// ConfigOf is the MultiKueueConfig of a check of MultiKueue; false for other checks.
func MultiKueueConfigOf(check *kueue.AdmissionCheck) (string, bool) {
	return parameter(check, kueue.MultiKueueControllerName, kueue.SchemeGroupVersion.Group, "MultiKueueConfig")
}

func parameter(check *kueue.AdmissionCheck, controller, group, kind string) (string, bool) {
	p := check.Spec.Parameters
	if check.Spec.ControllerName != controller || p == nil || p.APIGroup != group || p.Kind != kind {
		return "", false
	}
	return p.Name, true
}
