package workload

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
)

// jobIndex is a field index of the components of jobs. Its values are the UIDs of the jobs.
const jobIndex = "plimsoll.job"

func jobOf(obj client.Object) []string {
	if wl, ok := obj.(*kueue.Workload); ok {
		if uid := kueuestate.JobUID(wl); uid != "" {
			return []string{string(uid)}
		}
	}
	return nil
}

// concernsComponents selects the events that change the steps of the job's other components: a
// component with a cluster, where the others may go, one that loses its cluster or gets quota, and a primary
// component that loses its quota, is rejected, is no longer held back or parked, or is deleted while it is.
var concernsComponents = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return isPlacedComponent(e.Object) },
	DeleteFunc:  func(e event.DeleteEvent) bool { return isPlacedComponent(e.Object) || isHeldPrimary(e.Object) },
	GenericFunc: func(e event.GenericEvent) bool { return isPlacedComponent(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return isPlacedComponent(e.ObjectNew) || isPlacedComponent(e.ObjectOld) || isOnItsWayPrimary(e.ObjectOld) && !isOnItsWayPrimary(e.ObjectNew) ||
			isHeldPrimary(e.ObjectOld) && !isHeldPrimary(e.ObjectNew) || !hasQuotaInJob(e.ObjectOld) && hasQuotaInJob(e.ObjectNew)
	},
}

func isPlacedComponent(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return ok && kueuestate.IsComponent(wl) && kueuestate.ClusterOf(wl) != ""
}

func isOnItsWayPrimary(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return ok && kueuestate.IsComponent(wl) && !kueuestate.FollowsPrimary(wl) && kueuestate.IsOnItsWay(wl)
}

func hasQuotaInJob(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return ok && kueuestate.IsComponent(wl) && kueuestate.HoldsQuota(wl)
}

// isHeldPrimary reports whether a primary component waits, inactive, for the gate to return it to its queue.
func isHeldPrimary(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return ok && kueuestate.IsComponent(wl) && !kueuestate.FollowsPrimary(wl) && !kueuestate.IsActive(wl)
}

// listJob lists all components of the job of a workload.
func (r *Reconciler) listJob(ctx context.Context, wl *kueue.Workload) (*kueue.WorkloadList, error) {
	list := &kueue.WorkloadList{}
	uid := kueuestate.JobUID(wl)
	if uid == "" {
		return list, nil
	}
	if err := r.client.List(ctx, list, client.InNamespace(wl.Namespace), client.MatchingFields{jobIndex: string(uid)}); err != nil {
		return nil, fmt.Errorf("list the components of the job of Workload %s/%s: %w", wl.Namespace, wl.Name, err)
	}
	return list, nil
}

// otherComponents are the requests of the job's other components that wait for a cluster: with quota, or inactive.
func (r *Reconciler) otherComponents(ctx context.Context, obj client.Object) []reconcile.Request {
	wl, ok := obj.(*kueue.Workload)
	if !ok {
		return nil
	}
	job, err := r.listJob(ctx, wl)
	if err != nil {
		log.FromContext(ctx).Error(err, "Listing components failed; they see the cluster at their next wake-up", "workload", client.ObjectKeyFromObject(obj))
		return nil
	}
	var requests []reconcile.Request
	for i := range job.Items {
		if other := &job.Items[i]; other.UID != wl.UID && (kueuestate.HoldsQuota(other) || !kueuestate.IsActive(other)) && kueuestate.ClusterOf(other) == "" {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName(client.ObjectKeyFromObject(other))})
		}
	}
	return requests
}

// observeComponents reads the other components of the workload's job.
func (r *Reconciler) observeComponents(ctx context.Context, s *lifecycle.Situation) error {
	if s.Dispatch() == lifecycle.Local {
		return nil
	}
	job, err := r.listJob(ctx, s.Workload)
	if err != nil {
		return err
	}
	for i := range job.Items {
		other := &job.Items[i]
		hasEnded := kueuestate.IsFinished(other) || !other.DeletionTimestamp.IsZero()
		if other.UID != s.Workload.UID && !hasEnded && !kueuestate.FollowsPrimary(other) {
			s.Job.Primary = other
		}
		switch cluster := kueuestate.ClusterOf(other); {
		case other.UID == s.Workload.UID:
		case cluster != "": // also of a component that has ended: Kueue sends the others there
			s.Job.Cluster = cluster
		case !hasEnded && willStart(other):
			s.Job.Unplaced = append(s.Job.Unplaced, other)
		}
	}
	return nil
}

// willStart reports whether a component waits for quota or holds it. One that a user deactivated, or that
// is in no queue, does neither. The operator activates a component again that it deactivated.
func willStart(wl *kueue.Workload) bool {
	if kueuestate.IsActive(wl) {
		return wl.Spec.QueueName != ""
	}
	record, err := dispatch.Decode(wl.Annotations)
	return err == nil && !record.SleepsUntil.IsZero()
}
