package placementgate

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
	"plimsoll.dev/plimsoll/operator/internal/hubstate"
)

// preemptingQuota is the quota for devices of a queue that preempts.
type preemptingQuota struct {
	gatestate.FlavorDevices
	// quota that the workloads of the queue can reserve together, with what it can borrow.
	quota int64
	// devices on the gate's clusters. Unless measured is true, no decision has counted them.
	devices  gatestate.Devices
	measured bool
}

// gatherPreemptingQuotas returns the quotas of the queues that preempt and have a check of the gate, which does not decide
// first. In mode Shadow, it never does.
func (r *Reconciler) gatherPreemptingQuotas(ctx context.Context, g *v1alpha1.PlacementGate) ([]preemptingQuota, error) {
	checks, queues, cohorts := &kueue.AdmissionCheckList{}, &kueue.ClusterQueueList{}, &kueue.CohortList{}
	for _, list := range []client.ObjectList{checks, queues, cohorts} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	own := map[string]bool{}
	for i := range checks.Items {
		name, isOurs := kueuestate.GateOf(&checks.Items[i])
		own[checks.Items[i].Name] = isOurs && name == g.Name
	}
	var list []preemptingQuota
	quotas := kueuestate.QuotasOf(queues, cohorts)
	for i := range queues.Items {
		queue := &queues.Items[i]
		isGated := slices.ContainsFunc(kueuestate.ChecksOfQueue(queue), func(name string) bool { return own[name] })
		if !isGated || !kueuestate.Preempts(queue) {
			continue
		}
		for _, of := range deviceQuotasOf(queue) {
			q := preemptingQuota{FlavorDevices: of, quota: quotas.Largest(queue, of.Flavor, of.Resource)}
			q.devices, q.measured = r.opts.Registry.DevicesOf(g.Name, of)
			if q.quota > 0 {
				list = append(list, q)
			}
		}
	}
	if len(list) == 0 || g.Spec.Mode == v1alpha1.ModeShadow {
		return list, nil
	}
	first, err := hubstate.DecidedFirst(ctx, r.client)
	return slices.DeleteFunc(list, func(q preemptingQuota) bool { return first[q.ClusterQueue] }), err
}

// deviceQuotasOf returns the flavors and resources of a queue that count devices which the exporter measures.
func deviceQuotasOf(queue *kueue.ClusterQueue) []gatestate.FlavorDevices {
	var list []gatestate.FlavorDevices
	for _, group := range queue.Spec.ResourceGroups {
		for _, flavor := range group.Flavors {
			for _, resource := range flavor.Resources {
				if shape.IsMeasured(string(resource.Name)) {
					list = append(list, gatestate.FlavorDevices{ClusterQueue: queue.Name, Flavor: string(flavor.Name), Resource: string(resource.Name)})
				}
			}
		}
	}
	return list
}

// decidePreemptionGated reports whether the gate decides before Kueue preempts. Kueue preempts on the hub if quota
// is used up: the workload that it does so for then waits at the gate, and may fit on no cluster.
func decidePreemptionGated(in *input) condition.Decision {
	for _, q := range in.preempting {
		if q.measured && q.quota <= q.devices.Count {
			return condition.False(v1alpha1.ReasonQuotaBelowDevices, fmt.Sprintf(
				"ClusterQueue %s preempts, and its quota of %d %s (flavor %s) does not exceed the %d on the clusters: Kueue may preempt running jobs for one that fits nowhere; raise the quota above the devices, remove spec.preemption, or let the gate decide first in all its LocalQueues (config/gate-first)",
				q.ClusterQueue, q.quota, q.Resource, q.Flavor, q.devices.Count))
		}
	}
	for _, q := range in.preempting {
		if !q.measured || !q.devices.Complete {
			return condition.Unknown(v1alpha1.ReasonDevicesNotMeasured, fmt.Sprintf(
				"ClusterQueue %s preempts, and whether its quota of %d %s (flavor %s) exceeds the devices is not known before a job that permits all models of the flavor was decided, with samples of each cluster",
				q.ClusterQueue, q.quota, q.Resource, q.Flavor))
		}
	}
	if len(in.preempting) == 0 {
		return condition.True(v1alpha1.ReasonNoPreemption, "no queue with the gate's check preempts before the gate decides")
	}
	return condition.True(v1alpha1.ReasonQuotaAboveDevices, "the quota of each queue that preempts before the gate decides exceeds the devices on the gate's clusters")
}
