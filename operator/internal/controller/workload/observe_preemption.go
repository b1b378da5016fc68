package workload

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
)

// observeQueue reads the workload's ClusterQueue: whether checks are still to come, which ClusterQueues
// share quota with it, and from whom it may take quota. The queues of the same name on the workers are assumed to have the same policy and
// cohort.
func (r *Reconciler) observeQueue(ctx context.Context, s *lifecycle.Situation) error {
	queue := &kueue.ClusterQueue{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: string(s.Workload.Status.Admission.ClusterQueue)}, queue); client.IgnoreNotFound(err) != nil {
		return err
	}
	s.Queue.LacksChecks = kueuestate.LacksChecks(queue, s.Workload)
	policy := kueue.ClusterQueuePreemption{}
	if queue.Spec.Preemption != nil {
		policy = *queue.Spec.Preemption
	}
	s.Queue.PreemptsLowerPriority = kueuestate.IsPreempting(policy.WithinClusterQueue)
	s.Queue.PreemptsNewerEqual = policy.WithinClusterQueue == kueue.PreemptionPolicyLowerOrNewerEqualPriority
	s.Queue.Borrows = borrows(queue)
	s.Queue.CanPreempt = s.Queue.PreemptsLowerPriority || kueuestate.IsPreempting(policy.ReclaimWithinCohort)
	if queue.Spec.CohortName == "" || s.Dispatch() == lifecycle.Local {
		return nil
	}
	cohorts, queues := &kueue.CohortList{}, &kueue.ClusterQueueList{}
	for _, list := range []client.ObjectList{cohorts, queues} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list the ClusterQueues of cohort %s: %w", queue.Spec.CohortName, err)
		}
	}
	mayReclaim, parents := kueuestate.IsPreempting(policy.ReclaimWithinCohort), kueuestate.ParentCohorts(cohorts)
	s.Queue.PreemptsUncounted = mayReclaim && policy.BorrowWithinCohort != nil && policy.BorrowWithinCohort.Policy != kueue.BorrowWithinCohortPolicyNever
	s.Queue.Reclaim = gate.Reclaim{AnyPriority: policy.ReclaimWithinCohort == kueue.PreemptionPolicyAny}
	root := kueuestate.RootCohort(queue.Spec.CohortName, parents)
	for i := range queues.Items {
		other := &queues.Items[i]
		if other.Name == queue.Name || other.Spec.CohortName == "" || kueuestate.RootCohort(other.Spec.CohortName, parents) != root {
			continue
		}
		s.Queue.CohortQueues = append(s.Queue.CohortQueues, other.Name)
		if mayReclaim && other.Spec.CohortName == queue.Spec.CohortName {
			s.Queue.Reclaim.Queues = append(s.Queue.Reclaim.Queues, other.Name)
		}
	}
	return nil
}

// borrows reports whether a queue uses quota of its cohort.
func borrows(queue *kueue.ClusterQueue) bool {
	return slices.ContainsFunc(queue.Status.FlavorsReservation, func(f kueue.FlavorUsage) bool {
		return slices.ContainsFunc(f.Resources, func(r kueue.ResourceUsage) bool { return !r.Borrowed.IsZero() })
	})
}
