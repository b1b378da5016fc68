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

// pendingWorkloads are the workloads that wait for quota, listed at most once per
// PendingListTTL for all workloads that may yield.
type pendingWorkloads struct {
	mu       sync.Mutex
	listedAt time.Time
	// quotaOf names what each ClusterQueue draws quota from: the root of its cohorts, or itself.
	quotaOf map[kueue.ClusterQueueReference]string
	// byQuota are the pending workloads by that name.
	byQuota map[string]map[types.UID]bool
}

// hasOther reports whether another workload waits for quota of the workload's ClusterQueue or
// of its cohort.
func (p *pendingWorkloads) hasOther(ctx context.Context, c client.Reader, wl *kueue.Workload, now time.Time) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.listedAt) >= timing.PendingListTTL {
		if err := p.list(ctx, c); err != nil {
			return false, err
		}
		p.listedAt = now
	}
	pending := p.byQuota[p.quotaOf[wl.Status.Admission.ClusterQueue]]
	return len(pending) > 1 || len(pending) == 1 && !pending[wl.UID], nil
}

// list reads all queues and workloads from the cache.
func (p *pendingWorkloads) list(ctx context.Context, c client.Reader) error {
	cohorts, queues, localQueues, workloads := &kueue.CohortList{}, &kueue.ClusterQueueList{}, &kueue.LocalQueueList{}, &kueue.WorkloadList{}
	for _, list := range []client.ObjectList{cohorts, queues, localQueues, workloads} {
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
	}
	p.quotaOf, p.byQuota = map[kueue.ClusterQueueReference]string{}, map[string]map[types.UID]bool{}
	parents := map[kueue.CohortReference]kueue.CohortReference{}
	for i := range cohorts.Items {
		parents[kueue.CohortReference(cohorts.Items[i].Name)] = cohorts.Items[i].Spec.ParentName
	}
	for i := range queues.Items {
		q := &queues.Items[i]
		quota := "queue " + q.Name
		if q.Spec.CohortName != "" {
			quota = "cohort " + string(kueuestate.RootCohort(q.Spec.CohortName, parents))
		}
		p.quotaOf[kueue.ClusterQueueReference(q.Name)] = quota
		if p.byQuota[quota] == nil {
			p.byQuota[quota] = map[types.UID]bool{}
		}
	}
	byLocalQueue := map[client.ObjectKey]map[types.UID]bool{}
	for i := range localQueues.Items {
		byLocalQueue[client.ObjectKeyFromObject(&localQueues.Items[i])] = p.byQuota[p.quotaOf[localQueues.Items[i].Spec.ClusterQueue]]
	}
	for i := range workloads.Items {
		wl := &workloads.Items[i]
		pending := byLocalQueue[client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}]
		if pending != nil && isPending(wl) {
			pending[wl.UID] = true
		}
	}
	return nil
}

// isPending reports whether a workload waits for quota.
func isPending(wl *kueue.Workload) bool {
	return kueuestate.IsActive(wl) && wl.Status.Admission == nil && !kueuestate.IsFinished(wl) && wl.DeletionTimestamp.IsZero()
}
