package workload

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// pendingWorkloads are the workloads that wait for quota, listed at most once per
// PendingListTTL for all workloads that may yield.
type pendingWorkloads struct {
	mu       sync.Mutex
	listedAt time.Time
	// quotaOf names what each ClusterQueue draws quota from: the root of its cohorts, or itself.
	quotaOf map[kueue.ClusterQueueReference]string
	// byQuota are the pending jobs by that name. See jobKey.
	byQuota map[string]map[types.UID]lifecycle.PendingWorkload
}

// jobKey is the UID of the job of which a workload is a component, or else that of the workload.
func jobKey(wl *kueue.Workload) types.UID { return cmp.Or(kueuestate.JobUID(wl), wl.UID) }

// hasOther reports whether another workload waits for quota of the workload's ClusterQueue or
// of its cohort, which the workload would not take back by preemption. Other components of the same job are no others:
// the job yields as a whole.
func (p *pendingWorkloads) hasOther(ctx context.Context, c client.Reader, s *lifecycle.Situation) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := s.Now
	if now.Sub(p.listedAt) >= timing.PendingListTTL {
		if err := p.list(ctx, c); err != nil {
			return false, err
		}
		p.listedAt = now
	}
	for job, other := range p.byQuota[p.quotaOf[s.Workload.Status.Admission.ClusterQueue]] {
		if job != jobKey(s.Workload) && !s.WouldPreempt(other) {
			return true, nil
		}
	}
	return false, nil
}

// list reads all queues and workloads from the cache. Workloads of stopped queues wait for nothing.
func (p *pendingWorkloads) list(ctx context.Context, c client.Reader) error {
	cohorts, queues, localQueues, workloads := &kueue.CohortList{}, &kueue.ClusterQueueList{}, &kueue.LocalQueueList{}, &kueue.WorkloadList{}
	for _, list := range []client.ObjectList{cohorts, queues, localQueues, workloads} {
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
	}
	givesQuota := map[kueue.ClusterQueueReference]bool{}
	p.quotaOf, p.byQuota = map[kueue.ClusterQueueReference]string{}, map[string]map[types.UID]lifecycle.PendingWorkload{}
	parents := kueuestate.ParentCohorts(cohorts)
	for i := range queues.Items {
		q := &queues.Items[i]
		quota := kueuestate.QuotaSource(q, parents)
		p.quotaOf[kueue.ClusterQueueReference(q.Name)] = quota
		givesQuota[kueue.ClusterQueueReference(q.Name)] = kueuestate.NoQuotaReason(q) == ""
		if p.byQuota[quota] == nil {
			p.byQuota[quota] = map[types.UID]lifecycle.PendingWorkload{}
		}
	}
	byLocalQueue := map[client.ObjectKey]kueue.ClusterQueueReference{}
	for i := range localQueues.Items {
		q := &localQueues.Items[i]
		if givesQuota[q.Spec.ClusterQueue] && kueuestate.NoQuotaReasonOfLocal(q) == "" {
			byLocalQueue[client.ObjectKeyFromObject(q)] = q.Spec.ClusterQueue
		}
	}
	for i := range workloads.Items {
		wl := &workloads.Items[i]
		queue, givesQuota := byLocalQueue[client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}]
		if givesQuota && kueuestate.WaitsForQuota(wl) {
			p.byQuota[p.quotaOf[queue]][jobKey(wl)] = lifecycle.PendingWorkload{ClusterQueue: string(queue), Priority: ptr.Deref(wl.Spec.Priority, 0), CreatedAt: wl.CreationTimestamp.Time}
		}
	}
	return nil
}
