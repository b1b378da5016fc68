package admissioncheck

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
)

// inactiveReasons are the reasons of a gate's condition Ready that mean an invalid
// configuration. Other reasons leave the check active, and workloads wait: a Placement
// without decisions or a source that is down may recover.
var inactiveReasons = []string{
	v1alpha1.ReasonInvalidQuery, v1alpha1.ReasonPlacementNotFound, v1alpha1.ReasonSourceNotFound, v1alpha1.ReasonNotOurs,
}

// decideTrialActive decides the condition Active of a check for trials. It is always True: without
// a usable TrialPolicy, jobs pass without a trial.
func decideTrialActive(check *kueue.AdmissionCheck) condition.Decision {
	if name := kueuestate.TrialPolicyOf(check); name != "" {
		return condition.True(v1alpha1.ReasonActive, fmt.Sprintf("TrialPolicy %s decides", name))
	}
	return condition.True(v1alpha1.ReasonActive, "every job passes without a trial: spec.parameters names no TrialPolicy of plimsoll.dev")
}

// decideActive decides the condition Active of a check of a PlacementGate. pg is nil if the PlacementGate does
// not exist. It returns false if the condition must not change yet, because the gate's
// status describes an older generation.
func decideActive(check *kueue.AdmissionCheck, pg *v1alpha1.PlacementGate) (condition.Decision, bool) {
	name, _ := kueuestate.GateOf(check)
	switch {
	case name == "":
		return condition.False(v1alpha1.ReasonBadParameters, "spec.parameters must name a PlacementGate of plimsoll.dev"), true
	case pg == nil:
		return condition.False(v1alpha1.ReasonGateNotFound, fmt.Sprintf("PlacementGate %s does not exist", name)), true
	case pg.Status.ObservedGeneration < pg.Generation:
		return condition.Decision{}, false
	case pg.Spec.Mode == v1alpha1.ModeShadow:
		return condition.True(v1alpha1.ReasonActive, fmt.Sprintf("PlacementGate %s is in mode Shadow: every workload passes", name)), true
	}
	ready := meta.FindStatusCondition(pg.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse && slices.Contains(inactiveReasons, ready.Reason) {
		return condition.False(ready.Reason, ready.Message), true
	}
	message := fmt.Sprintf("PlacementGate %s decides", name)
	if scores := meta.FindStatusCondition(pg.Status.Conditions, v1alpha1.ConditionScoresFound); scores != nil && scores.Status == metav1.ConditionFalse {
		message += "; " + scores.Message
	}
	return condition.True(v1alpha1.ReasonActive, gate.Truncate(message)), true
}
