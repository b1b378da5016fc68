package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// What a workload may preempt follows from its ClusterQueue's policies.
func TestPreemptionPolicies(t *testing.T) {
	const never, lower, anyOne = kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyAny
	for _, tc := range []struct {
		name            string
		within, reclaim kueue.PreemptionPolicy
		cohort          string
		preempts        bool
		lowerPriority   bool
		want            gate.Reclaim
	}{
		{"never", never, never, "shared", false, false, gate.Reclaim{}},
		{"within the queue", lower, never, "shared", true, true, gate.Reclaim{}},
		{"any borrower", never, anyOne, "shared", true, false, gate.Reclaim{Queues: []string{"friend"}, AnyPriority: true}},
		{"borrowers with a lower priority", never, lower, "shared", true, false, gate.Reclaim{Queues: []string{"friend"}}},
		{"both", lower, anyOne, "shared", true, true, gate.Reclaim{Queues: []string{"friend"}, AnyPriority: true}},
		{"without a cohort", never, anyOne, "", true, false, gate.Reclaim{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			own, friend, outsider := clusterQueue("gpu", tc.cohort), clusterQueue("friend", "shared"), clusterQueue("outsider", "apart")
			own.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: tc.within, ReclaimWithinCohort: tc.reclaim}
			for _, q := range []*kueue.ClusterQueue{&own, &friend, &outsider} {
				if err := b.hub.Create(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
			b.create(withMultiKueue(pendingWorkload(noon)))
			o := b.look()
			rules := o.rules()
			if o.facts.Preempts != tc.preempts || rules.PreemptsLowerPriority != tc.lowerPriority || o.facts.Reclaims != (len(tc.want.Queues) > 0) {
				t.Errorf("preempts %t, lower priorities %t, reclaims %t", o.facts.Preempts, rules.PreemptsLowerPriority, o.facts.Reclaims)
			}
			if diff := cmp.Diff(tc.want, rules.Reclaim, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("reclaims (-want +got):\n%s", diff)
			}
		})
	}
}
