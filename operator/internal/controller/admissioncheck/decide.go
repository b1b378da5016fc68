package admissioncheck

import (
	"fmt"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

// faults of a gate that are bad configuration. That a Placement has decided
// nothing or a source is down is not: workloads wait, and queues stay active.
var faults = []string{"InvalidQuery", "PlacementNotFound", "SourceNotFound", "NotOurs"}

// decide the Active condition. It is not settled while the gate's controller
// has yet to look at the gate's newest version.
func decide(check *kueue.AdmissionCheck, pg *v1alpha1.PlacementGate) (metav1.Condition, bool) {
	name, ok := kueuestate.GateOf(check)
	switch {
	case !ok:
		return inactive("BadParameters", "spec.parameters must name a PlacementGate of plimsoll.dev"), true
	case pg == nil:
		return inactive("GateNotFound", fmt.Sprintf("PlacementGate %s does not exist", name)), true
	case pg.Status.ObservedGeneration < pg.Generation:
		return metav1.Condition{}, false
	}
	ready := apimeta.FindStatusCondition(pg.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Status == metav1.ConditionFalse && slices.Contains(faults, ready.Reason) {
		return inactive(ready.Reason, ready.Message), true
	}
	message := fmt.Sprintf("PlacementGate %s decides", name)
	if scores := apimeta.FindStatusCondition(pg.Status.Conditions, v1alpha1.ConditionScoresFound); scores != nil && scores.Status == metav1.ConditionFalse {
		message += "; " + scores.Message
	}
	return metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", Message: gate.Truncate(message)}, true
}

func inactive(reason, message string) metav1.Condition {
	return metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}
