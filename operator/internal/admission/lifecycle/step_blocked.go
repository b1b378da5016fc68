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
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// stepSleep waits until the pause of a yielded workload is over. The pause does not end before Kueue
// has taken the quota, which is a change of the workload: Kueue may begin the eviction late, such as
// after a restart, and would not evict a workload that is active again.
func stepSleep(s *Situation) Step {
	return Step{RequeueAfter: max(0, s.Record.returnsAt(s.Workload).Sub(s.Now))}
}

// returnsAt is when a yielded or reclaimed workload returns. The pause begins when the workload has no
// quota: other workloads need that time to get it. Pods of a reclaimed workload may still run then,
// because Kueue deletes the copy of a MultiKueue workload in the background, so that the pause is at
// least their grace period.
func (r Record) returnsAt(wl *kueue.Workload) time.Time {
	at := r.SleepsUntil
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	if c != nil && c.Status == metav1.ConditionFalse {
		if later := c.LastTransitionTime.Add(r.Pause()); later.After(at) {
			at = later
		}
	}
	return at
}

// stepReturn activates a yielded workload. If a user activated it already, only the record
// changes.
func stepReturn(s *Situation) Step {
	w := RecordWrite{Record: s.Record.Woken()}
	if !kueuestate.IsActive(s.Workload) {
		active := true
		w.Active = &active
	}
	return Step{Writes: []Write{{Record: &w}}}
}

// stepResetRecord replaces an annotation that does not parse. What is nominated begins a new
// attempt.
func stepResetRecord(s *Situation) Step {
	const reason = "BadAnnotation"
	record := dispatch.Record{}
	if nominated := s.Workload.Status.NominatedClusterNames; len(nominated) > 0 {
		record = record.Begin(nominated, kueuestate.QuotaReservedAt(s.Workload), reason, s.Now)
	}
	return Step{Writes: []Write{{
		Record: &RecordWrite{Record: record},
		Event:  &Notice{Warning: true, Reason: reason, Message: gate.Truncate(s.Record.Err.Error() + "; the annotation was reset")},
	}}}
}

// stepReportTooManyChecks blocks the Pending checks of a queue with several checks of ours.
// A check that was Ready before the others were added stays Ready.
func stepReportTooManyChecks(s *Situation) Step {
	pending := s.Checks.Pending(s.Workload)
	if len(pending) == 0 {
		return Step{}
	}
	message := gate.TooManyChecksMessage(s.Checks.Own)
	next := Step{Wait: waitWithoutResults(s)}
	if slices.ContainsFunc(pending, func(name string) bool { return kueuestate.FindCheck(s.Workload, name).Message != message }) {
		next.Writes = Block(s, pending, message)
	}
	return next
}

// waitWithoutResults is the entry of a workload that no decision can be made for.
func waitWithoutResults(s *Situation) *waitqueue.Entry {
	e := s.WaitEntry(gatestate.QueryKey{Gate: s.Gate.Name})
	return &e
}

// stepReportGateUnknown blocks a workload whose gate does not exist. A gate that merely was
// not read yet is no news: the workload keeps its place in the gate's order.
func stepReportGateUnknown(s *Situation) Step {
	if s.Gate.Exists {
		e := s.WaitEntry(s.Room.Key)
		return Step{Wait: &e}
	}
	next := Step{Wait: waitWithoutResults(s)}
	message := "PlacementGate " + s.Gate.Name + " does not exist"
	if s.Gate.Name == "" {
		next.Wait, message = nil, "AdmissionCheck "+s.Checks.Own[0]+" names no PlacementGate: correct its spec.parameters"
	}
	if s.Check().Message != message {
		next.Writes = Block(s, s.Checks.Own, message)
	}
	return next
}

// Block sets checks Pending because no gate decides. That time does not count as time
// without room.
func Block(s *Situation, checks []string, message string) []Write {
	writes := s.Record.writeClock(s.Record.CountUnplaced(false, kueuestate.PendingSince(s.Workload, checks[0], s.Now), s.Now))
	d := gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: message}
	return append(writes, Write{
		Check: &CheckWrite{Names: checks, Decision: d, RememberReason: true},
		Event: &Notice{Warning: true, Reason: d.Reason, Message: message},
	})
}

// watchDispatcher adds to a step what shows that Kueue uses another dispatcher than the operator assumes.
func watchDispatcher(s *Situation, next Step) Step {
	switch {
	case len(s.Checks.Own) == 0:
	case s.Dispatch() == OwnDispatch:
		next.Conflict = conflictOf(s, next.Conflict)
	case s.Dispatch() == BuiltinDispatch && isReady(s):
		next = watchBuiltinDispatcher(s, next)
	}
	return next
}

// watchBuiltinDispatcher reports, on the gate and once on the workload, that Kueue's
// dispatcher nominates nothing although the operator leaves nominations to it.
func watchBuiltinDispatcher(s *Situation, next Step) Step {
	since := kueuestate.UnnominatedSince(s.Workload, s.Checks.MultiKueue)
	if len(s.MultiKueue.Connected) == 0 || since.IsZero() {
		return next
	}
	if remaining := timing.DispatchGrace - s.Now.Sub(since); remaining > 0 {
		next.RequeueAfter = earliest(next.RequeueAfter, remaining)
		return next
	}
	next.RequeueAfter = earliest(next.RequeueAfter, timing.DispatchGrace)
	at := since.UTC().Format(time.TimeOnly) + " UTC"
	// The evidence of one workload stands for all: each change is a write of the gate's status.
	evidence := s.Gate.Conflict
	if evidence == "" {
		evidence = fmt.Sprintf("%s has had no nominated cluster since %s", s.Key, at)
	}
	next.Conflict = &conflict{Evidence: evidence, At: s.Now}
	if attempt := 1 + kueuestate.CountEvictions(s.Workload); s.History.LateAttempt < attempt {
		next.LateAttempt = attempt
		next.Event = &Notice{Warning: true, Reason: "NotNominated", Message: "no dispatcher has nominated a cluster since " + at +
			"; check that multiKueue.dispatcherName in Kueue's configuration names one of Kueue's own dispatchers"}
	}
	return next
}

// conflictOf returns evidence that another dispatcher nominated clusters. The evidence of the
// step itself comes first. Nominations from before the gate's decision are no evidence: the
// check may be new on the queue.
func conflictOf(s *Situation, ofStep *conflict) *conflict {
	if ofStep != nil || s.Record.Err != nil {
		return ofStep
	}
	if s.Check().State != kueue.CheckStateReady || kueuestate.IsPinnedByKueue(s.Workload) || s.Job.Cluster != "" || passedUnrecorded(s) {
		return nil
	}
	clusters, at := s.Workload.Status.NominatedClusterNames, s.Now
	foreign := s.Record.Foreign(clusters)
	switch {
	case s.Workload.Status.ClusterName != nil:
		foreign, at = s.Record.Foreign([]string{*s.Workload.Status.ClusterName}), s.Checks.AdmittedAt(s.Workload, s.Now)
		if at.Before(s.Check().LastTransitionTime.Time) { // it ran before the gate's decision
			return nil
		}
	case !s.Record.IsCurrent(kueuestate.QuotaReservedAt(s.Workload)) && !s.Record.Repair && !isOfLostQuota(s): // the operator records before it nominates
		foreign = clusters
	}
	if len(foreign) == 0 {
		return nil
	}
	return &conflict{Evidence: fmt.Sprintf("%s was nominated to %s by another dispatcher", s.Key, strings.Join(foreign, ", ")), At: at}
}
