package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/format"
)

// Progress says whether an event has happened.
type Progress string

// Values of Progress.
const (
	Done    Progress = "done"
	Failed  Progress = "failed"
	Current Progress = "current" // the workload waits for it now
	Later   Progress = "later"
	Unknown Progress = "unknown"
)

// Event is a step of a workload on its way.
type Event struct {
	Name string
	// At is when it happened. Zero means that it has not, or that its time is unknown.
	At       time.Time
	Progress Progress
	// Why has the reason, as its controller states it.
	Why string
}

// Story returns what happened to a workload, in the order of time, and then the steps to come. checks are those of the
// workload; if they are unknown, the story says so instead of leaving the gate out.
func Story(wl *kueue.Workload, checks kueuestate.Checks, checksUnknown bool, record dispatch.Record) []Event {
	reserved := condition(wl, kueue.WorkloadQuotaReserved)
	steps := []Event{ofCondition("Quota reserved", reserved)}
	if checksUnknown {
		checks = kueuestate.Checks{}
		steps = append(steps, Event{Name: "Checked", Progress: Unknown, Why: "the AdmissionChecks can't be read"})
	}
	for _, name := range checks.Own {
		steps = append(steps, ofCheck("Decided", wl, name))
	}
	for _, name := range slices.Concat(checks.Trials, checks.Foreign) {
		steps = append(steps, ofCheck("Checked by "+name, wl, name))
	}
	if checks.MultiKueue != "" || checksUnknown {
		steps = append(steps, nominated(wl, record)...)
	}
	admitted := ofCondition("Admitted", condition(wl, kueue.WorkloadAdmitted))
	if cluster := checks.PlacedCluster(wl); cluster != "" && admitted.Progress == Done {
		admitted.Why = strings.TrimSuffix("by "+cluster+": "+admitted.Why, ": ")
		admitted.At = checks.AdmittedAt(wl, admitted.At)
	}
	ready := ofCondition("Pods ready", condition(wl, kueue.WorkloadPodsReady))
	if !kueuestate.ReportsPodsReady(wl) && admitted.Progress == Done {
		ready = Event{Name: "Pods ready", Progress: Unknown, Why: "Kueue does not report it: see waitForPodsReady in its configuration"}
	}
	steps = append(steps, admitted, ready, ofCondition("Finished", condition(wl, kueue.WorkloadFinished)))
	goesOn := !kueuestate.IsFinished(wl) && kueuestate.IsActive(wl) && wl.DeletionTimestamp == nil && !slices.ContainsFunc(steps, func(e Event) bool { return e.Progress == Failed })
	return arrange(append(history(wl, record), steps...), kueuestate.IsFinished(wl), goesOn)
}

// history has the events of the workload that are no step of its present attempt.
func history(wl *kueue.Workload, record dispatch.Record) []Event {
	submitted := "to queue " + string(wl.Spec.QueueName)
	if wl.Spec.Priority != nil {
		submitted += fmt.Sprintf(", priority %d", *wl.Spec.Priority)
	}
	if stats := wl.Status.SchedulingStats; stats != nil && len(stats.Evictions) > 0 {
		var reasons []string // Kueue counts evictions, and keeps only the time of the last one
		for _, e := range stats.Evictions {
			reasons = append(reasons, cmp.Or(string(e.UnderlyingCause), e.Reason)+" "+format.Plural(int(e.Count), "time"))
		}
		submitted += "; evicted since then: " + strings.Join(reasons, ", ")
	}
	events := []Event{{Name: "Submitted", At: wl.CreationTimestamp.Time, Progress: Done, Why: submitted}}
	if c := condition(wl, kueue.WorkloadEvicted); c != nil && c.Status == metav1.ConditionTrue {
		events = append(events, Event{Name: "Evicted", At: c.LastTransitionTime.Time, Progress: Failed, Why: because(c)})
	}
	if r := record.Reclaimed; r != nil {
		events = append(events, Event{Name: "Reclaimed", At: r.At, Progress: Failed, Why: "by ReclaimPolicy " + r.Policy + ": " + r.Cause})
	}
	if !record.LastYield.IsZero() {
		events = append(events, Event{Name: "Returned its quota", At: record.LastYield, Progress: Done, Why: cmp.Or(record.Parked, "for other workloads")})
	}
	if p := record.Passed; p != nil {
		events = append(events, Event{Name: "Gate in mode Shadow", At: p.At, Progress: Done, Why: formatPassed(p)})
	}
	if t := wl.DeletionTimestamp; t != nil {
		events = append(events, Event{Name: "Deleted", At: t.Time, Progress: Failed, Why: "its finalizers keep it"})
	}
	return events
}

// nominated has the nominations of the present attempt.
func nominated(wl *kueue.Workload, record dispatch.Record) []Event {
	e := Event{Name: "Nominated", Progress: Later}
	switch clusters := wl.Status.NominatedClusterNames; {
	case record.IsCurrent(kueuestate.QuotaReservedAt(wl)):
		e.At, e.Progress, e.Why = record.NominatedAt, Done, "to "+strings.Join(record.Nominated, ", ")
		if record.Reason != "" {
			e.Why += " (" + record.Reason + ")"
		}
	case len(clusters) > 0:
		e.Progress, e.Why = Done, "to "+strings.Join(clusters, ", ")+", at an unknown time: the operator has no record of it"
	}
	if e.Progress != Done || record.WidenedAt.IsZero() {
		return []Event{e}
	}
	return []Event{e, {Name: "Widened", At: record.WidenedAt, Progress: Done, Why: "to more clusters, because none had admitted it"}}
}

func condition(wl *kueue.Workload, name string) *metav1.Condition {
	return apimeta.FindStatusCondition(wl.Status.Conditions, name)
}

// because joins reason and message of a condition.
func because(c *metav1.Condition) string {
	return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
}

func ofCondition(name string, c *metav1.Condition) Event {
	switch {
	case c == nil:
		return Event{Name: name, Progress: Later}
	case c.Status == metav1.ConditionTrue:
		return Event{Name: name, At: c.LastTransitionTime.Time, Progress: Done, Why: c.Message}
	}
	return Event{Name: name, Progress: Later, Why: because(c)}
}

func ofCheck(name string, wl *kueue.Workload, check string) Event {
	state := kueuestate.FindCheck(wl, check)
	e := Event{Name: name, Progress: Later, Why: state.Message}
	switch state.State {
	case kueue.CheckStateReady:
		e.At, e.Progress = state.LastTransitionTime.Time, Done
	case kueue.CheckStateRetry, kueue.CheckStateRejected:
		e.At, e.Progress = state.LastTransitionTime.Time, Failed
	case kueue.CheckStatePending:
	}
	return e
}

// arrange sorts the events that have a time. The others follow; the first of them that has not happened is the current
// one if the workload goes on. What has not happened to a finished workload never will.
func arrange(events []Event, isFinished, goesOn bool) []Event {
	var past, rest []Event
	for _, e := range events {
		switch {
		case !e.At.IsZero():
			past = append(past, e)
		case e.Progress != Later || !isFinished:
			rest = append(rest, e)
		}
	}
	slices.SortStableFunc(past, func(a, b Event) int { return a.At.Compare(b.At) })
	if i := slices.IndexFunc(rest, func(e Event) bool { return e.Progress == Later }); i >= 0 && goesOn {
		rest[i].Progress = Current
	}
	return append(past, rest...)
}
