package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// renominationList is the list of nominations with those restored that another component
// removed. A cluster that was revoked after it admitted the workload runs the copy, and
// Kueue can't record that until the cluster is nominated again.
func renominationList(s *Situation) []string {
	nominated := s.Workload.Status.NominatedClusterNames
	revoked := s.Record.Revoked(nominated, s.History.NominatedSeen)
	return dispatch.WidenedList(dispatch.StageAll, nominated, dispatch.Clusters{Unknown: revoked, Usable: s.MultiKueue.Connected})
}

// stepRenominate restores the nominations that another component removed.
func stepRenominate(s *Situation) Step {
	clusters, nominated := renominationList(s), s.Workload.Status.NominatedClusterNames
	message := "another component removed the nomination of " + strings.Join(clusters[len(nominated):], ", ")
	record := s.Record.Widen(clusters, message, s.Now)
	return Step{
		Writes:       Nominate(clusters, &record, ReasonNominatedAgain, message),
		Conflict:     &conflict{Evidence: fmt.Sprintf("%s: %s", s.Key, message), At: s.Now},
		RequeueAfter: timing.DefaultWidenAfter,
	}
}

// stepWiden looks after a nomination that no cluster has admitted yet. Without a gate the
// default times apply, and where the workload fits is not known.
func stepWiden(s *Situation) Step {
	next := Step{}
	if s.Gate.Exists && !s.Gate.Known {
		next.RequeueAfter = timing.DefaultWidenAfter
		return next
	}
	nominated := s.Workload.Status.NominatedClusterNames
	if PhaseOf(s) == PhaseNominated && mustWithdraw(s) {
		return stepWithdraw(s)
	}
	if !s.Record.IsCurrent(kueuestate.QuotaReservedAt(s.Workload)) || len(s.Record.Foreign(nominated)) > 0 {
		return stepAdopt(s)
	}
	if isOverdue(s) {
		return stepRequeue(s)
	}
	stage, after := s.Record.Stage(s.Gate.Pace(s.MultiKueue.Lag), s.Now)
	next.RequeueAfter = after
	if stage == dispatch.StageWait {
		return next
	}
	isNews := s.History.LateAttempt < s.Record.Attempt
	if len(s.Room.HoldingOn) > 0 {
		if isNews {
			next.LateAttempt, next.Event = s.Record.Attempt, &Notice{Warning: true, Reason: "AdmissionNotRecorded", Message: gate.Truncate(
				"its pods hold devices on " + strings.Join(s.Room.HoldingOn, ", ") + ", but Kueue has not recorded that the cluster admitted it; other clusters are not nominated yet")}
		}
		return next
	}
	if isNews {
		next.LateAttempt, next.Mispredicted = s.Record.Attempt, s.Gate.Known
	}
	d := s.Decision(s.Record.Attempt)
	widened := dispatch.WidenedList(stage, nominated, wideningClusters(s, d))
	if s.Decides() {
		next.Reservation = Reserve(s, widened, d)
	}
	message := fmt.Sprintf("%s has not admitted it within %s; check that the worker has the queue and quota",
		strings.Join(nominated, ", "), s.Now.Sub(s.Record.NominatedAt).Round(time.Second))
	if len(widened) == len(nominated) {
		if isNews {
			next.Event = &Notice{Warning: true, Reason: "NotAdmitted", Message: gate.Truncate(message + "; no other cluster is known to have room")}
		}
		return next
	}
	message += "; now also " + strings.Join(widened[len(nominated):], ", ")
	record := s.Record.Widen(widened, message, s.Now)
	next.Writes = Nominate(widened, &record, string(stage), message)
	return next
}

// IsWideningDue reports whether the nomination has lasted for so long that other clusters are
// nominated, too, unless the workload's pods hold devices on a nominated one: MultiKueue starts the
// job before it writes on the hub which cluster admitted the workload. The last stage does not
// wait for that.
func (s *Situation) IsWideningDue() bool {
	stage, _ := s.Record.Stage(s.Gate.Pace(s.MultiKueue.Lag), s.Now)
	return PhaseOf(s) == PhaseNominated && stage == dispatch.StageWiden
}

// widenAfter is the time after which other clusters are nominated, too.
func (g Gate) widenAfter() time.Duration {
	return timing.Seconds(g.Spec.Advanced.WidenAfterSeconds, timing.DefaultWidenAfter)
}

// Pace is how fast a nomination is widened. lag is how long MultiKueue takes to act on it.
func (g Gate) Pace(lag time.Duration) dispatch.Pace {
	return dispatch.Pace{WidenAfterSeconds: g.Spec.Advanced.WidenAfterSeconds, Lag: lag}
}

