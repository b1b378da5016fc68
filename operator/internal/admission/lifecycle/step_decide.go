package lifecycle

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
)

// stepDecide lets the gate decide, writes its check and, if the nomination is the gate's
// turn, nominates.
func stepDecide(s *Situation) Step {
	next := Step{}
	key := gatestate.QueryKey{Gate: s.Gate.Name}
	d := gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: gate.Truncate("PlacementGate " + s.Gate.Name + " is not ready: " + s.Gate.Problem)}
	var clusters []string
	if s.Gate.Problem == "" {
		key = s.Room.Key
		d, clusters, next.RequeueAfter = Decide(s)
		next.Reservation = Reserve(s, clusters, d)
	}
	record := s.Record.Record
	next.NeverSince = neverSince(s, d)
	if d.State == gate.Pending {
		d, record = WhenUnplaceable(s, d)
	}
	d.Hold = UsableHold(s, d)
	if next.Reservation != nil {
		next.Reservation.Hold = d.Hold
	}
	next.Decision = &d
	written := inLine(s, d)
	next.Writes = WriteDecision(s, written, record)
	next.Event = holdEvent(s, d)
	if d.State == gate.Pending {
		next.Wait = waitAfter(s, d, key)
		next.RequeueAfter = earliest(next.RequeueAfter, earliest(earliest(unplaceableAfter(s), neverAfter(s, d)), keepsMessage(s, written)))
	}
	if d.State != gate.Ready || !s.MayNominate() {
		return next
	}
	message := d.Message + orphanNote(s, clusters, d.Order[0])
	record = record.Begin(clusters, kueuestate.QuotaReservedAt(s.Workload), message, s.Now)
	next.Writes = append(next.Writes, Nominate(record.Nominated, &record, ReasonNominated, message)...)
	if s.History.Refusal != nil {
		next.Writes = recordFirst(next.Writes)
	}
	next.RequeueAfter = s.Gate.widenAfter()
	return next
}

// inLine is the decision as the check of a workload states it. The queue wakes a workload that follows equal ones
// only when the reason changes, so that its check leaves out what was measured.
func inLine(s *Situation, d gate.Decision) gate.Decision {
	if s.Room.Follows && d.State == gate.Pending {
		d.Message = d.MessageInLine(s.JobFacts())
	}
	return d
}

// waitAfter is the workload's entry in the wait queue after a Pending decision. A workload that waits
// for its last copy, or for the quota of its job, leaves its line, which it would stop although others have
// room: it looks again by itself.
func waitAfter(s *Situation, d gate.Decision, key gatestate.QueryKey) *waitqueue.Entry {
	if d.Reason == gate.ReasonOrphanedCopy || d.Reason == gate.ReasonAwaitingQuota {
		return waitWithoutResults(s)
	}
	e := s.WaitEntry(key)
	e.HasRoom = d.Reason == gate.ReasonQueued
	return &e
}

// Decide finds the clusters that can take the workload. The returned clusters are those to
// nominate; without MultiKueue, or with Kueue's built-in dispatcher, the chosen one. wait is
// the time for which a possible orphaned copy keeps the workload from going elsewhere, or after which it
// looks for the quota of its job again.
func Decide(s *Situation) (d gate.Decision, clusters []string, wait time.Duration) {
	d = s.Decision(s.Record.Attempt + 1)
	d = revise(s, d)
	switch {
	case d.State != gate.Ready:
	case jobQuotaWait(s) > 0:
		d, wait = awaitQuota(s, d), min(jobQuotaWait(s), gate.PeriodOf(&s.Gate.Spec))
	case mustQueue(s, d):
		d = gate.Decision{State: gate.Pending, Reason: gate.ReasonQueued, Verdicts: d.Verdicts,
			Message: QueuedMessage(s.Room.Preceding.String())}
	case awaitsJobQuota(s):
		d = gate.Decision{State: gate.Pending, Reason: gate.ReasonQueued, Verdicts: d.Verdicts,
			Message: "there is room, but Kueue may be about to reserve quota for other components of the job"}
	case s.MayNominate():
		if d, wait = waitForCopies(s, d); d.State == gate.Ready {
			clusters = nominationList(s, d)
		}
	case readyDecidesPlacement(s), s.Job.Cluster != "":
		clusters = d.Order[:1]
	}
	return d, clusters, wait
}

// QueuedMessage is the message of a workload that has room and waits for another one.
func QueuedMessage(preceding string) string {
	return "there is room, but " + preceding + " is decided first"
}

