package workload

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
)

// step is everything that one reconciliation does for a workload. apply carries it out.
type step struct {
	// reservation is what the ledger holds for the workload afterwards; nil = unchanged.
	reservation *reservation
	// writes to the Workload, in order. The first one that fails ends the step.
	writes []write
	// wait is the workload's entry in the wait queue; nil = the workload leaves the queue.
	wait *waitqueue.Entry
	// event without a write.
	event *notice
	// conflict is evidence that Kueue uses another dispatcher than the operator assumes.
	conflict *conflict
	// decision to count in the metrics; nil = the gate decided nothing.
	decision *gate.Decision
	// lateAttempt is the attempt that no cluster admitted in time; 0 = none.
	lateAttempt int
	// mispredicted counts the late attempt as a misprediction of the gate.
	mispredicted bool
	// podsLate is an admission whose pods are not ready in time; nil = none.
	podsLate *lateAdmission
	// requeued: the workload returns to its queue because no cluster admitted it.
	requeued bool
	// requeueAfter is the time until the next look; 0 = at the next change.
	requeueAfter time.Duration
}

// reservation replaces the ledger's entries of a workload, except for those of the
// clusters that are kept.
type reservation struct {
	kept    []string
	entries []ledger.Entry
	// admittedPods by cluster, as in history.
	admittedPods map[string]int64
	// hold is the cluster that the gate holds for the workload; nil = none.
	hold *ledger.Hold
}

// write is one request to the API server. Exactly one of the pointers is set.
type write struct {
	check      *checkWrite
	record     *recordWrite
	nomination *nominationWrite
	// event that follows the write.
	event *notice
}

// checkWrite sets the state of the gate's entries in status.admissionChecks.
type checkWrite struct {
	// names of the entries.
	names    []string
	decision gate.Decision
	// podSetUpdates that a Ready check carries.
	podSetUpdates []kueue.PodSetUpdate
	// messageKind is the kind of message that the write counts as; empty = it does not count.
	messageKind string
	// rememberReason keeps the decision's reason, so that the next write with another reason
	// is an event.
	rememberReason bool
}

// recordWrite sets the annotation plimsoll.dev/dispatch and, if active is set, spec.active
// in the same request.
type recordWrite struct {
	record dispatch.Record
	active *bool
	// reason to remember as the decision's, so that the next check with another reason is an
	// event; empty = unchanged.
	reason string
}

// nominationWrite sets status.nominatedClusterNames.
type nominationWrite struct {
	clusters []string
	reason   string
}

// notice is an event about the workload.
type notice struct {
	warning bool
	reason  string
	message string
}

// conflict is evidence of a conflicting or missing dispatcher.
type conflict struct {
	evidence string
	at       time.Time
}

// Reasons of nominations, in addition to dispatch's stages.
const (
	reasonNominated      = "Nominated"
	reasonNominatedAgain = "NominatedAgain"
	reasonEvictionRepair = "EvictionRepair"
)

// nominate returns the writes of a nomination: the record, which has to outlive an
// eviction, then the list of clusters. record nil = the workload has no record.
func (o *observation) nominate(clusters []string, record *dispatch.Record, reason, message string) []write {
	var writes []write
	if record != nil {
		writes = append(writes, write{record: &recordWrite{record: *record}})
	}
	return append(writes, write{nomination: &nominationWrite{clusters: clusters, reason: reason},
		event: &notice{reason: reason, message: nominationMessage(clusters, message)}})
}

// leadsTo is the phase that a workload is in once the step is carried out and no other
// component has acted.
func (s step) leadsTo(from Phase) Phase {
	to := from
	for _, w := range s.writes {
		switch {
		case w.nomination != nil && (from == PhaseUngated || from == PhaseEvictionStuck):
			// These phases do not depend on nominations.
		case w.nomination != nil:
			to = PhaseNominated
		case w.record != nil && w.record.active != nil && *w.record.active, w.record != nil && from == PhaseReturning:
			to = PhaseIdle // it queues for quota again
		case w.record != nil && w.record.active != nil:
			to = PhaseYielded
		case w.check != nil:
			to = phaseAfterCheck(w.check.decision, from)
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
