package lifecycle

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
func (o *Situation) renominationList() []string {
	nominated := o.Workload.Status.NominatedClusterNames
	revoked := o.Record.Revoked(nominated, o.History.NominatedSeen)
	return dispatch.Record{EverNominated: revoked}.WidenedList(dispatch.StageHeal, nominated, dispatch.Clusters{MayHoldCopy: revoked, Usable: o.MultiKueue.Connected}, dispatch.Pace{})
}

// stepRenominate restores the nominations that another component removed.
func (o *Situation) stepRenominate() Step {
	clusters, nominated := o.renominationList(), o.Workload.Status.NominatedClusterNames
	message := "another component removed the nomination of " + strings.Join(clusters[len(nominated):], ", ")
	record := o.Record.Widen(clusters, message, o.Now)
	return Step{
		Writes:       o.Nominate(clusters, &record, ReasonNominatedAgain, message),
		Conflict:     &conflict{Evidence: fmt.Sprintf("%s: %s", o.Key, message), At: o.Now},
		RequeueAfter: timing.DefaultWidenAfter,
	}
}

// stepWiden looks after a nomination that no cluster has admitted yet. Without a gate the
// default times apply, and where the workload fits is not known.
func (o *Situation) stepWiden() Step {
	s := Step{}
	if o.Gate.Exists && !o.Gate.Known {
		s.RequeueAfter = timing.DefaultWidenAfter
		return s
	}
	nominated := o.Workload.Status.NominatedClusterNames
	if PhaseOf(o) == PhaseNominated && o.mustWithdraw() {
		return o.stepWithdraw()
	}
	if !o.Record.IsCurrent(o.QuotaReservedAt()) || len(o.Record.Foreign(nominated)) > 0 {
		return o.stepAdopt()
	}
	if o.isOverdue() {
		return o.stepRequeue()
	}
	stage, after := o.Record.Stage(o.Pace(), o.Now)
	s.RequeueAfter = after
	if stage == dispatch.StageWait {
		return s
	}
	isNews := o.History.LateAttempt < o.Record.Attempt
	if len(o.Room.HoldingOn) > 0 {
		if isNews {
			s.LateAttempt, s.Event = o.Record.Attempt, &Notice{Warning: true, Reason: "AdmissionNotRecorded", Message: gate.Truncate(
				"its pods hold devices on " + strings.Join(o.Room.HoldingOn, ", ") + ", but Kueue has not recorded that the cluster admitted it; other clusters are not nominated yet")}
		}
		return s
	}
	if isNews {
		s.LateAttempt, s.Mispredicted = o.Record.Attempt, o.Gate.Known
	}
	d := o.Decision(o.Record.Attempt)
	widened := o.Record.WidenedList(stage, nominated, o.wideningClusters(d), o.Pace())
	if o.Decides() {
		s.Reservation = o.Reserve(widened, d)
	}
	message := fmt.Sprintf("%s has not admitted it within %s; check that the worker has the queue and quota",
		strings.Join(nominated, ", "), o.Now.Sub(o.Record.NominatedAt).Round(time.Second))
	if len(widened) == len(nominated) {
		if isNews {
			s.Event = &Notice{Warning: true, Reason: "NotAdmitted", Message: gate.Truncate(message + "; no other cluster is known to have room")}
		}
		return s
	}
	message += "; now also " + strings.Join(widened[len(nominated):], ", ")
	record := o.Record.Widen(widened, message, o.Now)
	s.Writes = o.Nominate(widened, &record, string(stage), message)
	return s
}

// isWideningDue reports whether the nomination has lasted for so long that other clusters are
// nominated, too, unless the workload's pods hold devices on a nominated one: MultiKueue starts the
// job before it writes on the hub which cluster admitted the workload. The last stage does not
// wait for that.
func (o *Situation) IsWideningDue() bool {
	stage, _ := o.Record.Stage(o.Pace(), o.Now)
	return PhaseOf(o) == PhaseNominated && (stage == dispatch.StageWiden || stage == dispatch.StageHeal)
}

func (o *Situation) Pace() dispatch.Pace {
	return dispatch.Pace{Widen: o.Gate.Spec.Widen, Lag: o.MultiKueue.Lag}
}

