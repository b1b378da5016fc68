package reclaimpolicy

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
)

// queueStates are the LocalQueues of the hub and their ClusterQueues.
type queueStates struct {
	local   map[client.ObjectKey]*kueue.LocalQueue
	cluster map[string]*kueue.ClusterQueue
}

func (r *Reconciler) readQueueStates(ctx context.Context) (*queueStates, error) {
	local, cluster := &kueue.LocalQueueList{}, &kueue.ClusterQueueList{}
	if err := r.client.List(ctx, local, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list LocalQueues: %w", err)
	}
	if err := r.client.List(ctx, cluster, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ClusterQueues: %w", err)
	}
	s := &queueStates{local: map[client.ObjectKey]*kueue.LocalQueue{}, cluster: map[string]*kueue.ClusterQueue{}}
	for i := range local.Items {
		s.local[client.ObjectKeyFromObject(&local.Items[i])] = &local.Items[i]
	}
	for i := range cluster.Items {
		s.cluster[cluster.Items[i].Name] = &cluster.Items[i]
	}
	return s, nil
}

// localQueueOf returns the LocalQueue of a workload, or nil.
func (s *queueStates) localQueueOf(wl *kueue.Workload) *kueue.LocalQueue {
	return s.local[client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}]
}

// clusterQueueOf returns the ClusterQueue that a workload draws quota from, or "".
func (s *queueStates) clusterQueueOf(wl *kueue.Workload) string {
	if wl.Status.Admission != nil {
		return string(wl.Status.Admission.ClusterQueue)
	}
	if local := s.localQueueOf(wl); local != nil {
		return string(local.Spec.ClusterQueue)
	}
	return ""
}

// noQuotaReason returns why Kueue gives the workload no quota while it waits in its queues. It is
// empty if Kueue may give some.
func (s *queueStates) noQuotaReason(wl *kueue.Workload) string {
	local := s.localQueueOf(wl)
	if local == nil {
		return "LocalQueue " + string(wl.Spec.QueueName) + " does not exist"
	}
	if why := kueuestate.NoQuotaReasonOfLocal(local); why != "" {
		return "LocalQueue " + local.Name + " " + why
	}
	name := string(local.Spec.ClusterQueue)
	cluster, ok := s.cluster[name]
	if !ok {
		return "ClusterQueue " + name + " does not exist"
	}
	if why := kueuestate.NoQuotaReason(cluster); why != "" {
		return "ClusterQueue " + name + " " + why
	}
	return ""
}
