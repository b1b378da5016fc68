package admissioncheck

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestDecide(t *testing.T) {
	refers := &kueue.AdmissionCheckParametersReference{APIGroup: "plimsoll.dev", Kind: "PlacementGate", Name: "gpu"}
	gate := func(observed int64, status metav1.ConditionStatus, reason, message string) *v1alpha1.PlacementGate {
		g := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		g.Status.ObservedGeneration = observed
		g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message}}
		return g
	}
	with := func(g *v1alpha1.PlacementGate, condition, message string) *v1alpha1.PlacementGate {
		g.Status.Conditions = append(g.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: "NoSuchScore", Message: message})
		return g
	}
	for _, tc := range []struct {
		name       string
		parameters *kueue.AdmissionCheckParametersReference
		gate       *v1alpha1.PlacementGate
		settled    bool
		status     metav1.ConditionStatus
		reason     string
		message    string
	}{
		{"no parameters", nil, nil, true, "False", "BadParameters", "spec.parameters must name a PlacementGate of plimsoll.dev"},
		{"another kind", &kueue.AdmissionCheckParametersReference{APIGroup: "plimsoll.dev", Kind: "ScoringPolicy", Name: "gpu"}, nil,
			true, "False", "BadParameters", "spec.parameters must name a PlacementGate of plimsoll.dev"},
		{"no gate", refers, nil, true, "False", "GateNotFound", "PlacementGate gpu does not exist"},
		{"not observed yet", refers, gate(1, "False", "InvalidQuery", "old news"), false, "", "", ""},
		{"a query that does not parse", refers, gate(2, "False", "InvalidQuery", "fit: 1:5: unclosed left parenthesis"), true, "False", "InvalidQuery", "fit: 1:5: unclosed left parenthesis"},
		{"an absent Placement", refers, gate(2, "False", "PlacementNotFound", "Placement a/b does not exist"), true, "False", "PlacementNotFound", "Placement a/b does not exist"},
		{"a Placement without decisions stops no queue", refers, gate(2, "False", "NoDecisions", ""), true, "True", "Active", "PlacementGate gpu decides"},
		{"a configuration of another gate", refers, gate(2, "False", "NotOurs", "MultiKueueConfig a belongs to PlacementGate b"),
			true, "False", "NotOurs", "MultiKueueConfig a belongs to PlacementGate b"},
		{"a score that nobody publishes", refers, with(gate(2, "True", "Deciding", ""), v1alpha1.ConditionScoresFound, "no decided cluster has fleet/totla"),
			true, "True", "Active", "PlacementGate gpu decides; no decided cluster has fleet/totla"},
		{"fine", refers, gate(2, "True", "Deciding", ""), true, "True", "Active", "PlacementGate gpu decides"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			check := &kueue.AdmissionCheck{Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.ControllerName, Parameters: tc.parameters}}
			got, settled := decide(check, tc.gate)
			if settled != tc.settled || got.Status != tc.status || got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("got %t %s %s %q", settled, got.Status, got.Reason, got.Message)
			}
		})
	}
}