// wideningClusters are the clusters for further nominations under a decision. If the gate can't
// decide, nothing is known of the room of any cluster. A stuck eviction needs some cluster, and
// the quota that it releases must not depend on room.
func (o *Situation) wideningClusters(d gate.Decision) dispatch.Clusters {
	clusters := dispatch.Clusters{WithRoom: d.Order, Usable: o.nominableClusters()}
	if !o.Decides() || PhaseOf(o) == PhaseEvictionStuck {
		clusters.Unknown, clusters.MayHoldCopy = slices.Clone(o.MultiKueue.Connected), slices.Clone(o.MultiKueue.Connected)
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
func (o *Situation) nominableClusters() []string {
	clusters := slices.DeleteFunc(slices.Clone(o.MultiKueue.Connected), o.isLeaving)
	if others := o.withoutLeft(clusters); len(others) > 0 || PhaseOf(o) != PhaseEvictionStuck {
		return others
	}
	return clusters
}

// withoutLeft returns the clusters without the one that the workload left for a waiting one.
func (o *Situation) withoutLeft(clusters []string) []string {
	left, _ := o.Record.LeftCluster(o.Now)
	return slices.DeleteFunc(slices.Clone(clusters), func(c string) bool { return c == left })
}

// isLeaving reports whether a cluster is about to leave the MultiKueueConfig. A cluster that the
// workload is nominated to does not leave.
func (o *Situation) isLeaving(cluster string) bool {
	return !slices.Contains(o.Workload.Status.NominatedClusterNames, cluster) &&
		slices.ContainsFunc(o.Gate.Clusters, func(c registry.Cluster) bool { return c.Name == cluster && c.Leaving })
}

// isOverdue reports whether the nomination lasted for notAdmittedAfterSeconds.
func (o *Situation) isOverdue() bool {
	limit := timing.Seconds(o.Gate.Spec.NotAdmittedAfterSeconds, timing.DefaultNotAdmittedAfter)
	return PhaseOf(o) == PhaseNominated && o.Gate.Known && o.Record.IsOverdue(o.Pace(), limit, o.Now)
}

// stepRequeue returns a workload that no cluster admits to its queue. Kueue removes its copies,
// and the gate decides again with what the metrics show then.
func (o *Situation) stepRequeue() Step {
	message := fmt.Sprintf("%s has not admitted it within %s; it returns to its queue",
		strings.Join(o.Workload.Status.NominatedClusterNames, ", "), o.Now.Sub(o.Record.NominatedAt).Round(time.Second))
	return Step{Requeued: true, Writes: o.requeue("NotAdmitted", message)}
}

// mustWithdraw reports whether the nomination is of quota that the workload has lost, and the gate
// would not make it now. MultiKueue acts on it as soon as the workload reserves quota again.
//  1. A repair nominates clusters whether they have room or not. The eviction then completes.
//  2. A queue that is stopped takes the quota of the workloads that no cluster has admitted yet.
//     Their checks and nominations stay.
func (o *Situation) mustWithdraw() bool {
	nominated := o.Workload.Status.NominatedClusterNames
	if o.Record.IsOutlived(nominated, o.QuotaReservedAt()) {
		return true
	}
	if !o.isOfLostQuota() || len(o.Record.Foreign(nominated)) > 0 {
		return false
	}
	order := o.Decision(o.Record.Attempt + 1).Order
	return slices.ContainsFunc(nominated, func(c string) bool { return !slices.Contains(order, c) })
}

// isOfLostQuota reports whether check and nomination are of quota that the workload has lost without
// an eviction, which would have reset both.
func (o *Situation) isOfLostQuota() bool {
	return !o.Record.IsCurrent(o.QuotaReservedAt()) && o.Check().LastTransitionTime.Time.Before(o.QuotaReservedAt())
}

// stepWithdraw returns a workload to its queue. The eviction resets checks and nominations, and the
// gate decides.
func (o *Situation) stepWithdraw() Step {
	reason, cause := "QuotaLost", "for quota that it has lost"
	if o.Record.Repair {
		reason, cause = "EvictionRepaired", "for an eviction that is complete"
	}
	message := fmt.Sprintf("the nomination of %s was %s; it returns to its queue", strings.Join(o.Workload.Status.NominatedClusterNames, ", "), cause)
	return Step{Writes: o.requeue(reason, message)}
}

// requeue deactivates the workload for a moment, so that Kueue evicts it.
func (o *Situation) requeue(reason, message string) []Write {
	inactive := false
	return []Write{{
		Record: &RecordWrite{Record: o.Record.Requeued(reason, o.Now), Active: &inactive},
		Event:  &Notice{Warning: true, Reason: "Requeued", Message: gate.Truncate(message)},
	}}
}

// stepAdopt records nominations that the present attempt did not make, but another component.
func (o *Situation) stepAdopt() Step {
	nominated := o.Workload.Status.NominatedClusterNames
	record := o.Record.Adopt(nominated, o.QuotaReservedAt(), o.Now)
	s := Step{Writes: []Write{{Record: &RecordWrite{Record: record}}}, RequeueAfter: o.widenAfter()}
	if o.Decides() {
		s.Reservation = o.Reserve(nominated, o.Decision(record.Attempt))
	}
	return s
}

// stepNominateAll serves a MultiKueue workload without a check of ours as Kueue's default
// dispatcher would: it nominates every connected cluster of the configuration.
func (o *Situation) stepNominateAll() Step {
	nominated := o.Workload.Status.NominatedClusterNames
	if !kueuestate.AcceptsCheckUpdate(o.Workload) || !kueuestate.WantsNomination(o.Workload, o.Checks.MultiKueue) || !kueuestate.OtherChecksReady(o.Workload, o.Checks.MultiKueue) {
		return Step{}
	}
	clusters := o.everyCluster()
	if len(clusters) == len(nominated) {
		return Step{}
	}
	return Step{Writes: o.Nominate(clusters, nil, string(dispatch.StageAll), "no gate decides this queue, so every connected cluster is nominated")}
}

// stepAwaitEviction looks again when Kueue should have completed the eviction.
func (o *Situation) stepAwaitEviction() Step {
	_, remaining := kueuestate.IsEvictionStuck(o.Workload, o.Checks.MultiKueue, o.MultiKueue.EvictionLag, o.Now)
	return Step{RequeueAfter: remaining}
}

// stepRepairEviction completes an eviction that waits for a cluster.
//  1. The remote copy vanished while the job ran.
//  2. Kueue evicts the workload but keeps its quota until a cluster admits another copy.
//  3. MultiKueue creates a copy only after every other check is Ready and a cluster is nominated.
//  4. The gate sets its check Ready, and those for trials, which try no evicted job. Then it
//     nominates.
func (o *Situation) stepRepairEviction() Step {
	s := Step{RequeueAfter: timing.EvictionGrace}
	ours := slices.Concat(o.Checks.Own, o.Checks.Trials)
	if len(o.MultiKueue.Connected) == 0 || !kueuestate.OtherChecksReady(o.Workload, append(slices.Clone(ours), o.Checks.MultiKueue)...) {
		return s
	}
	const message = "the remote copy is gone and the eviction can't complete without a nomination"
	if !kueuestate.OtherChecksReady(o.Workload, o.Checks.MultiKueue) {
		s.Writes = []Write{{Check: &CheckWrite{Names: ours, Decision: gate.Decision{State: gate.Ready, Reason: ReasonEvictionRepair, Message: message}}}}
		return s
	}
	if len(o.Workload.Status.NominatedClusterNames) > 0 {
		return o.stepWiden()
	}
	d := o.Decision(o.Record.Attempt + 1)
	clusters := o.repairList(d.Order)
	if o.Decides() {
		s.Reservation = o.Reserve(clusters, d)
	}
	record := o.Record.BeginRepair(clusters, o.QuotaReservedAt(), message, o.Now)
	s.Writes = o.Nominate(clusters, &record, ReasonEvictionRepair, message)
	return s
}

// repairList is where a repair nominates. The best cluster with room comes first. Otherwise room
// does not matter, because the quota must not depend on it: every cluster that was ever
// nominated, or else every connected one. stepWithdraw ends the nomination, but MultiKueue may create a
// copy before: the cluster that the workload left for a waiting one comes last.
func (o *Situation) repairList(withRoom []string) []string {
	if len(withRoom) > 0 {
		return withRoom[:1]
	}
	known := slices.DeleteFunc(o.withoutLeft(o.Record.EverNominated), func(c string) bool { return !o.MultiKueue.isConnected(c) })
	if len(known) > 0 {
		return known
	}
	if others := o.withoutLeft(o.everyCluster()); len(others) > 0 {
		return others
	}
	return o.everyCluster()
}

// everyCluster are the nominated clusters and all connected ones, whether they have room or not.
func (o *Situation) everyCluster() []string {
	return dispatch.Record{}.WidenedList(dispatch.StageAll, o.Workload.Status.NominatedClusterNames,
		dispatch.Clusters{Unknown: o.MultiKueue.Connected, Usable: o.MultiKueue.Connected}, dispatch.Pace{})
}