// mustQueue reports whether a workload that ranks before is decided first. A part of a job that is on
// its way already, or that was counted when its job was placed, does not wait for others.
func mustQueue(s *Situation, d gate.Decision) bool {
	isOnItsWay := d.Reason == reasonReplacesSlice && slices.ContainsFunc(d.Order, func(c string) bool { return slices.Contains(s.Job.SliceSeenOn, c) })
	return s.Gate.Decide == nil && !s.Room.HasTurn && s.Room.Preceding != (types.NamespacedName{}) && !hasPlaceInJob(s) && !isOnItsWay
}

// Decision of the gate for an attempt. It is empty if the gate can't decide: then nothing is
// known of where the workload fits.
func (s *Situation) Decision(attempt int) gate.Decision {
	if !s.Decides() {
		return gate.Decision{}
	}
	if s.Gate.Decide != nil {
		return s.Gate.Decide(s.Inputs(attempt), s.Now)
	}
	return s.Inputs(attempt).Decide(s.Now)
}

// SentTo are the clusters that the workload was already sent to: another one would mean one
// more copy.
//  1. Without MultiKueue, the cluster that a Ready check names.
//  2. The nominated clusters.
//  3. If the operator stopped between the annotation and the nomination, those of the annotation.
//  4. Else the clusters that may hold a copy of an earlier attempt, or of the slice that the workload
//     replaces.
func SentTo(s *Situation) []string {
	if sent := s.SentByCheck(); sent != "" {
		return []string{sent}
	}
	switch {
	case len(s.Workload.Status.NominatedClusterNames) > 0 || s.Record.Err != nil || kueuestate.IsEvicted(s.Workload):
		return s.Workload.Status.NominatedClusterNames
	case s.Record.IsCurrent(kueuestate.QuotaReservedAt(s.Workload)):
		return s.Record.Nominated
	}
	return clustersWithCopies(s)
}

// SentByCheck is the cluster that a Ready check chose. With Kueue's built-in dispatcher it is
// the best guess at where the workload goes. Empty = none yet.
func (s *Situation) SentByCheck() string {
	if !readyDecidesPlacement(s) {
		return ""
	}
	return s.Checks.SentCluster(s.Workload)
}

// nominationList is what is nominated already, which may have admitted the workload, then
// the choice, then the clusters that may hold a copy if only room speaks against them: the copy
// itself may take that room.
func nominationList(s *Situation, d gate.Decision) []string {
	clusters := slices.Clone(s.Workload.Status.NominatedClusterNames)
	if !slices.Contains(clusters, d.Order[0]) {
		clusters = append(clusters, d.Order[0])
	}
	for _, c := range clustersWithCopies(s) {
		mayHoldCopy := slices.ContainsFunc(d.Verdicts, func(v gate.Verdict) bool { return v.Cluster == c && v.Rejection.MayHoldCopy() })
		if mayHoldCopy && !slices.Contains(clusters, c) && len(clusters) < dispatch.MaxNominated {
			clusters = append(clusters, c)
		}
	}
	return clusters
}

// orphanNote names the clusters that are nominated only because they may hold a copy.
func orphanNote(s *Situation, clusters []string, choice string) string {
	orphans := clusters[max(len(s.Workload.Status.NominatedClusterNames), slices.Index(clusters, choice)+1):]
	if len(orphans) == 0 {
		return ""
	}
	source := "the last attempt"
	if len(s.Job.SliceOn) > 0 {
		source = "the slice that it replaces"
		if len(s.Record.Sent()) > 0 {
			source = "an earlier attempt, or of the slice that it replaces"
		}
	}
	return "; " + strings.Join(orphans, ", ") + " may still hold a copy of " + source
}

// Reserve debits the chosen clusters that have room. Where a cluster has none, the workload
// may never take anything. Clusters whose nomination outlived the ledger's TTL are not
// debited again. What the placement of the job reserved for a component stays while it waits.
func Reserve(s *Situation, clusters []string, d gate.Decision) *Reservation {
	res := &Reservation{Kept: s.Workload.Status.NominatedClusterNames, AdmittedPods: s.Request.admittedPods(d)}
	if hasPlaceInJob(s) {
		res.Kept = append(slices.Clone(res.Kept), s.Job.Cluster)
	}
	var expired []string
	if s.Record.IsCurrent(kueuestate.QuotaReservedAt(s.Workload)) && !s.Record.NominatedAt.After(s.Now.Add(-s.Room.LedgerTTL)) && s.Record.Err == nil {
		expired = s.Workload.Status.NominatedClusterNames
	}
	for _, c := range clusters {
		if slices.Contains(d.Order, c) && !slices.Contains(expired, c) {
			res.Entries = append(res.Entries, entryOf(s, d, c))
			res.Entries = append(res.Entries, s.ComponentEntries(c, s.Now)...)
		}
	}
	return res
}

