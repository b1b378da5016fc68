package workload

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
)

// reasonReplacesSlice is the reason of a decision that sends a slice to the clusters of the slice that
// it replaces.
const reasonReplacesSlice = "ReplacesSlice"

// observeReplacedSlice reads on which clusters copies of the slice that the workload replaces, and of the
// workload itself, may have room. Kueue copies the cluster of the old slice to the new one, but the old
// slice may have none:
//  1. An elastic job is resized while no cluster has admitted its slice.
//  2. The new slice reserves quota, and Kueue finishes the old one as replaced.
//  3. MultiKueue leaves the copies of a replaced slice on the workers. A copy keeps its quota until
//     the same worker admits the new slice, which replaces it there.
//  4. The new slice is evicted. MultiKueue also leaves the copies of a slice without quota that replaces
//     another one. Each may be admitted while the slice waits for quota.
//
// If a cluster has admitted the new slice, it replaced the old one there, and the eviction ended it. Then
// only the clusters of a later attempt count.
func (r *Reconciler) observeReplacedSlice(ctx context.Context, o *observation) error {
	name := kueuestate.ReplacedSlice(o.wl)
	if name == "" || o.multiKueue == "" || o.wl.Status.ClusterName != nil {
		return nil
	}
	if kueuestate.WasAdmitted(o.wl) {
		if !o.history.copies.recorded {
			o.replacedSliceOn, o.sliceSeenOn = o.history.copies.clusters, o.history.copies.clusters
		}
		return nil
	}
	old := &kueue.Workload{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: o.wl.Namespace, Name: name}, old); client.IgnoreNotFound(err) != nil {
		return err
	}
	o.sliceSeenOn = appendNew(clustersOfSlice(old), o.history.copies.clusters)
	o.replacedSliceOn = appendNew(appendNew(slices.Clone(o.sliceSeenOn), recordedClusters(old)), o.record.EverNominated)
	return nil
}

// clustersOfSlice returns the clusters that a replaced slice was sent to, as its status says.
func clustersOfSlice(old *kueue.Workload) []string {
	if cluster := clusterOf(old); cluster != "" {
		return []string{cluster}
	}
	return slices.Clone(old.Status.NominatedClusterNames)
}

// recordedClusters returns the clusters that the record of a replaced slice names. An eviction clears
// the nominated clusters of its status, but removes no copies if the slice replaced another one itself.
func recordedClusters(old *kueue.Workload) []string {
	if clusterOf(old) != "" || kueuestate.ReplacedSlice(old) == "" || kueuestate.WasAdmitted(old) {
		return nil
	}
	// A record that does not parse was not written by the operator and names no cluster.
	record, _ := dispatch.Decode(old.Annotations)
	return record.EverNominated
}

// appendNew appends the values that list does not have.
func appendNew(list, values []string) []string {
	for _, v := range values {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// followReplacedSlice sends a slice that has no room to the clusters of the slice that it replaces, and to
// its own earlier ones. The copy of a slice may have the missing devices, or their quota, and keeps them
// until the new slice is there. Users can write a record, so a cluster that only a record names gives no
// devices that are held for others, and the workload waits for its turn.
func (o *observation) followReplacedSlice(d gate.Decision) gate.Decision {
	if d.Reason != gate.ReasonNoRoom && d.Reason != gate.ReasonHeld {
		return d
	}
	var clusters []string
	for _, v := range d.Verdicts {
		isHeld := v.Rejection == gate.RejectHeld && !slices.Contains(o.sliceSeenOn, v.Cluster)
		if v.Rejection.MayHoldCopy() && !isHeld && slices.Contains(o.replacedSliceOn, v.Cluster) {
			clusters = append(clusters, v.Cluster)
		}
	}
	if len(clusters) == 0 {
		return d
	}
	message := "it replaces a slice that was sent to " + clusters[0] + ", where that may take the room: " + d.Message
	if len(o.record.EverNominated) > 0 {
		message = "it or the slice that it replaces was sent to " + clusters[0] + " earlier, where a copy may take the room: " + d.Message
	}
	return gate.Decision{State: gate.Ready, Reason: reasonReplacesSlice, Verdicts: d.Verdicts, Order: clusters, Message: gate.Truncate(message)}
}
