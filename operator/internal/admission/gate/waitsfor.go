package gate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Snapshot is the state from which a workload's next step follows. Unknown fields are zero.
type Snapshot struct {
	Workload *kueue.Workload
	// Own are the workload's checks of PlacementGates.
	Own []string
	// MultiKueue is the workload's check of MultiKueue, or "".
	MultiKueue string
	// Config is the name of the MultiKueueConfig in MultiKueue's check.
	Config string
	// Connected are the clusters of Config with a connection to Kueue.
	Connected []string
	// ChecksUnknown is true if the AdmissionChecks can't be read. Own and MultiKueue are then
	// incomplete.
	ChecksUnknown bool
	// Cluster is the cluster with the workload, or "".
	Cluster string
	// Dispatch is the workload's dispatch record.
	Dispatch dispatch.Record
	// Fault states why the gate cannot decide or write. Empty means no fault. FaultEnds is the event that ends it; empty
	// means a change of the PlacementGate.
	Fault, FaultEnds string
	// Decision of the gate at this moment. If nil, the check's message is used.
	Decision *Decision
	// Rejections of the clusters in that decision.
	Rejections []Rejection
	// BuiltinDispatcher is true if Kueue's built-in dispatcher nominates clusters, and not the
	// operator.
	BuiltinDispatcher bool
	// Period of the gate's rounds. Zero means unknown.
	Period time.Duration
}

// Wait is what a workload waits for.
type Wait struct {
	// For is a phrase after "waits for".
	For string
	// Next is the next event that can change it. It is empty if the workload waits for nothing.
	Next string
}

// Wait returns the workload's next step.
func (s Snapshot) Wait(now time.Time) Wait {
	wl := s.Workload
	switch {
	case kueuestate.IsFinished(wl):
		return Wait{For: "nothing: the workload has finished"}
	case !wl.DeletionTimestamp.IsZero():
		return Wait{"deletion to complete", "the finalizers of the Workload are removed"}
	case s.Cluster != "":
		return Wait{For: "nothing: the workload is on " + s.Cluster}
	case wl.Spec.Active != nil && !*wl.Spec.Active:
		return s.waitForActivation(now)
	case !kueuestate.HoldsQuota(wl):
		return Wait{s.withConditionMessage("quota in its ClusterQueue", kueue.WorkloadQuotaReserved), "Kueue reserves quota, when others return it or there is more"}
	case kueuestate.IsEvicted(wl):
		return Wait{"eviction to complete", completesEviction}
	case kueuestate.IsAdmitted(wl):
		return Wait{For: "nothing: Kueue has admitted the workload"}
	case len(wl.Status.NominatedClusterNames) == 1:
		return Wait{"admission by " + wl.Status.NominatedClusterNames[0], s.nextOfNomination()}
	case len(wl.Status.NominatedClusterNames) > 1:
		return Wait{"admission by one of " + strings.Join(wl.Status.NominatedClusterNames, ", "), s.nextOfNomination()}
	}
	return cmp.Or(s.waitForGate(), s.waitForOtherCheck(), s.waitForDispatch(now))
}

const (
	completesEviction = "Kueue completes the eviction"
	userActivates     = "a user sets spec.active to true"
)

func (s Snapshot) nextOfNomination() string {
	if s.BuiltinDispatcher {
		return "a nominated cluster admits it, or Kueue nominates others"
	}
	return "a nominated cluster admits it, or the operator nominates others or returns it to its queue"
}

func (s Snapshot) waitForActivation(now time.Time) Wait {
	why, until := ": the workload returned its quota for other workloads", s.Dispatch.SleepsUntil
	if s.Dispatch.IsReclaimed() {
		why = ": ReclaimPolicy " + s.Dispatch.Reclaimed.Policy + " returned it to its queue, because " + s.Dispatch.Reclaimed.Cause
	}
	switch {
	case s.Dispatch.Parked != "":
		return Wait{"a cluster that could start the workload, which returned its quota until then: " + s.Dispatch.Parked, nextLarger}
	case until.IsZero():
		return Wait{s.withConditionMessage("activation: spec.active is false", kueue.WorkloadEvicted), userActivates}
	case until.After(now):
		return Wait{"activation in " + until.Sub(now).Round(time.Second).String() + why, "the operator activates it then; if its queue preempts, when a cluster has room"}
	}
	if kueuestate.HoldsQuota(s.Workload) {
		return Wait{"eviction to complete" + why, completesEviction}
	}
	if kueuestate.IsGateFirst(s.Workload) {
		return Wait{"a cluster with room: the gate decides before the workload takes quota from others", "devices become free on a cluster, or a new sample shows more"}
	}
	return Wait{"activation by the operator" + why, "the operator activates it; if its queue preempts, when a cluster has room"}
}

// withConditionMessage appends the message of one of Kueue's conditions.
func (s Snapshot) withConditionMessage(text, condition string) string {
	if c := apimeta.FindStatusCondition(s.Workload.Status.Conditions, condition); c != nil && c.Message != "" {
		return text + ": " + c.Message
	}
	return text
}

