package workload

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// others are the workloads that wait for quota.
type others struct {
	mu sync.Mutex
	at time.Time
	// shares quota with: each ClusterQueue's cohort, or itself.
	shares map[kueue.ClusterQueueReference]string
	// pending workloads by what they could share.
	pending map[string]map[types.UID]bool
}

// othersPending says whether another workload waits for quota of the same
// ClusterQueue or of one that shares its cohort.
func (r *Reconciler) othersPending(ctx context.Context, wl *kueue.Workload) (bool, error) {
	o := &r.others
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := r.now(); now.Sub(o.at) >= timing.PendingListTTL {
		if err := o.look(ctx, r.client); err != nil {
			return false, err
		}
		o.at = now
	}
	pending := o.pending[o.shares[wl.Status.Admission.ClusterQueue]]
	return len(pending) > 1 || len(pending) == 1 && !pending[wl.UID], nil
}

// look at all queues and workloads, as they stand in the cache.
func (o *others) look(ctx context.Context, c client.Reader) error {
	queues, locals, workloads := &kueue.ClusterQueueList{}, &kueue.LocalQueueList{}, &kueue.WorkloadList{}
	for _, list := range []client.ObjectList{queues, locals, workloads} {
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
	}
	o.shares, o.pending = map[kueue.ClusterQueueReference]string{}, map[string]map[types.UID]bool{}
	for i := range queues.Items {
		q := &queues.Items[i]
		share := "queue " + q.Name
		if q.Spec.CohortName != "" {
			share = "cohort " + string(q.Spec.CohortName)
		}
		o.shares[kueue.ClusterQueueReference(q.Name)] = share
		o.pending[share] = map[types.UID]bool{}
	}
	of := map[client.ObjectKey]map[types.UID]bool{}
	for i := range locals.Items {
		of[client.ObjectKeyFromObject(&locals.Items[i])] = o.pending[o.shares[locals.Items[i].Spec.ClusterQueue]]
	}
	for i := range workloads.Items {
		wl := &workloads.Items[i]
		if pending := of[client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}]; pending != nil && waitsForQuota(wl) {
			pending[wl.UID] = true
		}
	}
	return nil
}

func waitsForQuota(wl *kueue.Workload) bool {
	active := wl.Spec.Active == nil || *wl.Spec.Active
	return active && wl.Status.Admission == nil && !kueuestate.IsFinished(wl) && wl.DeletionTimestamp.IsZero()
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
