package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/querycache"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// stepDecide lets the gate decide, writes its check and, if the nomination is the gate's
// turn, nominates.
func (o *observation) stepDecide() step {
	s := step{}
	key := querycache.Key{Gate: o.gate.Name}
	d := gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: gate.Truncate("PlacementGate " + o.gate.Name + " is not ready: " + o.gate.Problem)}
	var clusters []string
	if o.gate.Problem == "" {
		key = o.queryKey
		d, clusters, s.requeueAfter = o.decide()
		s.reservation = o.reserve(clusters, d)
	}
	record := o.record
	if d.State == gate.Pending {
		d, record = o.whenUnplaceable(d)
	}
	d.Hold = o.usableHold(d)
	if s.reservation != nil {
		s.reservation.hold = d.Hold
	}
	s.decision = &d
	s.writes = o.writeDecision(d, record)
	s.event = o.holdEvent(d)
	if d.State == gate.Pending {
		s.wait = o.waitAfter(d, key)
		if s.requeueAfter == 0 {
			s.requeueAfter = o.unplaceableAfter()
		}
	}
	if d.State != gate.Ready || !o.mayNominate() {
		return s
	}
	message := d.Message + o.orphanNote(clusters, d.Order[0])
	record = record.Begin(clusters, o.quotaReservedAt(), message, o.now)
	s.writes = append(s.writes, o.nominate(record.Nominated, &record, reasonNominated, message)...)
	s.requeueAfter = o.widenAfter()
	return s
}

// waitAfter is the workload's entry in the wait queue after a Pending decision. A workload that waits
// for its last copy leaves its line, which it would stop although others have room: it looks again
// by itself.
func (o *observation) waitAfter(d gate.Decision, key querycache.Key) *waitqueue.Entry {
	if d.Reason == gate.ReasonOrphanedCopy {
		return o.waitWithoutResults()
	}
	e := o.waitEntry(key)
	e.HasRoom = d.Reason == gate.ReasonQueued
	return &e
}

// decide finds the clusters that can take the workload. The returned clusters are those to
// nominate; without MultiKueue, or with Kueue's built-in dispatcher, the chosen one. wait is
// the time for which a possible orphaned copy keeps the workload from going elsewhere.
func (o *observation) decide() (d gate.Decision, clusters []string, wait time.Duration) {
	d = o.decision(o.record.Attempt + 1)
	if d.State == gate.Pending {
		d = o.followReplacedSlice(d)
	}
	switch {
	case d.State != gate.Ready:
	case o.mustQueue(d):
		d = gate.Decision{State: gate.Pending, Reason: gate.ReasonQueued, Verdicts: d.Verdicts,
			Message: queuedMessage(o.preceding.String())}
	case o.awaitsJobQuota():
		d = gate.Decision{State: gate.Pending, Reason: gate.ReasonQueued, Verdicts: d.Verdicts,
			Message: "there is room, but Kueue may be about to reserve quota for other components of the job"}
	case o.mayNominate():
		if d, wait = o.waitForCopies(d); d.State == gate.Ready {
			clusters = o.nominationList(d)
		}
	case o.readyDecidesPlacement(), o.component.cluster != "":
		clusters = d.Order[:1]
	}
	return d, clusters, wait
}

// queuedMessage is the message of a workload that has room and waits for another one.
func queuedMessage(preceding string) string {
	return "there is room, but " + preceding + " is decided first"
}

// mustQueue reports whether a workload that ranks before is decided first. A part of a job that is on
// its way already, or that was counted when its job was placed, does not wait for others.
func (o *observation) mustQueue(d gate.Decision) bool {
	isOnItsWay := d.Reason == reasonReplacesSlice && slices.ContainsFunc(d.Order, func(c string) bool { return slices.Contains(o.sliceSeenOn, c) })
	return !o.hasTurn && o.preceding != (types.NamespacedName{}) && !o.hasPlaceInJob() && !isOnItsWay
}

// decision of the gate for an attempt. It is empty if the gate can't decide: then nothing is
// known of where the workload fits.
func (o *observation) decision(attempt int) gate.Decision {
	if !o.decides() {
		return gate.Decision{}
	}
	return gate.Decide(o.jobFacts(), o.candidates, o.fleet, o.view, o.rules(), attempt+kueuestate.CountEvictions(o.wl), o.now)
}

