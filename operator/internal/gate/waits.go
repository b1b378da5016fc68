package gate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Standing of a workload: what says which step it takes next. What a caller can't
// know stays zero.
type Snapshot struct {
	Workload *kueue.Workload
	// Own are the checks that our gates decide.
	Own []string
	// MultiKueue's check, and the clusters of its configuration that Kueue is connected to.
	MultiKueue string
	Config     string
	Connected  []string
	// Cluster that has it.
	Cluster  string
	Dispatch dispatch.Record
	// Fault that keeps the gate from deciding, to follow "waits for".
	Fault string
	// Decision of now; nil = unknown, and what the check says counts.
	Decision *Decision
	// StockDispatch: another than the operator nominates.
	BuiltinDispatcher bool
}

// WaitsFor says in one sentence what has to happen next.
func (s Snapshot) WaitsFor(now time.Time) string {
	wl := s.Workload
	switch {
	case kueuestate.IsFinished(wl):
		return "nothing: it is finished"
	case !wl.DeletionTimestamp.IsZero():
		return "its deletion"
	case s.Cluster != "":
		return "nothing: it is on " + s.Cluster
	case wl.Spec.Active != nil && !*wl.Spec.Active:
		return s.waitsForActivation(now)
	case !kueuestate.HoldsQuota(wl):
		return s.withConditionMessage("quota in its ClusterQueue", kueue.WorkloadQuotaReserved)
	case kueuestate.IsEvicted(wl):
		return "its eviction to complete"
	case kueuestate.IsAdmitted(wl):
		return "nothing: it is admitted"
	case len(wl.Status.NominatedClusterNames) > 0:
		return "one of " + strings.Join(wl.Status.NominatedClusterNames, ", ") + " to admit it"
	}
	return cmp.Or(s.waitsForGate(), s.waitsForOtherCheck(), s.waitsForDispatch(now))
}

func (s Snapshot) waitsForActivation(now time.Time) string {
	until := s.Dispatch.SleepsUntil
	switch {
	case until.IsZero():
		return s.withConditionMessage("its activation: spec.active is false", kueue.WorkloadEvicted)
	case until.After(now):
		return "its return to the queue in " + until.Sub(now).Round(time.Second).String() + ": it gave its quota to others"
	}
	return "the operator to return it to the queue: it gave its quota to others"
}

// because adds what Kueue says in a condition.
func (s Snapshot) withConditionMessage(text, condition string) string {
	if c := apimeta.FindStatusCondition(s.Workload.Status.Conditions, condition); c != nil && c.Message != "" {
		return text + ": " + c.Message
	}
	return text
}

// gate that has yet to let the workload through; empty = it has, or there is none.
func (s Snapshot) waitsForGate() string {
	if len(s.Own) == 0 {
		return ""
	}
	if len(s.Own) > 1 {
		return TooManyChecksMessage(s.Own)
	}
	own := kueuestate.FindCheck(s.Workload, s.Own[0])
	done := own.State == kueue.CheckStateReady
	switch {
	case done && (s.MultiKueue == "" || s.BuiltinDispatcher || s.Decision == nil && s.Fault == ""):
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

// TooMany of our checks stand on one queue.
func TooManyChecksMessage(own []string) string {
	return "more than one placement check stands on this queue, leave one: " + strings.Join(own, ", ")
}

// others than the gate's and MultiKueue's: the first check that is not Ready.
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
	case s.MultiKueue == "" && len(s.Own) == 0:
		return "Kueue to admit it: no gate decides its queue"
	case s.MultiKueue == "":
		return "Kueue to admit it"
	case kueuestate.IsPinnedByKueue(s.Workload):
		return "Kueue to choose its cluster: it goes where the rest of its job is"
	case len(s.Connected) == 0:
		return "a cluster of MultiKueueConfig " + s.Config + " that Kueue is connected to"
	case s.BuiltinDispatcher:
		return "Kueue's dispatcher to nominate clusters" + s.overdueNote(now)
	}
	return "its nomination"
}

// overdue says for how long Kueue's dispatcher has nominated nothing, where that is long.
func (s Snapshot) overdueNote(now time.Time) string {
	since := kueuestate.UnnominatedSince(s.Workload, s.MultiKueue)
	if since.IsZero() || now.Sub(since) < timing.DispatchGrace {
		return ""
	}
	return ", for " + now.Sub(since).Round(time.Second).String() + " now: does multiKueue.dispatcherName in its configuration name one of its own?"
}
