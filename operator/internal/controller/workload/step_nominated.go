package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/registry"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// renominationList is the list of nominations with those restored that another component
// removed. A cluster that was revoked after it admitted the workload runs the copy, and
// Kueue can't record that until the cluster is nominated again.
func (o *observation) renominationList() []string {
	nominated := o.wl.Status.NominatedClusterNames
	revoked := o.record.Revoked(nominated, o.history.nominatedSeen)
	return dispatch.Record{EverNominated: revoked}.WidenedList(dispatch.StageHeal, nominated, dispatch.Clusters{MayHoldCopy: revoked, Usable: o.workers.connected}, dispatch.Pace{})
}

// stepRenominate restores the nominations that another component removed.
func (o *observation) stepRenominate() step {
	clusters, nominated := o.renominationList(), o.wl.Status.NominatedClusterNames
	message := "another component removed the nomination of " + strings.Join(clusters[len(nominated):], ", ")
	record := o.record.Widen(clusters, message, o.now)
	return step{
		writes:       o.nominate(clusters, &record, reasonNominatedAgain, message),
		conflict:     &conflict{evidence: fmt.Sprintf("%s: %s", o.key, message), at: o.now},
		requeueAfter: timing.DefaultWidenAfter,
	}
}

// stepWiden looks after a nomination that no cluster has admitted yet. Without a gate the
// default times apply, and where the workload fits is not known.
func (o *observation) stepWiden() step {
	s := step{}
	if o.gateExists && !o.gateKnown {
		s.requeueAfter = timing.DefaultWidenAfter
		return s
	}
	nominated := o.wl.Status.NominatedClusterNames
	if o.phase == PhaseNominated && o.mustWithdraw() {
		return o.stepWithdraw()
	}
	if !o.record.IsCurrent(o.quotaReservedAt()) || len(o.record.Foreign(nominated)) > 0 {
		return o.stepAdopt()
	}
	if o.isOverdue() {
		return o.stepRequeue()
	}
	stage, after := o.record.Stage(o.pace(), o.now)
	s.requeueAfter = after
	if stage == dispatch.StageWait {
		return s
	}
	isNews := o.history.lateAttempt < o.record.Attempt
	if len(o.holdingOn) > 0 {
		if isNews {
			s.lateAttempt, s.event = o.record.Attempt, &notice{warning: true, reason: "AdmissionNotRecorded", message: gate.Truncate(
				"its pods hold devices on " + strings.Join(o.holdingOn, ", ") + ", but Kueue has not recorded that the cluster admitted it; other clusters are not nominated yet")}
		}
		return s
	}
	if isNews {
		s.lateAttempt, s.mispredicted = o.record.Attempt, o.gateKnown
	}
	d := o.decision(o.record.Attempt)
	widened := o.record.WidenedList(stage, nominated, o.wideningClusters(d), o.pace())
	if o.decides() {
		s.reservation = o.reserve(widened, d)
	}
	message := fmt.Sprintf("%s has not admitted it within %s; check that the worker has the queue and quota",
		strings.Join(nominated, ", "), o.now.Sub(o.record.NominatedAt).Round(time.Second))
	if len(widened) == len(nominated) {
		if isNews {
			s.event = &notice{warning: true, reason: "NotAdmitted", message: gate.Truncate(message + "; no other cluster is known to have room")}
		}
		return s
	}
	message += "; now also " + strings.Join(widened[len(nominated):], ", ")
	record := o.record.Widen(widened, message, o.now)
	s.writes = o.nominate(widened, &record, string(stage), message)
	return s
}

// isWideningDue reports whether the nomination has lasted for so long that other clusters are
// nominated, too, unless the workload's pods hold devices on a nominated one: MultiKueue starts the
// job before it writes on the hub which cluster admitted the workload. The last stage does not
// wait for that.
func (o *observation) isWideningDue() bool {
	stage, _ := o.record.Stage(o.pace(), o.now)
	return o.phase == PhaseNominated && (stage == dispatch.StageWiden || stage == dispatch.StageHeal)
}

func (o *observation) pace() dispatch.Pace {
	return dispatch.Pace{Widen: o.gate.Spec.Widen, Lag: o.lag}
}

