package workload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
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
			cousin, loner := clusterQueue("cousin", "research"), clusterQueue("loner", "")
			shared, research := cohort("shared", "company"), cohort("research", "company")
			own.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: tc.within, ReclaimWithinCohort: tc.reclaim}
			for _, obj := range []client.Object{&own, &friend, &outsider, &cousin, &loner, &shared, &research} {
				if err := b.hub.Create(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
			}
			b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
			s := b.look()
			rules := s.Rules()
			if s.Request.Facts.Preempts != tc.preempts || rules.PreemptsLowerPriority != tc.lowerPriority || s.Request.Facts.Reclaims != (len(tc.want.Queues) > 0) {
				t.Errorf("preempts %t, lower priorities %t, reclaims %t", s.Request.Facts.Preempts, rules.PreemptsLowerPriority, s.Request.Facts.Reclaims)
			}
			if diff := cmp.Diff(tc.want, rules.Reclaim, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("reclaims (-want +got):\n%s", diff)
			}
			var sharers []string
			if tc.cohort != "" {
				sharers = []string{"cousin", "friend"}
			}
			if diff := cmp.Diff(sharers, rules.CohortQueues, cmpopts.SortSlices(strings.Compare)); diff != "" {
				t.Errorf("queues that share quota (-want +got):\n%s", diff)
			}
		})
	}
}

// A queue that preempts others while it borrows itself may get quota from workloads that the gate does
// not count.
func TestBorrowWithinCohortIsNotCounted(t *testing.T) {
	for _, tc := range []struct {
		name    string
		reclaim kueue.PreemptionPolicy
		borrow  *kueue.BorrowWithinCohort
		want    bool
	}{
		{"no policy", kueue.PreemptionPolicyAny, nil, false},
		{"never", kueue.PreemptionPolicyAny, &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyNever}, false},
		{"lower priorities", kueue.PreemptionPolicyAny, &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority}, true},
		{"lower priorities, without reclaiming", kueue.PreemptionPolicyNever, &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			own := clusterQueue("gpu", "shared")
			own.Spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: tc.reclaim, BorrowWithinCohort: tc.borrow}
			if err := b.hub.Create(t.Context(), &own); err != nil {
				t.Fatal(err)
			}
			b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
			if got := b.look().Rules().PreemptsUncounted; got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