// wideningClusters are the clusters for further nominations under a decision. If the gate can't
// decide, nothing is known of the room of any cluster. A stuck eviction needs some cluster, and
// the quota that it releases must not depend on room.
func wideningClusters(s *Situation, d gate.Decision) dispatch.Clusters {
	clusters := dispatch.Clusters{WithRoom: d.Order, Usable: nominableClusters(s)}
	if !s.Decides() || PhaseOf(s) == PhaseEvictionStuck {
		clusters.Unknown = slices.Clone(s.MultiKueue.Connected)
	}
	for _, v := range d.Verdicts {
		if v.Rejection.IsRoomUnknown() {
			clusters.Unknown = append(clusters.Unknown, v.Cluster)
		}
	}
	return clusters
}

// nominableClusters are the connected clusters without those that are about to leave the
// MultiKueueConfig, where a copy would stay for ever, and without those that the workload avoids. A repair
// may need even these.
func nominableClusters(s *Situation) []string {
	nominated := s.Workload.Status.NominatedClusterNames
	clusters := slices.DeleteFunc(slices.Clone(s.MultiKueue.Connected), func(c string) bool { return s.Gate.isLeaving(c, nominated) })
	if others := s.Record.withoutAvoided(clusters, s.Now); len(others) > 0 || PhaseOf(s) != PhaseEvictionStuck {
		return others
	}
	return clusters
}

// withoutAvoided returns the clusters without those that the workload avoids.
func (r Record) withoutAvoided(clusters []string, now time.Time) []string {
	avoided := r.Avoided(now)
	return slices.DeleteFunc(slices.Clone(clusters), func(c string) bool {
		return slices.ContainsFunc(avoided, func(p dispatch.Preference) bool { return p.Cluster == c })
	})
}

// isLeaving reports whether a cluster is about to leave the MultiKueueConfig. A cluster that the
// workload is nominated to does not leave.
func (g Gate) isLeaving(cluster string, nominated []string) bool {
	return !slices.Contains(nominated, cluster) &&
		slices.ContainsFunc(g.Clusters, func(c gatestate.Cluster) bool { return c.Name == cluster && c.Leaving })
}

// isOverdue reports whether the nomination lasted for notAdmittedAfterSeconds.
func isOverdue(s *Situation) bool {
	limit := timing.Seconds(s.Gate.Spec.Advanced.NotAdmittedAfterSeconds, timing.DefaultNotAdmittedAfter)
	return PhaseOf(s) == PhaseNominated && s.Gate.Known && s.Record.IsOverdue(s.Gate.Pace(s.MultiKueue.Lag), limit, s.Now)
}

// stepRequeue returns a workload that no cluster admits to its queue. Kueue removes its copies,
// and the gate decides again with what the metrics show then, and prefers other clusters.
func stepRequeue(s *Situation) Step {
	record := s.Record
	for _, c := range s.Workload.Status.NominatedClusterNames {
		record = record.avoidIfOther(c, "did not admit it", s.Now)
	}
	message := fmt.Sprintf("%s has not admitted it within %s; it returns to its queue",
		strings.Join(s.Workload.Status.NominatedClusterNames, ", "), s.Now.Sub(s.Record.NominatedAt).Round(time.Second))
	return Step{Requeued: true, Writes: record.requeue("NotAdmitted", message, s.Now)}
}

// mustWithdraw reports whether the nomination is of quota that the workload has lost, and the gate
// would not make it now. MultiKueue acts on it as soon as the workload reserves quota again.
//  1. A repair nominates clusters whether they have room or not. The eviction then completes.
//  2. A queue that is stopped takes the quota of the workloads that no cluster has admitted yet.
//     Their checks and nominations stay.
func mustWithdraw(s *Situation) bool {
	nominated := s.Workload.Status.NominatedClusterNames
	if s.Record.IsOutlived(nominated, kueuestate.QuotaReservedAt(s.Workload)) {
		return true
	}
	if !isOfLostQuota(s) || len(s.Record.Foreign(nominated)) > 0 {
		return false
	}
	order := s.Decision(s.Record.Attempt + 1).Order
	return slices.ContainsFunc(nominated, func(c string) bool { return !slices.Contains(order, c) })
}

// isOfLostQuota reports whether check and nomination are of quota that the workload has lost without
// an eviction, which would have reset both.
func isOfLostQuota(s *Situation) bool {
	return !s.Record.IsCurrent(kueuestate.QuotaReservedAt(s.Workload)) && s.Check().LastTransitionTime.Time.Before(kueuestate.QuotaReservedAt(s.Workload))
}

// stepWithdraw returns a workload to its queue. The eviction resets checks and nominations, and the
// gate decides.
func stepWithdraw(s *Situation) Step {
	reason, cause := "QuotaLost", "for quota that it has lost"
	if s.Record.Repair {
		reason, cause = "EvictionRepaired", "for an eviction that is complete"
	}
	message := fmt.Sprintf("the nomination of %s was %s; it returns to its queue", strings.Join(s.Workload.Status.NominatedClusterNames, ", "), cause)
	return Step{Writes: s.Record.requeue(reason, message, s.Now)}
}