func (o *observation) rules() gate.Rules {
	rules := gate.RulesOf(&o.gate.Spec)
	rules.Incumbents = o.sentTo()
	if o.hasPlaceInJob() {
		rules.Incumbents = append(rules.Incumbents, o.component.cluster)
	}
	rules.Hold.Gate = o.gateName
	rules.Rank, rules.RunsFor = o.rank(), o.limits().RunsFor
	if o.facts.Remote {
		rules.PreemptsLowerPriority, rules.Reclaim = o.preemptsLowerPriority, o.reclaim
		rules.PreemptsUncounted, rules.CohortQueues = o.preemptsUncounted, o.cohortQueues
	}
	return rules
}

// sentTo are the clusters that the workload was already sent to: another one would mean one
// more copy.
//  1. Without MultiKueue, the cluster that a Ready check names.
//  2. The nominated clusters.
//  3. If the operator stopped between the annotation and the nomination, those of the annotation.
//  4. Else the clusters that may hold a copy of an earlier attempt, or of the slice that the workload
//     replaces.
func (o *observation) sentTo() []string {
	if sent := o.sentByCheck(); sent != "" {
		return []string{sent}
	}
	switch {
	case len(o.wl.Status.NominatedClusterNames) > 0 || o.recordErr != nil || kueuestate.IsEvicted(o.wl):
		return o.wl.Status.NominatedClusterNames
	case o.record.IsCurrent(o.quotaReservedAt()):
		return o.record.Nominated
	}
	return o.possibleCopies()
}

// sentByCheck is the cluster that a Ready check chose. With Kueue's built-in dispatcher it is
// the best guess at where the workload goes. Empty = none yet.
func (o *observation) sentByCheck() string {
	if !o.readyDecidesPlacement() {
		return ""
	}
	return kueuestate.SentCluster(o.wl, o.checks, "")
}

// nominationList is what is nominated already, which may have admitted the workload, then
// the choice, then the clusters that may hold a copy if only room speaks against them: the copy
// itself may take that room.
func (o *observation) nominationList(d gate.Decision) []string {
	clusters := slices.Clone(o.wl.Status.NominatedClusterNames)
	if !slices.Contains(clusters, d.Order[0]) {
		clusters = append(clusters, d.Order[0])
	}
	for _, c := range o.possibleCopies() {
		mayHoldCopy := slices.ContainsFunc(d.Verdicts, func(v gate.Verdict) bool { return v.Cluster == c && v.Rejection.MayHoldCopy() })
		if mayHoldCopy && !slices.Contains(clusters, c) && len(clusters) < dispatch.MaxNominated {
			clusters = append(clusters, c)
		}
	}
	return clusters
}

// orphanNote names the clusters that are nominated only because they may hold a copy.
func (o *observation) orphanNote(clusters []string, choice string) string {
	orphans := clusters[max(len(o.wl.Status.NominatedClusterNames), slices.Index(clusters, choice)+1):]
	if len(orphans) == 0 {
		return ""
	}
	source := "the last attempt"
	if len(o.replacedSliceOn) > 0 {
		source = "the slice that it replaces"
		if len(o.record.EverNominated) > 0 {
			source = "an earlier attempt, or of the slice that it replaces"
		}
	}
	return "; " + strings.Join(orphans, ", ") + " may still hold a copy of " + source
}

// reserve debits the chosen clusters that have room. Where a cluster has none, the workload
// may never take anything. Clusters whose nomination outlived the ledger's TTL are not
// debited again. What the placement of the job reserved for a component stays while it waits.
func (o *observation) reserve(clusters []string, d gate.Decision) *reservation {
	res := &reservation{kept: o.wl.Status.NominatedClusterNames, admittedPods: o.admittedPods(d)}
	if o.hasPlaceInJob() {
		res.kept = append(slices.Clone(res.kept), o.component.cluster)
	}
	var expired []string
	if o.record.IsCurrent(o.quotaReservedAt()) && !o.record.NominatedAt.After(o.now.Add(-o.ledgerTTL)) && o.recordErr == nil {
		expired = o.wl.Status.NominatedClusterNames
	}
	for _, c := range clusters {
		if slices.Contains(d.Order, c) && !slices.Contains(expired, c) {
			res.entries = append(res.entries, o.entryOf(d, c))
			res.entries = append(res.entries, o.componentEntries(c, o.now)...)
		}
	}
	return res
}

