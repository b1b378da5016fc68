package gate

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// GateOf is the PlacementGate that decides a check; false when none of ours does.
func GateOf(check *kueue.AdmissionCheck) (string, bool) {
	return parameter(check, v1alpha1.ControllerName, v1alpha1.GroupVersion.Group, "PlacementGate")
}

// ConfigOf is the MultiKueueConfig of a check of MultiKueue; false for other checks.
func ConfigOf(check *kueue.AdmissionCheck) (string, bool) {
	return parameter(check, kueue.MultiKueueControllerName, kueue.SchemeGroupVersion.Group, "MultiKueueConfig")
}

func parameter(check *kueue.AdmissionCheck, controller, group, kind string) (string, bool) {
	p := check.Spec.Parameters
	if check.Spec.ControllerName != controller || p == nil || p.APIGroup != group || p.Kind != kind {
		return "", false
	}
	return p.Name, true
}
