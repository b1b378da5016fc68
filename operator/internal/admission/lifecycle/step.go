package lifecycle

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
)

// step is everything that one reconciliation does for a workload. apply carries it out.
type Step struct {
	// reservation is what the ledger holds for the workload afterwards; nil = unchanged.
	Reservation *reservation
	// writes to the Workload, in order. The first one that fails ends the step.
	Writes []Write
	// wait is the workload's entry in the wait queue; nil = the workload leaves the queue.
	Wait *waitqueue.Entry
	// event without a write.
	Event *Notice
	// conflict is evidence that Kueue uses another dispatcher than the operator assumes.
	Conflict *conflict
	// decision to count in the metrics; nil = the gate decided nothing.
	Decision *gate.Decision
	// lateAttempt is the attempt that no cluster admitted in time; 0 = none.
	LateAttempt int
	// mispredicted counts the late attempt as a misprediction of the gate.
	Mispredicted bool
	// podsLate is an admission whose pods are not ready in time; nil = none.
	PodsLate *LateAdmission
	// requeued: the workload returns to its queue because no cluster admitted it.
	Requeued bool
	// requeueAfter is the time until the next look; 0 = at the next change.
	RequeueAfter time.Duration
}

// reservation replaces the ledger's entries of a workload, except for those of the
// clusters that are kept.
type reservation struct {
	Kept    []string
	Entries []ledger.Entry
	// admittedPods by cluster, as in history.
	AdmittedPods map[string]int64
	// hold is the cluster that the gate holds for the workload; nil = none.
	Hold *ledger.Hold
}

// write is one request to the API server. Exactly one of the pointers is set.
type Write struct {
	Check      *CheckWrite
	Record     *RecordWrite
	Nomination *NominationWrite
	// event that follows the write.
	Event *Notice
}

// checkWrite sets the state of the gate's entries in status.admissionChecks.
type CheckWrite struct {
	// names of the entries.
	Names    []string
	Decision gate.Decision
	// podSetUpdates that a Ready check carries.
	PodSetUpdates []kueue.PodSetUpdate
	// messageKind is the kind of message that the write counts as; empty = it does not count.
	MessageKind string
	// rememberReason keeps the decision's reason, so that the next write with another reason
	// is an event.
	RememberReason bool
}

// recordWrite sets the annotation plimsoll.dev/dispatch and, if active is set, spec.active
// in the same request.
type RecordWrite struct {
	Record dispatch.Record
	Active *bool
	// reason to remember as the decision's, so that the next check with another reason is an
	// event; empty = unchanged.
	Reason string
}

// nominationWrite sets status.nominatedClusterNames.
type NominationWrite struct {
	Clusters []string
	Reason   string
}

// notice is an event about the workload.
type Notice struct {
	Warning bool
	Reason  string
	Message string
}

// conflict is evidence of a conflicting or missing dispatcher.
type conflict struct {
	Evidence string
	At       time.Time
}

// Reasons of nominations, in addition to dispatch's stages.
const (
	ReasonNominated      = "Nominated"
	ReasonNominatedAgain = "NominatedAgain"
	ReasonEvictionRepair = "EvictionRepair"
)

// nominate returns the writes of a nomination: the record, which has to outlive an
// eviction, then the list of clusters. record nil = the workload has no record.
func (o *Situation) Nominate(clusters []string, record *dispatch.Record, reason, message string) []Write {
	var writes []Write
	if record != nil {
		writes = append(writes, Write{Record: &RecordWrite{Record: *record}})
	}
	return append(writes, Write{Nomination: &NominationWrite{Clusters: clusters, Reason: reason},
		Event: &Notice{Reason: reason, Message: nominationMessage(clusters, message)}})
}

// leadsTo is the phase that a workload is in once the step is carried out and no other
// component has acted.
func (s Step) LeadsTo(from Phase) Phase {
	to := from
	for _, w := range s.Writes {
		switch {
		case w.Nomination != nil && (from == PhaseUngated || from == PhaseEvictionStuck):
			// These phases do not depend on nominations.
		case w.Nomination != nil:
			to = PhaseNominated
		case w.Record != nil && w.Record.Active != nil && *w.Record.Active, w.Record != nil && from == PhaseReturning:
			to = PhaseIdle // it queues for quota again
		case w.Record != nil && w.Record.Active != nil:
			to = PhaseYielded
		case w.Check != nil:
			to = phaseAfterCheck(w.Check.Decision, from)
		}
	}
	return to
}

// phaseAfterCheck is the phase that follows a written check.
func phaseAfterCheck(d gate.Decision, from Phase) Phase {
	switch {
	case from == PhaseEvictionStuck:
		return PhaseEvictionStuck
	case d.State == gate.Ready && from == PhasePlacedByKueue, d.State == gate.Rejected, from == PhaseQuotaLost:
		return PhaseIdle
	case d.State == gate.Ready:
		return PhaseReady
	}
	return from
}