// UsableHold returns the hold of a decision; nil if no cluster may be held for the workload.
func UsableHold(s *Situation, d gate.Decision) *ledger.Hold {
	if !mayHold(s) {
		return nil
	}
	return d.Hold
}

// mayHold reports whether a cluster may be held for the workload. It may not while the workload waits for
// another check, without which it does not start, or components of its job for quota.
func mayHold(s *Situation) bool {
	return s.Checks.Awaited(s.Workload) == "" && !s.Job.lacksQuota(s.Workload)
}

// holdEvent is the event of a hold that begins; nil = none does.
func holdEvent(s *Situation, d gate.Decision) *Notice {
	if d.Hold == nil || slices.ContainsFunc(s.Room.View.Holds(), func(h ledger.Hold) bool { return h.UID == d.Hold.UID && h.Cluster == d.Hold.Cluster }) {
		return nil
	}
	text := "holds " + d.Hold.Cluster + " for this workload, which fits nowhere, until it has room"
	if d.Hold.Shadow {
		text = "would hold " + d.Hold.Cluster + " for this workload, which fits nowhere: spec.hold.mode is Shadow"
	}
	return &Notice{Reason: "ClusterHeld", Message: "the gate " + text}
}

// unplaceableAfter is the time until WhenUnplaceable may apply to the workload; zero = never.
// The wait queue wakes only the first workloads of each line.
func unplaceableAfter(s *Situation) time.Duration {
	if s.Job.Cluster != "" {
		return 0
	}
	after := gate.UnplaceableAfter(s.Gate.Spec.WhenUnplaceable, s.Record.Record, kueuestate.PendingSince(s.Workload, s.Checks.Own[0], s.Now), s.Now)
	if after > 0 {
		return after
	}
	if s.Gate.Spec.WhenUnplaceable.Mode == v1alpha1.UnplaceableYield || s.Gate.Spec.WhenUnplaceable.GiveUpAfterSeconds != nil {
		return gate.PeriodOf(&s.Gate.Spec)
	}
	return 0
}

// Entry of the ledger for all pods of the workload on a cluster.
func (s *Situation) Entry(cluster string, debitedAt time.Time) ledger.Entry {
	return ledger.Entry{UID: s.Request.Facts.UID, Workload: s.Request.Facts.Key(), Cluster: cluster, Queue: ledger.QueueOf(&s.Request.Facts),
		PodSets: s.Request.Facts.PodSets, DebitedAt: debitedAt, Owners: s.Request.Owners(s.Workload)}
}

// WhenUnplaceable applies the gate's WhenUnplaceable to a Pending decision, and counts the
// time without room towards giving up. A workload yields only to another pending one. A component
// whose job has a cluster does neither: when a component loses its quota, MultiKueue deletes the
// job on the worker, with all components that run there.
func WhenUnplaceable(s *Situation, d gate.Decision) (gate.Decision, dispatch.Record) {
	rule, since := s.Gate.Spec.WhenUnplaceable, kueuestate.PendingSince(s.Workload, s.Checks.Own[0], s.Now)
	isPlaced := s.Job.Cluster != ""
	record := s.Record.CountUnplaced(d.NoRoomAnywhere && rule.GiveUpAfterSeconds != nil && !isPlaced, since, s.Now)
	if isPlaced {
		return d, record
	}
	if d.Prospect == gate.ProspectNever && neverAfter(s, d) == 0 {
		if ended := endNever(s, d); ended.State != gate.Pending {
			return ended, record
		}
	}
	unplaceable := gate.Unplaceable(d, rule, record, since, s.Now)
	if unplaceable.State == gate.Retry && !s.Room.OthersPending {
		return d, record
	}
	return unplaceable, record
}

// earliest is the first of two times from now; zero = never.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// NextDecision returns the decision that the next reconciliation writes; nil = it decides nothing.
func NextDecision(s *Situation) *gate.Decision {
	if PhaseOf(s) == PhaseWaiting || PhaseOf(s) == PhaseNominating {
		return stepDecide(s).Decision
	}
	if PhaseOf(s) == PhaseAwaitingPrimary {
		d := decisionWithoutPrimary(s)
		return &d
	}
	return nil
}
