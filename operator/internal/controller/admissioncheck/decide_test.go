package admissioncheck

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestDecideActive(t *testing.T) {
	withMissingScore := func(g *v1alpha1.PlacementGate, message string) *v1alpha1.PlacementGate {
		g.Status.Conditions = append(g.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionScoresFound, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoSuchScore, Message: message,
		})
		return g
	}
	for _, tc := range []struct {
		name       string
		parameters *kueue.AdmissionCheckParametersReference
		gate       *v1alpha1.PlacementGate
		decided    bool
		status     metav1.ConditionStatus
		reason     string
		message    string
	}{
		{"no parameters", nil, nil, true, "False", "BadParameters", "spec.parameters must name a PlacementGate of plimsoll.dev"},
		{"another kind", &kueue.AdmissionCheckParametersReference{APIGroup: "plimsoll.dev", Kind: "ScoringPolicy", Name: "gpu"}, nil,
			true, "False", "BadParameters", "spec.parameters must name a PlacementGate of plimsoll.dev"},
		{"missing gate", gateParameters("gpu"), nil, true, "False", "GateNotFound", "PlacementGate gpu does not exist"},
		{"status of an older generation", gateParameters("gpu"), newGate(1, "False", "InvalidQuery", "an earlier problem"), false, "", "", ""},
		{"query that does not parse", gateParameters("gpu"), newGate(2, "False", "InvalidQuery", "fit: 1:5: unclosed left parenthesis"),
			true, "False", "InvalidQuery", "fit: 1:5: unclosed left parenthesis"},
		{"missing Placement", gateParameters("gpu"), newGate(2, "False", "PlacementNotFound", "Placement a/b does not exist"),
			true, "False", "PlacementNotFound", "Placement a/b does not exist"},
		{"missing source", gateParameters("gpu"), newGate(2, "False", "SourceNotFound", "MetricsSource thanos does not exist"),
			true, "False", "SourceNotFound", "MetricsSource thanos does not exist"},
		{"a Placement without decisions stops no queue", gateParameters("gpu"), newGate(2, "False", "NoDecisions", ""),
			true, "True", "Active", "PlacementGate gpu decides"},
		{"configuration of another gate", gateParameters("gpu"), newGate(2, "False", "NotOurs", "MultiKueueConfig a belongs to PlacementGate b"),
			true, "False", "NotOurs", "MultiKueueConfig a belongs to PlacementGate b"},
		{"score that no policy publishes", gateParameters("gpu"), withMissingScore(newGate(2, "True", "Deciding", ""), "no decided cluster has fleet/totla"),
			true, "True", "Active", "PlacementGate gpu decides; no decided cluster has fleet/totla"},
		{"no fault", gateParameters("gpu"), newGate(2, "True", "Deciding", ""), true, "True", "Active", "PlacementGate gpu decides"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, decided := decideActive(newCheck("gpu", tc.parameters), tc.gate)
			if decided != tc.decided || got.Status != tc.status || got.Reason != tc.reason || got.Message != tc.message {
				t.Errorf("got %t %s %s %q", decided, got.Status, got.Reason, got.Message)
			}
		})
	}
}

// Kueue stops a queue with an inactive check, and trials must not stop any.
func TestTrialChecksAreAlwaysActive(t *testing.T) {
	for _, tc := range []struct {
		parameters *kueue.AdmissionCheckParametersReference
		message    string
	}{
		{nil, "every job passes without a trial: spec.parameters names no TrialPolicy of plimsoll.dev"},
		{gateParameters("gpu"), "every job passes without a trial: spec.parameters names no TrialPolicy of plimsoll.dev"},
		{&kueue.AdmissionCheckParametersReference{APIGroup: "plimsoll.dev", Kind: "TrialPolicy", Name: "gpu"}, "TrialPolicy gpu decides"},
	} {
		check := &kueue.AdmissionCheck{Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.TrialControllerName, Parameters: tc.parameters}}
		if got := decideTrialActive(check); !got.IsTrue() || got.Message != tc.message {
			t.Errorf("%+v, want %q", got, tc.message)
		}
	}
}
