package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/querycache"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// stepSleep waits until the pause of a yielded workload is over. The pause does not end before Kueue
// has taken the quota, which is a change of the workload: Kueue may begin the eviction late, such as
// after a restart, and would not evict a workload that is active again.
func (o *observation) stepSleep() step {
	return step{requeueAfter: max(0, o.returnsAt().Sub(o.now))}
}

// returnsAt is when a yielded or reclaimed workload returns. The pause begins when the workload has no
// quota: other workloads need that time to get it. Pods of a reclaimed workload may still run then,
// because Kueue deletes the copy of a MultiKueue workload in the background, so that the pause is at
// least their grace period.
func (o *observation) returnsAt() time.Time {
	at := o.record.SleepsUntil
	c := apimeta.FindStatusCondition(o.wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	if c != nil && c.Status == metav1.ConditionFalse {
		if later := c.LastTransitionTime.Add(o.record.Pause()); later.After(at) {
			at = later
		}
	}
	return at
}

// stepReturn activates a yielded workload. If a user activated it already, only the record
// changes.
func (o *observation) stepReturn() step {
	w := recordWrite{record: o.record.Woken()}
	if !o.isActive() {
		active := true
		w.active = &active
	}
	return step{writes: []write{{record: &w}}}
}

// stepResetRecord replaces an annotation that does not parse. What is nominated begins a new
// attempt.
func (o *observation) stepResetRecord() step {
	const reason = "BadAnnotation"
	record := dispatch.Record{}
	if nominated := o.wl.Status.NominatedClusterNames; len(nominated) > 0 {
		record = record.Begin(nominated, o.quotaReservedAt(), reason, o.now)
	}
	return step{writes: []write{{
		record: &recordWrite{record: record},
		event:  &notice{warning: true, reason: reason, message: gate.Truncate(o.recordErr.Error() + "; the annotation was reset")},
	}}}
}

// stepReportTooManyChecks blocks the Pending checks of a queue with several checks of ours.
// A check that was Ready before the others were added stays Ready.
func (o *observation) stepReportTooManyChecks() step {
	pending := o.pendingChecks()
	if len(pending) == 0 {
		return step{}
	}
	message := gate.TooManyChecksMessage(o.checks)
	s := step{wait: o.waitWithoutResults()}
	if slices.ContainsFunc(pending, func(name string) bool { return kueuestate.FindCheck(o.wl, name).Message != message }) {
		s.writes = o.block(pending, message)
	}
	return s
}

// waitWithoutResults is the entry of a workload that no decision can be made for.
func (o *observation) waitWithoutResults() *waitqueue.Entry {
	e := o.waitEntry(querycache.Key{Gate: o.gateName})
	return &e
}

// stepReportGateUnknown blocks a workload whose gate does not exist. A gate that merely was
// not read yet is no news: the workload keeps its place in the gate's order.
func (o *observation) stepReportGateUnknown() step {
	if o.gateExists {
		e := o.waitEntry(o.queryKey)
		return step{wait: &e}
	}
	s := step{wait: o.waitWithoutResults()}
	message := "PlacementGate " + o.gateName + " does not exist"
	if o.gateName == "" {
		s.wait, message = nil, "AdmissionCheck "+o.checks[0]+" names no PlacementGate: correct its spec.parameters"
	}
	if o.check().Message != message {
		s.writes = o.block(o.checks, message)
	}
	return s
}

// block sets checks Pending because no gate decides. That time does not count as time
// without room.
func (o *observation) block(checks []string, message string) []write {
	writes := o.writeClock(o.record.CountUnplaced(false, o.waitingSince(checks...), o.now))
	d := gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: message}
	return append(writes, write{
		check: &checkWrite{names: checks, decision: d, rememberReason: true},
		event: &notice{warning: true, reason: d.Reason, message: message},
	})
}

// stepWatchBuiltinDispatcher reports, on the gate and once on the workload, that Kueue's
// dispatcher nominates nothing although the operator leaves nominations to it.
func (o *observation) stepWatchBuiltinDispatcher() step {
	s := step{}
	since := kueuestate.UnnominatedSince(o.wl, o.multiKueue)
	if len(o.workers.connected) == 0 || since.IsZero() {
		return s
	}
	if remaining := timing.DispatchGrace - o.now.Sub(since); remaining > 0 {
		s.requeueAfter = remaining
		return s
	}
	s.requeueAfter = timing.DispatchGrace
	at := since.UTC().Format(time.TimeOnly) + " UTC"
	// The evidence of one workload stands for all: each change is a write of the gate's status.
	evidence := o.conflictEvidence
	if evidence == "" {
		evidence = fmt.Sprintf("%s has had no nominated cluster since %s", o.key, at)
	}
	s.conflict = &conflict{evidence: evidence, at: o.now}
	if attempt := 1 + kueuestate.CountEvictions(o.wl); o.history.lateAttempt < attempt {
		s.lateAttempt = attempt
		s.event = &notice{warning: true, reason: "NotNominated", message: "no dispatcher has nominated a cluster since " + at +
			"; check that multiKueue.dispatcherName in Kueue's configuration names one of Kueue's own dispatchers"}
	}
	return s
}

// conflict returns evidence that another dispatcher nominated clusters. The evidence of the
// step itself comes first. Nominations from before the gate's decision are no evidence: the
// check may be new on the queue.
func (o *observation) conflict(ofStep *conflict) *conflict {
	if ofStep != nil || len(o.checks) == 0 || !o.nominates || o.multiKueue == "" || o.recordErr != nil {
		return ofStep
	}
	if o.check().State != kueue.CheckStateReady || kueuestate.IsPinnedByKueue(o.wl) || o.component.cluster != "" {
		return nil
	}
	clusters, at := o.wl.Status.NominatedClusterNames, o.now
	foreign := o.record.Foreign(clusters)
	switch {
	case o.wl.Status.ClusterName != nil:
		foreign, at = o.record.Foreign([]string{*o.wl.Status.ClusterName}), o.admittedAt(o.now)
		if at.Before(o.check().LastTransitionTime.Time) { // it ran before the gate's decision
			return nil
		}
	case !o.record.IsCurrent(o.quotaReservedAt()) && !o.record.Repair && !o.isOfLostQuota(): // the operator records before it nominates
		foreign = clusters
	}
	if len(foreign) == 0 {
		return nil
	}
	return &conflict{evidence: fmt.Sprintf("%s was nominated to %s by another dispatcher", o.key, strings.Join(foreign, ", ")), at: at}
}