// usableHold returns the hold of a decision; nil if no cluster may be held for the workload.
func (o *observation) usableHold(d gate.Decision) *ledger.Hold {
	if !o.mayHold() {
		return nil
	}
	return d.Hold
}

// mayHold reports whether a cluster may be held for the workload. It may not while the workload waits for
// another check, without which it does not start, or components of its job for quota. The check of a trial
// waits for copies of the workload, which the hold would keep from the cluster.
func (o *observation) mayHold() bool { return o.awaitedCheck() == "" && !o.lacksJobQuota() }

// holdEvent is the event of a hold that begins; nil = none does.
func (o *observation) holdEvent(d gate.Decision) *notice {
	if d.Hold == nil || slices.ContainsFunc(o.view.Holds(), func(h ledger.Hold) bool { return h.UID == d.Hold.UID && h.Cluster == d.Hold.Cluster }) {
		return nil
	}
	text := "holds " + d.Hold.Cluster + " for this workload, which fits nowhere, until it has room"
	if d.Hold.Shadow {
		text = "would hold " + d.Hold.Cluster + " for this workload, which fits nowhere: spec.hold.mode is Shadow"
	}
	return &notice{reason: "ClusterHeld", message: "the gate " + text}
}

// unplaceableAfter is the time until whenUnplaceable may apply to the workload; zero = never.
// The wait queue wakes only the first workloads of each line.
func (o *observation) unplaceableAfter() time.Duration {
	if o.component.cluster != "" {
		return 0
	}
	after := gate.UnplaceableAfter(o.gate.Spec.WhenUnplaceable, o.record, o.waitingSince(o.checks...), o.now)
	if after > 0 {
		return after
	}
	if o.gate.Spec.WhenUnplaceable.Mode == v1alpha1.UnplaceableYield || o.gate.Spec.WhenUnplaceable.GiveUpAfterSeconds != nil {
		return timing.Seconds(o.gate.Spec.PeriodSeconds, timing.DefaultPeriod)
	}
	return 0
}

// entry of the ledger for all pods of the workload on a cluster.
func (o *observation) entry(cluster string, debitedAt time.Time) ledger.Entry {
	return ledger.Entry{UID: o.facts.UID, Workload: o.facts.Key(), Cluster: cluster, ClusterQueue: o.facts.ClusterQueue,
		PodSets: o.facts.PodSets, DebitedAt: debitedAt, Owners: o.owners()}
}

// whenUnplaceable applies the gate's whenUnplaceable to a Pending decision, and counts the
// time without room towards giving up. A workload yields only to another pending one. A component
// whose job has a cluster does neither: when a component loses its quota, MultiKueue deletes the
// job on the worker, with all components that run there.
func (o *observation) whenUnplaceable(d gate.Decision) (gate.Decision, dispatch.Record) {
	rule, since := o.gate.Spec.WhenUnplaceable, o.waitingSince(o.checks...)
	isPlaced := o.component.cluster != ""
	record := o.record.CountUnplaced(d.NoRoomAnywhere && rule.GiveUpAfterSeconds != nil && !isPlaced, since, o.now)
	if isPlaced {
		return d, record
	}
	unplaceable := gate.Unplaceable(d, rule, record, since, o.now)
	if unplaceable.State == gate.Retry && !o.othersPending {
		return d, record
	}
	return unplaceable, record
}