// wideningClusters are the clusters for further nominations under a decision. If the gate can't
// decide, nothing is known of the room of any cluster. A stuck eviction needs some cluster, and
// the quota that it releases must not depend on room.
func (o *observation) wideningClusters(d gate.Decision) dispatch.Clusters {
	clusters := dispatch.Clusters{WithRoom: d.Order, Usable: o.nominableClusters()}
	if !o.decides() || o.phase == PhaseEvictionStuck {
		clusters.Unknown, clusters.MayHoldCopy = slices.Clone(o.workers.connected), slices.Clone(o.workers.connected)
	}
	for _, v := range d.Verdicts {
		if v.Rejection.MayHoldCopy() {
			clusters.MayHoldCopy = append(clusters.MayHoldCopy, v.Cluster)
		}
		if v.Rejection.IsRoomUnknown() {
			clusters.Unknown = append(clusters.Unknown, v.Cluster)
		}
	}
	return clusters
}

// nominableClusters are the connected clusters without those that are about to leave the
// MultiKueueConfig, where a copy would stay for ever, and without the one that the workload left for a
// waiting one. A repair may need even that.
func (o *observation) nominableClusters() []string {
	clusters := slices.DeleteFunc(slices.Clone(o.workers.connected), o.isLeaving)
	if others := o.withoutLeft(clusters); len(others) > 0 || o.phase != PhaseEvictionStuck {
		return others
	}
	return clusters
}

// withoutLeft returns the clusters without the one that the workload left for a waiting one.
func (o *observation) withoutLeft(clusters []string) []string {
	left, _ := o.record.LeftCluster(o.now)
	return slices.DeleteFunc(slices.Clone(clusters), func(c string) bool { return c == left })
}

// isLeaving reports whether a cluster is about to leave the MultiKueueConfig. A cluster that the
// workload is nominated to does not leave.
func (o *observation) isLeaving(cluster string) bool {
	return !slices.Contains(o.wl.Status.NominatedClusterNames, cluster) &&
		slices.ContainsFunc(o.gate.Clusters, func(c registry.Cluster) bool { return c.Name == cluster && c.Leaving })
}

// isOverdue reports whether the nomination lasted for notAdmittedAfterSeconds.
func (o *observation) isOverdue() bool {
	limit := timing.Seconds(o.gate.Spec.NotAdmittedAfterSeconds, timing.DefaultNotAdmittedAfter)
	return o.phase == PhaseNominated && o.gateKnown && o.record.IsOverdue(o.pace(), limit, o.now)
}

// stepRequeue returns a workload that no cluster admits to its queue. Kueue removes its copies,
// and the gate decides again with what the metrics show then.
func (o *observation) stepRequeue() step {
	message := fmt.Sprintf("%s has not admitted it within %s; it returns to its queue",
		strings.Join(o.wl.Status.NominatedClusterNames, ", "), o.now.Sub(o.record.NominatedAt).Round(time.Second))
	return step{requeued: true, writes: o.requeue("NotAdmitted", message)}
}

// mustWithdraw reports whether the nomination is of quota that the workload has lost, and the gate
// would not make it now. MultiKueue acts on it as soon as the workload reserves quota again.
//  1. A repair nominates clusters whether they have room or not. The eviction then completes.
//  2. A queue that is stopped takes the quota of the workloads that no cluster has admitted yet.
//     Their checks and nominations stay.
func (o *observation) mustWithdraw() bool {
	nominated := o.wl.Status.NominatedClusterNames
	if o.record.IsOutlived(nominated, o.quotaReservedAt()) {
		return true
	}
	if !o.isOfLostQuota() || len(o.record.Foreign(nominated)) > 0 {
		return false
	}
	order := o.decision(o.record.Attempt + 1).Order
	return slices.ContainsFunc(nominated, func(c string) bool { return !slices.Contains(order, c) })
}

// isOfLostQuota reports whether check and nomination are of quota that the workload has lost without
// an eviction, which would have reset both.
func (o *observation) isOfLostQuota() bool {
	return !o.record.IsCurrent(o.quotaReservedAt()) && o.check().LastTransitionTime.Time.Before(o.quotaReservedAt())
}

// stepWithdraw returns a workload to its queue. The eviction resets checks and nominations, and the
// gate decides.
func (o *observation) stepWithdraw() step {
	reason, cause := "QuotaLost", "for quota that it has lost"
	if o.record.Repair {
		reason, cause = "EvictionRepaired", "for an eviction that is complete"
	}
	message := fmt.Sprintf("the nomination of %s was %s; it returns to its queue", strings.Join(o.wl.Status.NominatedClusterNames, ", "), cause)
	return step{writes: o.requeue(reason, message)}
}