// waitForGate returns the zero Wait if the gate's check does not block the workload.
func (s Snapshot) waitForGate() Wait {
	if len(s.Own) == 0 {
		return Wait{}
	}
	if len(s.Own) > 1 {
		return Wait{TooManyChecksMessage(s.Own), "the queue loses all of these checks but one"}
	}
	own := kueuestate.FindCheck(s.Workload, s.Own[0])
	// A Ready check is the gate's last word unless the operator still has to nominate.
	isLastWord := s.MultiKueue == "" || s.BuiltinDispatcher || s.Decision == nil && s.Fault == ""
	switch {
	case own.State == kueue.CheckStateReady && isLastWord:
		return Wait{}
	case own.State == kueue.CheckStateRetry || own.State == kueue.CheckStateRejected:
		return Wait{checkText(own), nextOfCheck(own)}
	case s.Fault != "":
		return Wait{s.Fault, cmp.Or(s.FaultEnds, "the operator reads the PlacementGate after a change")}
	case s.Decision == nil:
		return Wait{cmp.Or(own.Message, checkText(own)), s.nextLook("a decision of the gate")}
	case s.Decision.State != Ready:
		return Wait{s.Decision.Message, s.nextOfDecision()}
	}
	return Wait{}
}

// nextOfDecision is the event that can change the decision.
func (s Snapshot) nextOfDecision() string {
	event := nextEvents[s.Decision.Reason]
	if ends := s.endsOfRejections(); s.Decision.Reason == ReasonRuledOut && len(ends) > 0 {
		event.text = strings.Join(ends, ", or ")
	}
	if event.metrics {
		return s.nextLook(event.text)
	}
	return event.text
}

// endsOfRejections are the events that can make a cluster eligible that is ruled out, in the order of the table.
func (s Snapshot) endsOfRejections() (ends []string) {
	for _, row := range rejections {
		if row.next != "" && slices.Contains(s.Rejections, row.rejection) && !slices.Contains(ends, row.next) {
			ends = append(ends, row.next)
		}
	}
	return ends
}

// nextLook adds how often the gate looks.
func (s Snapshot) nextLook(event string) string {
	if s.Period == 0 {
		return event
	}
	return event + "; the gate looks every " + s.Period.String()
}

// TooManyChecksMessage is the message for a queue with several checks of gates.
func TooManyChecksMessage(own []string) string {
	return "the queue has several placement checks, keep one of: " + strings.Join(own, ", ")
}

// waitForOtherCheck returns the first check of another controller in a state other than Ready.
func (s Snapshot) waitForOtherCheck() Wait {
	for i := range s.Workload.Status.AdmissionChecks {
		c := &s.Workload.Status.AdmissionChecks[i]
		if c.State != kueue.CheckStateReady && string(c.Name) != s.MultiKueue && !slices.Contains(s.Own, string(c.Name)) {
			return Wait{checkText(c), nextOfCheck(c)}
		}
	}
	return Wait{}
}

func nextOfCheck(c *kueue.AdmissionCheckState) string {
	switch {
	case c.State == kueue.CheckStateRetry:
		return "Kueue returns the workload to its queue"
	case c.State == kueue.CheckStateRejected:
		return "Kueue deactivates the workload; after that, " + userActivates
	}
	return "the controller of the check sets it Ready"
}

func checkText(c *kueue.AdmissionCheckState) string {
	if c.Message == "" {
		return "admission check " + string(c.Name)
	}
	return "admission check " + string(c.Name) + ": " + c.Message
}

func (s Snapshot) waitForDispatch(now time.Time) Wait {
	switch {
	case s.MultiKueue == "" && len(s.Own) == 0 && !s.ChecksUnknown:
		return Wait{"admission by Kueue: no gate decides for this queue", "Kueue admits it"}
	case s.MultiKueue == "":
		return Wait{"admission by Kueue", "Kueue admits it"}
	case kueuestate.IsPinnedByKueue(s.Workload):
		return Wait{"Kueue to choose its cluster: the workload follows the other parts of its job", "a cluster admits the first part of the job"}
	case len(s.Connected) == 0:
		return Wait{"a cluster of MultiKueueConfig " + s.Config + " that Kueue is connected to", "Kueue connects to a cluster"}
	case s.BuiltinDispatcher:
		return Wait{"Kueue's built-in dispatcher to nominate clusters" + s.overdueNote(now), "Kueue nominates clusters"}
	}
	return Wait{"nomination by the operator", "the operator nominates a cluster in its next step"}
}

// overdueNote states for how long Kueue's built-in dispatcher has nominated no cluster. Within
// the grace period the note is empty.
func (s Snapshot) overdueNote(now time.Time) string {
	since := kueuestate.UnnominatedSince(s.Workload, s.MultiKueue)
	if since.IsZero() || now.Sub(since) < timing.DispatchGrace {
		return ""
	}
	return " for " + now.Sub(since).Round(time.Second).String() +
		": multiKueue.dispatcherName in Kueue's configuration must name a built-in dispatcher"
}