// requeue deactivates the workload for a moment, so that Kueue evicts it.
func (r Record) requeue(reason, message string, now time.Time) []Write {
	inactive := false
	return []Write{{
		Record: &RecordWrite{Record: r.Requeued(reason, now), Active: &inactive},
		Event:  &Notice{Warning: true, Reason: "Requeued", Message: gate.Truncate(message)},
	}}
}

// stepAdopt records nominations that the present attempt did not make, but another component.
func stepAdopt(s *Situation) Step {
	nominated := s.Workload.Status.NominatedClusterNames
	record := s.Record.Adopt(nominated, kueuestate.QuotaReservedAt(s.Workload), s.Now)
	next := Step{Writes: []Write{{Record: &RecordWrite{Record: record}}}, RequeueAfter: s.Gate.widenAfter()}
	if s.Decides() {
		next.Reservation = Reserve(s, nominated, s.Decision(record.Attempt))
	}
	return next
}

// stepNominateAll serves a MultiKueue workload without a check of ours as Kueue's default
// dispatcher would: it nominates every connected cluster of the configuration.
func stepNominateAll(s *Situation) Step {
	nominated := s.Workload.Status.NominatedClusterNames
	if !kueuestate.AcceptsCheckUpdate(s.Workload) || !kueuestate.WantsNomination(s.Workload, s.Checks.MultiKueue) || !kueuestate.OtherChecksReady(s.Workload, s.Checks.MultiKueue) {
		return Step{}
	}
	clusters := s.MultiKueue.everyCluster(nominated)
	if len(clusters) == len(nominated) {
		return Step{}
	}
	return Step{Writes: Nominate(clusters, nil, string(dispatch.StageAll), "no gate decides this queue, so every connected cluster is nominated")}
}

// stepAwaitEviction looks again when Kueue should have completed the eviction.
func stepAwaitEviction(s *Situation) Step {
	_, remaining := eviction(s)
	return Step{RequeueAfter: remaining}
}

// stepRepairEviction completes an eviction that waits for a cluster.
//  1. The remote copy vanished while the job ran.
//  2. Kueue evicts the workload but keeps its quota until a cluster admits another copy.
//  3. MultiKueue creates a copy only after every other check is Ready and a cluster is nominated.
//  4. The gate sets its check Ready. Then it nominates.
func stepRepairEviction(s *Situation) Step {
	next := Step{RequeueAfter: timing.EvictionGrace}
	if len(s.MultiKueue.Connected) == 0 || s.Checks.Awaited(s.Workload) != "" {
		return next
	}
	const message = "the remote copy is gone and the eviction can't complete without a nomination"
	if !kueuestate.OtherChecksReady(s.Workload, s.Checks.MultiKueue) {
		next.Writes = []Write{{Check: &CheckWrite{Names: s.Checks.Own, Decision: gate.Decision{State: gate.Ready, Reason: ReasonEvictionRepair, Message: message}}}}
		return next
	}
	if len(s.Workload.Status.NominatedClusterNames) > 0 {
		return stepWiden(s)
	}
	d := s.Decision(s.Record.Attempt + 1)
	clusters := repairList(s, d.Order)
	if s.Decides() {
		next.Reservation = Reserve(s, clusters, d)
	}
	record := s.Record.BeginRepair(clusters, kueuestate.QuotaReservedAt(s.Workload), message, s.Now)
	next.Writes = Nominate(clusters, &record, ReasonEvictionRepair, message)
	return next
}

// repairList is where a repair nominates. The best cluster with room comes first. Otherwise room
// does not matter, because the quota must not depend on it: every cluster that was ever
// nominated, or else every connected one. stepWithdraw ends the nomination, but MultiKueue may create a
// copy before: the clusters that the workload avoids come last.
func repairList(s *Situation, withRoom []string) []string {
	if len(withRoom) > 0 {
		return withRoom[:1]
	}
	known := slices.DeleteFunc(s.Record.withoutAvoided(s.Record.Sent(), s.Now), func(c string) bool { return !s.MultiKueue.isConnected(c) })
	if len(known) > 0 {
		return known
	}
	every := s.MultiKueue.everyCluster(s.Workload.Status.NominatedClusterNames)
	if others := s.Record.withoutAvoided(every, s.Now); len(others) > 0 {
		return others
	}
	return every
}

// everyCluster are the nominated clusters and all connected ones, whether they have room or not.
func (m MultiKueue) everyCluster(nominated []string) []string {
	return dispatch.WidenedList(dispatch.StageAll, nominated, dispatch.Clusters{Unknown: m.Connected, Usable: m.Connected})
}
