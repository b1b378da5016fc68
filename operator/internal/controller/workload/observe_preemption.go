package workload

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// observePreemption reads from whom the workload's ClusterQueue may take quota. The queues of the
// same name on the workers are assumed to have the same policy and cohort.
func (r *Reconciler) observePreemption(ctx context.Context, o *observation) error {
	queue := &kueue.ClusterQueue{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: string(o.wl.Status.Admission.ClusterQueue)}, queue); client.IgnoreNotFound(err) != nil {
		return err
	}
	policy := queue.Spec.Preemption
	if policy == nil {
		return nil
	}
	o.preemptsLowerPriority = isPreempting(policy.WithinClusterQueue)
	o.canPreempt = o.preemptsLowerPriority || isPreempting(policy.ReclaimWithinCohort)
	if !isPreempting(policy.ReclaimWithinCohort) || queue.Spec.CohortName == "" {
		return nil
	}
	queues := &kueue.ClusterQueueList{}
	if err := r.client.List(ctx, queues, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the ClusterQueues of cohort %s: %w", queue.Spec.CohortName, err)
	}
	o.reclaim = gate.Reclaim{AnyPriority: policy.ReclaimWithinCohort == kueue.PreemptionPolicyAny}
	for i := range queues.Items {
		if other := &queues.Items[i]; other.Spec.CohortName == queue.Spec.CohortName && other.Name != queue.Name {
			o.reclaim.Queues = append(o.reclaim.Queues, other.Name)
		}
	}
	return nil
}

func isPreempting(policy kueue.PreemptionPolicy) bool {
	return policy != "" && policy != kueue.PreemptionPolicyNever
}
