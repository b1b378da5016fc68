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
	"plimsoll.dev/plimsoll/operator/internal/admission/registry"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// stepSleep waits until the pause of a yielded workload is over. The pause does not end before Kueue
// has taken the quota, which is a change of the workload: Kueue may begin the eviction late, such as
// after a restart, and would not evict a workload that is active again.
func (o *Situation) stepSleep() step {
	return step{requeueAfter: max(0, o.returnsAt().Sub(o.Now))}
}

// returnsAt is when a yielded or reclaimed workload returns. The pause begins when the workload has no
// quota: other workloads need that time to get it. Pods of a reclaimed workload may still run then,
// because Kueue deletes the copy of a MultiKueue workload in the background, so that the pause is at
// least their grace period.
func (o *Situation) returnsAt() time.Time {
	at := o.Record.SleepsUntil
	c := apimeta.FindStatusCondition(o.Workload.Status.Conditions, kueue.WorkloadQuotaReserved)
	if c != nil && c.Status == metav1.ConditionFalse {
		if later := c.LastTransitionTime.Add(o.Record.Pause()); later.After(at) {
			at = later
		}
	}
	return at
}

// stepReturn activates a yielded workload. If a user activated it already, only the record
// changes.
func (o *Situation) stepReturn() step {
	w := recordWrite{record: o.Record.Woken()}
	if !o.isActive() {
		active := true
		w.active = &active
	}
	return step{writes: []write{{record: &w}}}
}

// stepResetRecord replaces an annotation that does not parse. What is nominated begins a new
// attempt.
func (o *Situation) stepResetRecord() step {
	const reason = "BadAnnotation"
	record := dispatch.Record{}
	if nominated := o.Workload.Status.NominatedClusterNames; len(nominated) > 0 {
		record = record.Begin(nominated, o.quotaReservedAt(), reason, o.Now)
	}
	return step{writes: []write{{
		record: &recordWrite{record: record},
		event:  &notice{warning: true, reason: reason, message: gate.Truncate(o.Record.Err.Error() + "; the annotation was reset")},
	}}}
}

// stepReportTooManyChecks blocks the Pending checks of a queue with several checks of ours.
// A check that was Ready before the others were added stays Ready.
func (o *Situation) stepReportTooManyChecks() step {
	pending := o.pendingChecks()
	if len(pending) == 0 {
		return step{}
	}
	message := gate.TooManyChecksMessage(o.Checks.Own)
	s := step{wait: o.waitWithoutResults()}
	if slices.ContainsFunc(pending, func(name string) bool { return kueuestate.FindCheck(o.Workload, name).Message != message }) {
		s.writes = o.block(pending, message)
	}
	return s
}

// waitWithoutResults is the entry of a workload that no decision can be made for.
func (o *Situation) waitWithoutResults() *waitqueue.Entry {
	e := o.waitEntry(registry.QueryKey{Gate: o.Gate.Name})
	return &e
}

// stepReportGateUnknown blocks a workload whose gate does not exist. A gate that merely was
// not read yet is no news: the workload keeps its place in the gate's order.
func (o *Situation) stepReportGateUnknown() step {
	if o.Gate.Exists {
		e := o.waitEntry(o.Room.Key)
		return step{wait: &e}
	}
	s := step{wait: o.waitWithoutResults()}
	message := "PlacementGate " + o.Gate.Name + " does not exist"
	if o.Gate.Name == "" {
		s.wait, message = nil, "AdmissionCheck "+o.Checks.Own[0]+" names no PlacementGate: correct its spec.parameters"
	}
	if o.check().Message != message {
		s.writes = o.block(o.Checks.Own, message)
	}
	return s
}

// block sets checks Pending because no gate decides. That time does not count as time
// without room.
func (o *Situation) block(checks []string, message string) []write {
	writes := o.writeClock(o.Record.CountUnplaced(false, o.waitingSince(checks...), o.Now))
	d := gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: message}
	return append(writes, write{
		check: &checkWrite{names: checks, decision: d, rememberReason: true},
		event: &notice{warning: true, reason: d.Reason, message: message},
	})
}

// stepWatchBuiltinDispatcher reports, on the gate and once on the workload, that Kueue's
// dispatcher nominates nothing although the operator leaves nominations to it.
func (o *Situation) stepWatchBuiltinDispatcher() step {
	s := step{}
	since := kueuestate.UnnominatedSince(o.Workload, o.Checks.MultiKueue)
	if len(o.MultiKueue.Connected) == 0 || since.IsZero() {
		return s
	}
	if remaining := timing.DispatchGrace - o.Now.Sub(since); remaining > 0 {
		s.requeueAfter = remaining
		return s
	}
	s.requeueAfter = timing.DispatchGrace
	at := since.UTC().Format(time.TimeOnly) + " UTC"
	// The evidence of one workload stands for all: each change is a write of the gate's status.
	evidence := o.Gate.Conflict
	if evidence == "" {
		evidence = fmt.Sprintf("%s has had no nominated cluster since %s", o.Key, at)
	}
	s.conflict = &conflict{evidence: evidence, at: o.Now}
	if attempt := 1 + kueuestate.CountEvictions(o.Workload); o.History.lateAttempt < attempt {
		s.lateAttempt = attempt
		s.event = &notice{warning: true, reason: "NotNominated", message: "no dispatcher has nominated a cluster since " + at +
			"; check that multiKueue.dispatcherName in Kueue's configuration names one of Kueue's own dispatchers"}
	}
	return s
}

// conflict returns evidence that another dispatcher nominated clusters. The evidence of the
// step itself comes first. Nominations from before the gate's decision are no evidence: the
// check may be new on the queue.
func (o *Situation) conflict(ofStep *conflict) *conflict {
	if ofStep != nil || len(o.Checks.Own) == 0 || !o.MultiKueue.Nominates || o.Checks.MultiKueue == "" || o.Record.Err != nil {
		return ofStep
	}
	if o.check().State != kueue.CheckStateReady || kueuestate.IsPinnedByKueue(o.Workload) || o.Job.Cluster != "" {
		return nil
	}
	clusters, at := o.Workload.Status.NominatedClusterNames, o.Now
	foreign := o.Record.Foreign(clusters)
	switch {
	case o.Workload.Status.ClusterName != nil:
		foreign, at = o.Record.Foreign([]string{*o.Workload.Status.ClusterName}), o.admittedAt(o.Now)
		if at.Before(o.check().LastTransitionTime.Time) { // it ran before the gate's decision
			return nil
		}
	case !o.Record.IsCurrent(o.quotaReservedAt()) && !o.Record.Repair && !o.isOfLostQuota(): // the operator records before it nominates
		foreign = clusters
	}
	if len(foreign) == 0 {
		return nil
	}
	return &conflict{evidence: fmt.Sprintf("%s was nominated to %s by another dispatcher", o.Key, strings.Join(foreign, ", ")), at: at}
}
