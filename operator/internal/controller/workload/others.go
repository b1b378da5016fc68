package workload

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/gate"
)

// othersPending says whether another workload waits for quota of the same
// ClusterQueue or of one that shares its cohort.
func (r *Reconciler) othersPending(ctx context.Context, wl *kueue.Workload) (bool, error) {
	sharing, err := r.sharing(ctx, wl.Status.Admission.ClusterQueue)
	if err != nil {
		return false, err
	}
	queues := &kueue.LocalQueueList{}
	if err := r.client.List(ctx, queues); err != nil {
		return false, err
	}
	rivals := map[client.ObjectKey]bool{}
	for i := range queues.Items {
		if slices.Contains(sharing, queues.Items[i].Spec.ClusterQueue) {
			rivals[client.ObjectKeyFromObject(&queues.Items[i])] = true
		}
	}
	list := &kueue.WorkloadList{}
	if err := r.client.List(ctx, list); err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.Items, func(other kueue.Workload) bool {
		active := other.Spec.Active == nil || *other.Spec.Active
		return active && other.UID != wl.UID && other.Status.Admission == nil && !gate.IsFinished(&other) &&
			other.DeletionTimestamp.IsZero() && rivals[client.ObjectKey{Namespace: other.Namespace, Name: string(other.Spec.QueueName)}]
	}), nil
}

// sharing are the ClusterQueues that may use a ClusterQueue's quota: itself and
// those of its cohort.
func (r *Reconciler) sharing(ctx context.Context, name kueue.ClusterQueueReference) ([]kueue.ClusterQueueReference, error) {
	sharing := []kueue.ClusterQueueReference{name}
	queues := &kueue.ClusterQueueList{}
	if err := r.client.List(ctx, queues); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(queues.Items, func(q kueue.ClusterQueue) bool { return q.Name == string(name) })
	if i < 0 || queues.Items[i].Spec.CohortName == "" {
		return sharing, nil
	}
	for _, q := range queues.Items {
		if q.Spec.CohortName == queues.Items[i].Spec.CohortName {
			sharing = append(sharing, kueue.ClusterQueueReference(q.Name))
		}
	}
	return sharing, nil
}

// preempts says whether a ClusterQueue may take quota back from others. Its
// namesakes on the workers are taken to be like it.
func (r *Reconciler) preempts(ctx context.Context, name string) bool {
	queue := &kueue.ClusterQueue{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, queue); err != nil || queue.Spec.Preemption == nil {
		return false
	}
	for _, policy := range []kueue.PreemptionPolicy{queue.Spec.Preemption.WithinClusterQueue, queue.Spec.Preemption.ReclaimWithinCohort} {
		if policy != "" && policy != kueue.PreemptionPolicyNever {
			return true
		}
	}
	return false
}
