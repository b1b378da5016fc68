package shadow

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// A report has its dominant finding, the numbers of it and what to do.
func TestConclusionOfAReport(t *testing.T) {
	const enforce = `kubectl patch placementgate gpu --type merge -p '{"spec":{"mode":"Enforce"}}'`
	outcome := func(of v1alpha1.GateOutcome, workloads, hung int64) v1alpha1.ShadowOutcome {
		return v1alpha1.ShadowOutcome{Outcome: of, Workloads: workloads, Hung: hung}
	}
	for _, tc := range []struct {
		reason         ReportReason
		mode           v1alpha1.Mode
		outcomes       []v1alpha1.ShadowOutcome
		evidence, next string
	}{
		{ReportNone, v1alpha1.ModeShadow, nil, "no workload has started or ended", "submit jobs to the queues of the gate, and look again"},
		{ReportHungElsewhere, v1alpha1.ModeShadow, []v1alpha1.ShadowOutcome{outcome(v1alpha1.OutcomeSameCluster, 3, 1), outcome(v1alpha1.OutcomeOtherCluster, 2, 2)},
			"2 of 5 workloads hung where the gate would not have sent them", enforce},
		{ReportHungElsewhere, v1alpha1.ModeEnforce, []v1alpha1.ShadowOutcome{outcome(v1alpha1.OutcomeWait, 2, 1)},
			"1 of 2 workloads hung where the gate would not have sent them", "nothing: the gate decides"},
		{ReportUndecided, v1alpha1.ModeShadow, []v1alpha1.ShadowOutcome{outcome(v1alpha1.OutcomeSameCluster, 1, 0), outcome(v1alpha1.OutcomeUndecided, 2, 0)},
			"the gate could not decide about 2 of 3 workloads", "kubectl plimsoll doctor"},
		{ReportTooFew, v1alpha1.ModeShadow, []v1alpha1.ShadowOutcome{outcome(v1alpha1.OutcomeSameCluster, 1, 0)}, "only 1 workload passed", "look again when 20 have passed"},
		{ReportWouldWait, v1alpha1.ModeShadow, []v1alpha1.ShadowOutcome{outcome(v1alpha1.OutcomeSameCluster, 18, 0), outcome(v1alpha1.OutcomeWait, 1, 0), outcome(v1alpha1.OutcomeNever, 1, 0)},
			"2 of 20 workloads would have waited, and none of them hung", "kubectl plimsoll report gate gpu -o wide"},
		{ReportWouldMove, v1alpha1.ModeShadow, []v1alpha1.ShadowOutcome{outcome(v1alpha1.OutcomeSameCluster, 18, 0), outcome(v1alpha1.OutcomeOtherCluster, 2, 0)},
			"2 of 20 workloads would have gone to another cluster, and none of them hung", "kubectl plimsoll report gate gpu -o wide"},
		{ReportAllAgree, v1alpha1.ModeShadow, []v1alpha1.ShadowOutcome{outcome(v1alpha1.OutcomeSameCluster, 20, 0)}, "the gate would have changed nothing for 20 workloads", enforce},
	} {
		t.Run(string(tc.reason)+" "+string(tc.mode), func(t *testing.T) {
			r, err := ReportOf(&v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.PlacementGateSpec{Mode: tc.mode},
				Status: v1alpha1.PlacementGateStatus{Shadow: &v1alpha1.GateShadow{Outcomes: tc.outcomes}}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Reason != tc.reason || r.Evidence != tc.evidence || r.Next != tc.next {
				t.Errorf("got %s: %s: %s, want %s: %s: %s", r.Reason, r.Evidence, r.Next, tc.reason, tc.evidence, tc.next)
			}
		})
	}
}
