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
	// Fault states why the gate cannot decide. Empty means no fault.
	Fault string
	// Decision of the gate at this moment. If nil, the check's message is used.
	Decision *Decision
	// BuiltinDispatcher is true if Kueue's built-in dispatcher nominates clusters, and not the
	// operator.
	BuiltinDispatcher bool
}

// WaitsFor states the workload's next step, as a phrase after "waits for".
func (s Snapshot) WaitsFor(now time.Time) string {
	wl := s.Workload
	switch {
	case kueuestate.IsFinished(wl):
		return "nothing: the workload has finished"
	case !wl.DeletionTimestamp.IsZero():
		return "deletion to complete"
	case s.Cluster != "":
		return "nothing: the workload is on " + s.Cluster
	case wl.Spec.Active != nil && !*wl.Spec.Active:
		return s.waitsForActivation(now)
	case !kueuestate.HoldsQuota(wl):
		return s.withConditionMessage("quota in its ClusterQueue", kueue.WorkloadQuotaReserved)
	case kueuestate.IsEvicted(wl):
		return "eviction to complete"
	case kueuestate.IsAdmitted(wl):
		return "nothing: Kueue has admitted the workload"
	case len(wl.Status.NominatedClusterNames) == 1:
		return "admission by " + wl.Status.NominatedClusterNames[0]
	case len(wl.Status.NominatedClusterNames) > 1:
		return "admission by one of " + strings.Join(wl.Status.NominatedClusterNames, ", ")
	}
	return cmp.Or(s.waitsForGate(), s.waitsForOtherCheck(), s.waitsForDispatch(now))
}

func (s Snapshot) waitsForActivation(now time.Time) string {
	why, until := ": the workload returned its quota for other workloads", s.Dispatch.SleepsUntil
	if s.Dispatch.IsReclaimed() {
		why = ": ReclaimPolicy " + s.Dispatch.Reclaimed.Policy + " returned it to its queue, because " + s.Dispatch.Reclaimed.Cause
	}
	switch {
	case s.Dispatch.Parked != "":
		return "a cluster that could start the workload, which returned its quota until then: " + s.Dispatch.Parked
	case until.IsZero():
		return s.withConditionMessage("activation: spec.active is false", kueue.WorkloadEvicted)
	case until.After(now):
		return "activation in " + until.Sub(now).Round(time.Second).String() + why
	}
	if kueuestate.HoldsQuota(s.Workload) {
		return "eviction to complete" + why
	}
	if kueuestate.IsGateFirst(s.Workload) {
		return "a cluster with room: the gate decides before the workload takes quota from others"
	}
	return "activation by the operator" + why
}

// withConditionMessage appends the message of one of Kueue's conditions.
func (s Snapshot) withConditionMessage(text, condition string) string {
	if c := apimeta.FindStatusCondition(s.Workload.Status.Conditions, condition); c != nil && c.Message != "" {
		return text + ": " + c.Message
	}
	return text
}

// waitsForGate returns "" if the gate's check does not block the workload.
func (s Snapshot) waitsForGate() string {
	if len(s.Own) == 0 {
		return ""
	}
	if len(s.Own) > 1 {
		return TooManyChecksMessage(s.Own)
	}
	own := kueuestate.FindCheck(s.Workload, s.Own[0])
	// A Ready check is the gate's last word unless the operator still has to nominate.
	isLastWord := s.MultiKueue == "" || s.BuiltinDispatcher || s.Decision == nil && s.Fault == ""
	switch {
	case own.State == kueue.CheckStateReady && isLastWord:
		return ""
	case own.State == kueue.CheckStateRetry || own.State == kueue.CheckStateRejected:
		return checkText(own)
	case s.Fault != "":
		return s.Fault
	case s.Decision == nil:
		return cmp.Or(own.Message, checkText(own))
	case s.Decision.State != Ready:
		return s.Decision.Message
	}
	return ""
}

// TooManyChecksMessage is the message for a queue with several checks of gates.
func TooManyChecksMessage(own []string) string {
	return "the queue has several placement checks, keep one of: " + strings.Join(own, ", ")
}

// waitsForOtherCheck returns the first check of another controller in a state other than Ready.
func (s Snapshot) waitsForOtherCheck() string {
	for i := range s.Workload.Status.AdmissionChecks {
		c := &s.Workload.Status.AdmissionChecks[i]
		if c.State != kueue.CheckStateReady && string(c.Name) != s.MultiKueue && !slices.Contains(s.Own, string(c.Name)) {
			return checkText(c)
		}
	}
	return ""
}

func checkText(c *kueue.AdmissionCheckState) string {
	if c.Message == "" {
		return "admission check " + string(c.Name)
	}
	return "admission check " + string(c.Name) + ": " + c.Message
}

func (s Snapshot) waitsForDispatch(now time.Time) string {
	switch {
	case s.MultiKueue == "" && len(s.Own) == 0 && !s.ChecksUnknown:
		return "admission by Kueue: no gate decides for this queue"
	case s.MultiKueue == "":
		return "admission by Kueue"
	case kueuestate.IsPinnedByKueue(s.Workload):
		return "Kueue to choose its cluster: the workload follows the other parts of its job"
	case len(s.Connected) == 0:
		return "a cluster of MultiKueueConfig " + s.Config + " that Kueue is connected to"
	case s.BuiltinDispatcher:
		return "Kueue's built-in dispatcher to nominate clusters" + s.overdueNote(now)
	}
	return "nomination by the operator"
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