// writeDecision returns the writes of a decision: the record if the clock of giving up
// started, stopped or was reset, then the check if it changes. Kueue deactivates a workload as soon as
// its check is Rejected, so that a later write could be a conflict.
func (o *observation) writeDecision(d gate.Decision, record dispatch.Record) []write {
	if d.State == gate.Rejected {
		record = record.GivenUp()
	}
	var writes []write
	if d.State != gate.Ready {
		writes = o.writeClock(record)
	}
	old := *o.check()
	if d.Reason == gate.ReasonQueued && old.State == kueue.CheckStatePending { // lasts until the next round
		return writes
	}
	if string(old.State) == string(d.State) && (old.Message == d.Message || d.State == gate.Ready) {
		return writes
	}
	isTransition := string(old.State) != string(d.State) || o.history.lastReason != d.Reason
	kind := messageKind(d)
	// Numbers change with nearly every job. Together the waiting workloads write one such
	// message per MessageInterval.
	interval := time.Duration(o.totalWaiting) * timing.MessageInterval
	if !o.history.mayWriteMessage(kind, interval, o.now) {
		if !isTransition && old.Message != "" {
			return writes
		}
		kind = ""
	}
	if d.State == gate.Retry {
		return append(writes, o.writeYield(d, record))
	}
	// The time without room ends here; elsewhere the nomination ends it. What a ReclaimPolicy recorded stays.
	placed := dispatch.Record{Reclaimed: record.Reclaimed}
	if d.State == gate.Ready && (o.multiKueue == "" || !o.nominates) && record.Encode() != placed.Encode() {
		writes = append(writes, write{record: &recordWrite{record: placed}})
	}
	w := write{check: &checkWrite{names: o.checks, decision: d, podSetUpdates: o.podSetUpdates(d), messageKind: kind, rememberReason: true}}
	if isTransition {
		w.event = &notice{warning: d.State == gate.Rejected, reason: d.Reason, message: d.Message}
	}
	return append(writes, w)
}

// writeClock returns the write of a record whose clock of giving up started, stopped or was reset.
func (o *observation) writeClock(record dispatch.Record) []write {
	if record.HasClockOf(o.record) {
		return nil
	}
	return []write{{record: &recordWrite{record: record}}}
}

// writeYield deactivates the workload for a moment. A workload that is merely evicted would
// reserve its quota again before Kueue looks at the others. The time to activate it is part
// of the same request, so that a restart does not lose it.
func (o *observation) writeYield(d gate.Decision, record dispatch.Record) write {
	inactive := false
	return write{
		record: &recordWrite{record: record.Yielded(o.waitingSince(o.checks...), o.now), active: &inactive, reason: d.Reason},
		event:  &notice{reason: d.Reason, message: d.Message},
	}
}

// decisionKind is what a decision has in common with those of workloads of the same shape.
func decisionKind(d gate.Decision) string {
	return fmt.Sprintf("%s %t %s", d.State, d.NoRoomAnywhere, messageKind(d))
}

// messageKind of a decision. Two messages of one kind differ only in what was measured.
func messageKind(d gate.Decision) string {
	switch {
	case d.Reason == gate.ReasonGateNotReady:
		return d.Message
	case d.Incomplete:
		return d.Reason + ", incomplete"
	}
	return d.Reason
}

func (o *observation) widenAfter() time.Duration {
	return timing.Seconds(o.gate.Spec.Widen.AfterSeconds, timing.DefaultWidenAfter)
}

// podSetUpdates of a Ready check. Where no later write records the chosen cluster, the pods
// carry it as an annotation; the gate's own updates pin them to it.
func (o *observation) podSetUpdates(d gate.Decision) []kueue.PodSetUpdate {
	if d.State != gate.Ready || len(d.Order) == 0 || !o.readyDecidesPlacement() {
		return nil
	}
	var updates []kueue.PodSetUpdate
	for i := range o.wl.Spec.PodSets {
		update := kueue.PodSetUpdate{Name: o.wl.Spec.PodSets[i].Name, Annotations: map[string]string{v1alpha1.ClusterAnnotation: d.Order[0]}}
		if o.pinsPods() {
			update.NodeSelector, update.Tolerations = o.nodeSelectorFor(d.Order[0]), o.gate.Spec.PodSetUpdates.Tolerations
		}
		updates = append(updates, update)
	}
	return updates
}

func nominationMessage(clusters []string, message string) string {
	return gate.Truncate(fmt.Sprintf("nominated %s: %s", strings.Join(clusters, ", "), message))
}