// requeue deactivates the workload for a moment, so that Kueue evicts it.
func (o *observation) requeue(reason, message string) []write {
	inactive := false
	return []write{{
		record: &recordWrite{record: o.record.Requeued(reason, o.now), active: &inactive},
		event:  &notice{warning: true, reason: "Requeued", message: gate.Truncate(message)},
	}}
}

// stepAdopt records nominations that the present attempt did not make, but another component.
func (o *observation) stepAdopt() step {
	nominated := o.wl.Status.NominatedClusterNames
	record := o.record.Adopt(nominated, o.quotaReservedAt(), o.now)
	s := step{writes: []write{{record: &recordWrite{record: record}}}, requeueAfter: o.widenAfter()}
	if o.decides() {
		s.reservation = o.reserve(nominated, o.decision(record.Attempt))
	}
	return s
}

// stepNominateAll serves a MultiKueue workload without a check of ours as Kueue's default
// dispatcher would: it nominates every connected cluster of the configuration.
func (o *observation) stepNominateAll() step {
	nominated := o.wl.Status.NominatedClusterNames
	if !kueuestate.AcceptsCheckUpdate(o.wl) || !kueuestate.WantsNomination(o.wl, o.multiKueue) || !kueuestate.OtherChecksReady(o.wl, o.multiKueue) {
		return step{}
	}
	clusters := o.everyCluster()
	if len(clusters) == len(nominated) {
		return step{}
	}
	return step{writes: o.nominate(clusters, nil, string(dispatch.StageAll), "no gate decides this queue, so every connected cluster is nominated")}
}

// stepAwaitEviction looks again when Kueue should have completed the eviction.
func (o *observation) stepAwaitEviction() step {
	_, remaining := kueuestate.IsEvictionStuck(o.wl, o.multiKueue, o.evictionLag, o.now)
	return step{requeueAfter: remaining}
}

// stepRepairEviction completes an eviction that waits for a cluster.
//  1. The remote copy vanished while the job ran.
//  2. Kueue evicts the workload but keeps its quota until a cluster admits another copy.
//  3. MultiKueue creates a copy only after every other check is Ready and a cluster is nominated.
//  4. The gate sets its check Ready, and those for trials, which try no evicted job. Then it
//     nominates.
func (o *observation) stepRepairEviction() step {
	s := step{requeueAfter: timing.EvictionGrace}
	ours := slices.Concat(o.checks, o.trialChecks)
	if len(o.workers.connected) == 0 || !kueuestate.OtherChecksReady(o.wl, append(slices.Clone(ours), o.multiKueue)...) {
		return s
	}
	const message = "the remote copy is gone and the eviction can't complete without a nomination"
	if !kueuestate.OtherChecksReady(o.wl, o.multiKueue) {
		s.writes = []write{{check: &checkWrite{names: ours, decision: gate.Decision{State: gate.Ready, Reason: reasonEvictionRepair, Message: message}}}}
		return s
	}
	if len(o.wl.Status.NominatedClusterNames) > 0 {
		return o.stepWiden()
	}
	d := o.decision(o.record.Attempt + 1)
	clusters := o.repairList(d.Order)
	if o.decides() {
		s.reservation = o.reserve(clusters, d)
	}
	record := o.record.BeginRepair(clusters, o.quotaReservedAt(), message, o.now)
	s.writes = o.nominate(clusters, &record, reasonEvictionRepair, message)
	return s
}

// repairList is where a repair nominates. The best cluster with room comes first. Otherwise room
// does not matter, because the quota must not depend on it: every cluster that was ever
// nominated, or else every connected one. stepWithdraw ends the nomination, but MultiKueue may create a
// copy before: the cluster that the workload left for a waiting one comes last.
func (o *observation) repairList(withRoom []string) []string {
	if len(withRoom) > 0 {
		return withRoom[:1]
	}
	known := slices.DeleteFunc(o.withoutLeft(o.record.EverNominated), func(c string) bool { return !o.workers.isConnected(c) })
	if len(known) > 0 {
		return known
	}
	if others := o.withoutLeft(o.everyCluster()); len(others) > 0 {
		return others
	}
	return o.everyCluster()
}

// everyCluster are the nominated clusters and all connected ones, whether they have room or not.
func (o *observation) everyCluster() []string {
	return dispatch.Record{}.WidenedList(dispatch.StageAll, o.wl.Status.NominatedClusterNames,
		dispatch.Clusters{Unknown: o.workers.connected, Usable: o.workers.connected}, dispatch.Pace{})
}
