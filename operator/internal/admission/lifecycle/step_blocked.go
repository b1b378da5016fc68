package lifecycle

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
func (o *Situation) stepSleep() Step {
	return Step{RequeueAfter: max(0, o.returnsAt().Sub(o.Now))}
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
func (o *Situation) stepReturn() Step {
	w := RecordWrite{Record: o.Record.Woken()}
	if !o.isActive() {
		active := true
		w.Active = &active
	}
	return Step{Writes: []Write{{Record: &w}}}
}

// stepResetRecord replaces an annotation that does not parse. What is nominated begins a new
// attempt.
func (o *Situation) stepResetRecord() Step {
	const reason = "BadAnnotation"
	record := dispatch.Record{}
	if nominated := o.Workload.Status.NominatedClusterNames; len(nominated) > 0 {
		record = record.Begin(nominated, o.QuotaReservedAt(), reason, o.Now)
	}
	return Step{Writes: []Write{{
		Record: &RecordWrite{Record: record},
		Event:  &Notice{Warning: true, Reason: reason, Message: gate.Truncate(o.Record.Err.Error() + "; the annotation was reset")},
	}}}
}

// stepReportTooManyChecks blocks the Pending checks of a queue with several checks of ours.
// A check that was Ready before the others were added stays Ready.
func (o *Situation) stepReportTooManyChecks() Step {
	pending := o.pendingChecks()
	if len(pending) == 0 {
		return Step{}
	}
	message := gate.TooManyChecksMessage(o.Checks.Own)
	s := Step{Wait: o.waitWithoutResults()}
	if slices.ContainsFunc(pending, func(name string) bool { return kueuestate.FindCheck(o.Workload, name).Message != message }) {
		s.Writes = o.Block(pending, message)
	}
	return s
}

// waitWithoutResults is the entry of a workload that no decision can be made for.
func (o *Situation) waitWithoutResults() *waitqueue.Entry {
	e := o.WaitEntry(registry.QueryKey{Gate: o.Gate.Name})
	return &e
}

// stepReportGateUnknown blocks a workload whose gate does not exist. A gate that merely was
// not read yet is no news: the workload keeps its place in the gate's order.
func (o *Situation) stepReportGateUnknown() Step {
	if o.Gate.Exists {
		e := o.WaitEntry(o.Room.Key)
		return Step{Wait: &e}
	}
	s := Step{Wait: o.waitWithoutResults()}
	message := "PlacementGate " + o.Gate.Name + " does not exist"
	if o.Gate.Name == "" {
		s.Wait, message = nil, "AdmissionCheck "+o.Checks.Own[0]+" names no PlacementGate: correct its spec.parameters"
	}
	if o.Check().Message != message {
		s.Writes = o.Block(o.Checks.Own, message)
	}
	return s
}

// block sets checks Pending because no gate decides. That time does not count as time
// without room.
func (o *Situation) Block(checks []string, message string) []Write {
	writes := o.writeClock(o.Record.CountUnplaced(false, o.waitingSince(checks...), o.Now))
	d := gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: message}
	return append(writes, Write{
		Check: &CheckWrite{Names: checks, Decision: d, RememberReason: true},
		Event: &Notice{Warning: true, Reason: d.Reason, Message: message},
	})
}

// stepWatchBuiltinDispatcher reports, on the gate and once on the workload, that Kueue's
// dispatcher nominates nothing although the operator leaves nominations to it.
func (o *Situation) stepWatchBuiltinDispatcher() Step {
	s := Step{}
	since := kueuestate.UnnominatedSince(o.Workload, o.Checks.MultiKueue)
	if len(o.MultiKueue.Connected) == 0 || since.IsZero() {
		return s
	}
	if remaining := timing.DispatchGrace - o.Now.Sub(since); remaining > 0 {
		s.RequeueAfter = remaining
		return s
	}
	s.RequeueAfter = timing.DispatchGrace
	at := since.UTC().Format(time.TimeOnly) + " UTC"
	// The evidence of one workload stands for all: each change is a write of the gate's status.
	evidence := o.Gate.Conflict
	if evidence == "" {
		evidence = fmt.Sprintf("%s has had no nominated cluster since %s", o.Key, at)
	}
	s.Conflict = &conflict{Evidence: evidence, At: o.Now}
	if attempt := 1 + kueuestate.CountEvictions(o.Workload); o.History.LateAttempt < attempt {
		s.LateAttempt = attempt
		s.Event = &Notice{Warning: true, Reason: "NotNominated", Message: "no dispatcher has nominated a cluster since " + at +
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
	if o.Check().State != kueue.CheckStateReady || kueuestate.IsPinnedByKueue(o.Workload) || o.Job.Cluster != "" {
		return nil
	}
	clusters, at := o.Workload.Status.NominatedClusterNames, o.Now
	foreign := o.Record.Foreign(clusters)
	switch {
	case o.Workload.Status.ClusterName != nil:
		foreign, at = o.Record.Foreign([]string{*o.Workload.Status.ClusterName}), o.AdmittedAt(o.Now)
		if at.Before(o.Check().LastTransitionTime.Time) { // it ran before the gate's decision
			return nil
		}
	case !o.Record.IsCurrent(o.QuotaReservedAt()) && !o.Record.Repair && !o.isOfLostQuota(): // the operator records before it nominates
		foreign = clusters
	}
	if len(foreign) == 0 {
		return nil
	}
	return &conflict{Evidence: fmt.Sprintf("%s was nominated to %s by another dispatcher", o.Key, strings.Join(foreign, ", ")), At: at}
}
