package workload

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

// reasonReplacesSlice is the reason of a decision that sends a slice to the clusters of the slice that
// it replaces.
const reasonReplacesSlice = "ReplacesSlice"

// observeReplacedSlice reads where the slice was sent that the workload replaces. Kueue copies the
// cluster of the old slice to the new one, but the old slice may have none:
//  1. An elastic job is resized while no cluster has admitted its slice.
//  2. The new slice reserves quota, and Kueue finishes the old one as replaced.
//  3. MultiKueue leaves the copies of a replaced slice on the workers. A copy keeps its quota until
//     the same worker admits the new slice, which replaces it there.
//
// Once the new slice was nominated, its own nominations count. An eviction removes the job from
// every worker.
func (r *Reconciler) observeReplacedSlice(ctx context.Context, o *observation) error {
	name := kueuestate.ReplacedSlice(o.wl)
	if name == "" || o.multiKueue == "" || o.wl.Status.ClusterName != nil || o.record.Attempt > 0 || kueuestate.CountEvictions(o.wl) > 0 {
		return nil
	}
	old := &kueue.Workload{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: o.wl.Namespace, Name: name}, old); err != nil {
		return client.IgnoreNotFound(err)
	}
	o.replacedSliceOn = old.Status.NominatedClusterNames
	if cluster := clusterOf(old); cluster != "" {
		o.replacedSliceOn = []string{cluster}
	}
	return nil
}

// followReplacedSlice sends a slice that has no room to the clusters of the slice that it replaces.
// The copy of that slice may have the missing devices, or their quota, and keeps them until the
// new slice is there.
func (o *observation) followReplacedSlice(d gate.Decision) gate.Decision {
	if d.Reason != gate.ReasonNoRoom && d.Reason != gate.ReasonHeld {
		return d
	}
	var clusters []string
	for _, v := range d.Verdicts {
		if v.Rejection.MayHoldCopy() && slices.Contains(o.replacedSliceOn, v.Cluster) {
			clusters = append(clusters, v.Cluster)
		}
	}
	if len(clusters) == 0 {
		return d
	}
	return gate.Decision{State: gate.Ready, Reason: reasonReplacesSlice, Verdicts: d.Verdicts, Order: clusters,
		Message: "it replaces a slice that was sent to " + clusters[0] + ", where that may take the room: " + d.Message}
}
