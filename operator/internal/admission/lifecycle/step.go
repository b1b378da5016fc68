package lifecycle

import (
	"fmt"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
)

// Step is everything that one reconciliation does for a workload. apply carries it out.
type Step struct {
	// Reservation is what the ledger holds for the workload afterwards; nil = unchanged.
	Reservation *Reservation
	// Writes to the Workload, in order. The first one that fails ends the step.
	Writes []Write
	// Wait is the workload's entry in the wait queue; nil = the workload leaves the queue.
	Wait *waitqueue.Entry
	// Event without a write.
	Event *Notice
	// Conflict is evidence that Kueue uses another dispatcher than the operator assumes.
	Conflict *conflict
	// Decision to count in the metrics; nil = the gate decided nothing.
	Decision *gate.Decision
	// NeverSince of the history after the decision.
	NeverSince time.Time
	// LateAttempt is the attempt that no cluster admitted in time; 0 = none.
	LateAttempt int
	// Mispredicted counts the late attempt as a misprediction of the gate.
	Mispredicted bool
	// PodsLate is an admission whose pods are not ready in time; nil = none.
	PodsLate *LateAdmission
	// Requeued: the workload returns to its queue because no cluster admitted it.
	Requeued bool
	// RequeueAfter is the time until the next look; 0 = at the next change.
	RequeueAfter time.Duration
}

// Reservation replaces the ledger's entries of a workload, except for those of the
// clusters that are kept.
type Reservation struct {
	Kept    []string
	Entries []ledger.Entry
	// AdmittedPods by cluster, as in history.
	AdmittedPods map[string]int64
	// Hold is the cluster that the gate holds for the workload; nil = none.
	Hold *ledger.Hold
}

// Write is one request to the API server. Exactly one of the pointers is set.
type Write struct {
	Check      *CheckWrite
	Record     *RecordWrite
	Nomination *NominationWrite
	// Event that follows the write.
	Event *Notice
}

// CheckWrite sets the state of the gate's entries in status.admissionChecks.
type CheckWrite struct {
	// Names of the entries.
	Names    []string
	Decision gate.Decision
	// PodSetUpdates that a Ready check carries.
	PodSetUpdates []kueue.PodSetUpdate
	// MessageKind is the kind of message that the write counts as; empty = it does not count.
	MessageKind string
	// RememberReason keeps the decision's reason, so that the next write with another reason
	// is an event.
	RememberReason bool
}

// RecordWrite sets the annotation plimsoll.dev/dispatch and, if active is set, spec.active
// in the same request.
type RecordWrite struct {
	Record dispatch.Record
	Active *bool
	// Reason to remember as the decision's, so that the next check with another reason is an
	// event; empty = unchanged.
	Reason string
}

// NominationWrite sets status.nominatedClusterNames.
type NominationWrite struct {
	Clusters []string
	Reason   string
}

// Notice is an event about the workload.
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

// Nominate returns the writes of a nomination: the record, which has to outlive an
// eviction, then the list of clusters. record nil = the workload has no record.
func Nominate(clusters []string, record *dispatch.Record, reason, message string) []Write {
	var writes []Write
	if record != nil {
		writes = append(writes, Write{Record: &RecordWrite{Record: *record}})
	}
	return append(writes, Write{Nomination: &NominationWrite{Clusters: clusters, Reason: reason},
		Event: &Notice{Reason: reason, Message: nominationMessage(clusters, message)}})
}

func nominationMessage(clusters []string, message string) string {
	return gate.Truncate(fmt.Sprintf("nominated %s: %s", strings.Join(clusters, ", "), message))
}

// LeadsTo is the phase that a workload is in once the step is carried out and no other
// component has acted.
func (next Step) LeadsTo(from Phase) Phase {
	to := from
	for _, w := range next.Writes {
		switch {
		case from == PhasePassing:
			to = PhaseComparing
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
