package workload

import (
	"context"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// maxReplacedSlices limits how many slices of a job are read. Users can write the annotation that names
// the replaced slice, so that slices may replace each other.
const maxReplacedSlices = 16

// observeRunningSlice finds the admitted slice of an elastic job that runs without MultiKueue while the
// workload, its new slice, waits:
//  1. The job runs and is resized. The new slice has the quota of all pods.
//  2. Kueue finishes the old slice at once, without waiting for admission checks.
//  3. The job runs on with its former number of pods. Only an eviction of the new slice stops it.
//
// The slices in between were resized before Kueue admitted them. If Kueue evicted the admitted slice or
// one after it, the job was stopped, or has lost its place.
func (r *Reconciler) observeRunningSlice(ctx context.Context, o *observation) error {
	slice := o.wl
	for range maxReplacedSlices {
		if kueuestate.CountEvictions(slice) > 0 {
			return nil
		}
		old, err := r.replacedSlice(ctx, slice)
		if err != nil || old == nil || kueuestate.IsEvicted(old) {
			return err
		}
		if kueuestate.IsAdmitted(old) {
			o.runningSlice = old
			return nil
		}
		slice = old
	}
	return nil
}

// followRunningSlice returns the message of a check that lets through the new slice of a running job, the
// updates of its pods, and what the ledger reserves. The new pods need the updates of the others: they
// are created from one template, to which Kueue added those of the first slice.
//
// The ledger reserves all pods. The entry of the old slice, which ends now, may be the only one that has
// the running pods.
func (o *observation) followRunningSlice() (message string, updates []kueue.PodSetUpdate, res *reservation) {
	message = "it replaces Workload " + o.runningSlice.Name + ", whose job already runs"
	cluster := kueuestate.SentCluster(o.runningSlice, o.checks, "")
	if cluster == "" {
		return message, nil, nil
	}
	for _, update := range kueuestate.FindCheck(o.runningSlice, o.checks[0]).PodSetUpdates {
		updates = append(updates, *update.DeepCopy())
	}
	if o.gateKnown {
		res = &reservation{entries: []ledger.Entry{o.entry(cluster, o.now)}}
	}
	return message + " on " + cluster, updates, res
}

// stepFollowKueue sets the check Ready for a workload that runs already. The new slice of an
// elastic job arrives with status.clusterName set, and MultiKueue waits for every other check
// before it updates the running copy. Without MultiKueue, the workload replaces a slice that runs, or
// was admitted before its ClusterQueue got the check.
func (o *observation) stepFollowKueue() step {
	s, w := step{}, &checkWrite{names: o.checks, rememberReason: true}
	message := "the job ran before its queue had this check"
	switch cluster := o.wl.Status.ClusterName; {
	case cluster != nil:
		message = "Kueue placed it on " + *cluster + ", where the job already runs"
	case o.runningSlice != nil:
		message, w.podSetUpdates, s.reservation = o.followRunningSlice()
	}
	w.decision = gate.Decision{State: gate.Ready, Reason: "PlacedByKueue", Message: message}
	s.decision = &w.decision
	s.writes = []write{{check: w, event: &notice{reason: w.decision.Reason, message: message}}}
	return s
}
