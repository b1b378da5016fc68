package lifecycle

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
	"plimsoll.dev/plimsoll/operator/internal/admission/registry"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// stepDecide lets the gate decide, writes its check and, if the nomination is the gate's
// turn, nominates.
func (o *Situation) stepDecide() Step {
	s := Step{}
	key := registry.QueryKey{Gate: o.Gate.Name}
	d := gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: gate.Truncate("PlacementGate " + o.Gate.Name + " is not ready: " + o.Gate.Problem)}
	var clusters []string
	if o.Gate.Problem == "" {
		key = o.Room.Key
		d, clusters, s.RequeueAfter = o.Decide()
		s.Reservation = o.Reserve(clusters, d)
	}
	record := o.Record.Record
	if d.State == gate.Pending {
		d, record = o.WhenUnplaceable(d)
	}
	d.Hold = o.UsableHold(d)
	if s.Reservation != nil {
		s.Reservation.Hold = d.Hold
	}
	s.Decision = &d
	s.Writes = o.WriteDecision(d, record)
	s.Event = o.holdEvent(d)
	if d.State == gate.Pending {
		s.Wait = o.waitAfter(d, key)
		if s.RequeueAfter == 0 {
			s.RequeueAfter = o.unplaceableAfter()
		}
	}
	if d.State != gate.Ready || !o.MayNominate() {
		return s
	}
	message := d.Message + o.orphanNote(clusters, d.Order[0])
	record = record.Begin(clusters, o.QuotaReservedAt(), message, o.Now)
	s.Writes = append(s.Writes, o.Nominate(record.Nominated, &record, ReasonNominated, message)...)
	s.RequeueAfter = o.widenAfter()
	return s
}

// waitAfter is the workload's entry in the wait queue after a Pending decision. A workload that waits
// for its last copy leaves its line, which it would stop although others have room: it looks again
// by itself.
func (o *Situation) waitAfter(d gate.Decision, key registry.QueryKey) *waitqueue.Entry {
	if d.Reason == gate.ReasonOrphanedCopy {
		return o.waitWithoutResults()
	}
	e := o.WaitEntry(key)
	e.HasRoom = d.Reason == gate.ReasonQueued
	return &e
}

// decide finds the clusters that can take the workload. The returned clusters are those to
// nominate; without MultiKueue, or with Kueue's built-in dispatcher, the chosen one. wait is
// the time for which a possible orphaned copy keeps the workload from going elsewhere.
func (o *Situation) Decide() (d gate.Decision, clusters []string, wait time.Duration) {
	d = o.Decision(o.Record.Attempt + 1)
	if d.State == gate.Pending {
		d = o.followReplacedSlice(d)
	}
	switch {
	case d.State != gate.Ready:
	case o.mustQueue(d):
		d = gate.Decision{State: gate.Pending, Reason: gate.ReasonQueued, Verdicts: d.Verdicts,
			Message: QueuedMessage(o.Room.Preceding.String())}
	case o.awaitsJobQuota():
		d = gate.Decision{State: gate.Pending, Reason: gate.ReasonQueued, Verdicts: d.Verdicts,
			Message: "there is room, but Kueue may be about to reserve quota for other components of the job"}
	case o.MayNominate():
		if d, wait = o.waitForCopies(d); d.State == gate.Ready {
			clusters = o.nominationList(d)
		}
	case o.readyDecidesPlacement(), o.Job.Cluster != "":
		clusters = d.Order[:1]
	}
	return d, clusters, wait
}

// queuedMessage is the message of a workload that has room and waits for another one.
func QueuedMessage(preceding string) string {
	return "there is room, but " + preceding + " is decided first"
}

// mustQueue reports whether a workload that ranks before is decided first. A part of a job that is on
// its way already, or that was counted when its job was placed, does not wait for others.
func (o *Situation) mustQueue(d gate.Decision) bool {
	isOnItsWay := d.Reason == reasonReplacesSlice && slices.ContainsFunc(d.Order, func(c string) bool { return slices.Contains(o.Job.SliceSeenOn, c) })
	return !o.Room.HasTurn && o.Room.Preceding != (types.NamespacedName{}) && !o.hasPlaceInJob() && !isOnItsWay
}

// decision of the gate for an attempt. It is empty if the gate can't decide: then nothing is
// known of where the workload fits.
func (o *Situation) Decision(attempt int) gate.Decision {
	if !o.Decides() {
		return gate.Decision{}
	}
	return gate.Decide(o.JobFacts(), o.Room.Candidates, o.Room.Fleet, o.Room.View, o.Rules(), attempt+kueuestate.CountEvictions(o.Workload), o.Now)
}

func (o *Situation) Rules() gate.Rules {
	rules := gate.RulesOf(&o.Gate.Spec)
	rules.Incumbents = o.SentTo()
	if o.hasPlaceInJob() {
		rules.Incumbents = append(rules.Incumbents, o.Job.Cluster)
	}
	rules.Hold.Gate = o.Gate.Name
	rules.Rank, rules.RunsFor = o.Rank(), o.limits().RunsFor
	if o.Request.Facts.Remote {
		rules.PreemptsLowerPriority, rules.Reclaim = o.Queue.PreemptsLowerPriority, o.Queue.Reclaim
		rules.PreemptsUncounted, rules.CohortQueues = o.Queue.PreemptsUncounted, o.Queue.CohortQueues
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
func (o *Situation) SentTo() []string {
	if sent := o.SentByCheck(); sent != "" {
		return []string{sent}
	}
	switch {
	case len(o.Workload.Status.NominatedClusterNames) > 0 || o.Record.Err != nil || kueuestate.IsEvicted(o.Workload):
		return o.Workload.Status.NominatedClusterNames
	case o.Record.IsCurrent(o.QuotaReservedAt()):
		return o.Record.Nominated
	}
	return o.possibleCopies()
}

// sentByCheck is the cluster that a Ready check chose. With Kueue's built-in dispatcher it is
// the best guess at where the workload goes. Empty = none yet.
func (o *Situation) SentByCheck() string {
	if !o.readyDecidesPlacement() {
		return ""
	}
	return kueuestate.SentCluster(o.Workload, o.Checks.Own, "")
}

// nominationList is what is nominated already, which may have admitted the workload, then
// the choice, then the clusters that may hold a copy if only room speaks against them: the copy
// itself may take that room.
func (o *Situation) nominationList(d gate.Decision) []string {
	clusters := slices.Clone(o.Workload.Status.NominatedClusterNames)
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
func (o *Situation) orphanNote(clusters []string, choice string) string {
	orphans := clusters[max(len(o.Workload.Status.NominatedClusterNames), slices.Index(clusters, choice)+1):]
	if len(orphans) == 0 {
		return ""
	}
	source := "the last attempt"
	if len(o.Job.SliceOn) > 0 {
		source = "the slice that it replaces"
		if len(o.Record.EverNominated) > 0 {
			source = "an earlier attempt, or of the slice that it replaces"
		}
	}
	return "; " + strings.Join(orphans, ", ") + " may still hold a copy of " + source
}

// reserve debits the chosen clusters that have room. Where a cluster has none, the workload
// may never take anything. Clusters whose nomination outlived the ledger's TTL are not
// debited again. What the placement of the job reserved for a component stays while it waits.
func (o *Situation) Reserve(clusters []string, d gate.Decision) *reservation {
	res := &reservation{Kept: o.Workload.Status.NominatedClusterNames, AdmittedPods: o.admittedPods(d)}
	if o.hasPlaceInJob() {
		res.Kept = append(slices.Clone(res.Kept), o.Job.Cluster)
	}
	var expired []string
	if o.Record.IsCurrent(o.QuotaReservedAt()) && !o.Record.NominatedAt.After(o.Now.Add(-o.Room.LedgerTTL)) && o.Record.Err == nil {
		expired = o.Workload.Status.NominatedClusterNames
	}
	for _, c := range clusters {
		if slices.Contains(d.Order, c) && !slices.Contains(expired, c) {
			res.Entries = append(res.Entries, o.entryOf(d, c))
			res.Entries = append(res.Entries, o.ComponentEntries(c, o.Now)...)
		}
	}
	return res
}

// usableHold returns the hold of a decision; nil if no cluster may be held for the workload.
func (o *Situation) UsableHold(d gate.Decision) *ledger.Hold {
	if !o.mayHold() {
		return nil
	}
	return d.Hold
}

// mayHold reports whether a cluster may be held for the workload. It may not while the workload waits for
// another check, without which it does not start, or components of its job for quota. The check of a trial
// waits for copies of the workload, which the hold would keep from the cluster.
func (o *Situation) mayHold() bool { return o.AwaitedCheck() == "" && !o.lacksJobQuota() }

// holdEvent is the event of a hold that begins; nil = none does.
func (o *Situation) holdEvent(d gate.Decision) *Notice {
	if d.Hold == nil || slices.ContainsFunc(o.Room.View.Holds(), func(h ledger.Hold) bool { return h.UID == d.Hold.UID && h.Cluster == d.Hold.Cluster }) {
		return nil
	}
	text := "holds " + d.Hold.Cluster + " for this workload, which fits nowhere, until it has room"
	if d.Hold.Shadow {
		text = "would hold " + d.Hold.Cluster + " for this workload, which fits nowhere: spec.hold.mode is Shadow"
	}
	return &Notice{Reason: "ClusterHeld", Message: "the gate " + text}
}

// unplaceableAfter is the time until whenUnplaceable may apply to the workload; zero = never.
// The wait queue wakes only the first workloads of each line.
func (o *Situation) unplaceableAfter() time.Duration {
	if o.Job.Cluster != "" {
		return 0
	}
	after := gate.UnplaceableAfter(o.Gate.Spec.WhenUnplaceable, o.Record.Record, o.waitingSince(o.Checks.Own...), o.Now)
	if after > 0 {
		return after
	}
	if o.Gate.Spec.WhenUnplaceable.Mode == v1alpha1.UnplaceableYield || o.Gate.Spec.WhenUnplaceable.GiveUpAfterSeconds != nil {
		return timing.Seconds(o.Gate.Spec.PeriodSeconds, timing.DefaultPeriod)
	}
	return 0
}

// entry of the ledger for all pods of the workload on a cluster.
func (o *Situation) Entry(cluster string, debitedAt time.Time) ledger.Entry {
	return ledger.Entry{UID: o.Request.Facts.UID, Workload: o.Request.Facts.Key(), Cluster: cluster, ClusterQueue: o.Request.Facts.ClusterQueue,
		PodSets: o.Request.Facts.PodSets, DebitedAt: debitedAt, Owners: o.Owners()}
}

// whenUnplaceable applies the gate's whenUnplaceable to a Pending decision, and counts the
// time without room towards giving up. A workload yields only to another pending one. A component
// whose job has a cluster does neither: when a component loses its quota, MultiKueue deletes the
// job on the worker, with all components that run there.
func (o *Situation) WhenUnplaceable(d gate.Decision) (gate.Decision, dispatch.Record) {
	rule, since := o.Gate.Spec.WhenUnplaceable, o.waitingSince(o.Checks.Own...)
	isPlaced := o.Job.Cluster != ""
	record := o.Record.CountUnplaced(d.NoRoomAnywhere && rule.GiveUpAfterSeconds != nil && !isPlaced, since, o.Now)
	if isPlaced {
		return d, record
	}
	unplaceable := gate.Unplaceable(d, rule, record, since, o.Now)
	if unplaceable.State == gate.Retry && !o.Room.OthersPending {
		return d, record
	}
	return unplaceable, record
}

// writeDecision returns the writes of a decision: the record if the clock of giving up
// started, stopped or was reset, then the check if it changes. Kueue deactivates a workload as soon as
// its check is Rejected, so that a later write could be a conflict.
func (o *Situation) WriteDecision(d gate.Decision, record dispatch.Record) []Write {
	if d.State == gate.Rejected {
		record = record.GivenUp()
	}
	var writes []Write
	if d.State != gate.Ready {
		writes = o.writeClock(record)
	}
	old := *o.Check()
	if d.Reason == gate.ReasonQueued && old.State == kueue.CheckStatePending { // lasts until the next round
		return writes
	}
	if string(old.State) == string(d.State) && (old.Message == d.Message || d.State == gate.Ready) {
		return writes
	}
	isTransition := string(old.State) != string(d.State) || o.History.LastReason != d.Reason
	kind := MessageKind(d)
	// Numbers change with nearly every job. Together the waiting workloads write one such
	// message per MessageInterval.
	interval := time.Duration(o.Gate.TotalWaiting) * timing.MessageInterval
	if !o.History.mayWriteMessage(kind, interval, o.Now) {
		if !isTransition && old.Message != "" {
			return writes
		}
		kind = ""
	}
	if d.State == gate.Retry {
		return append(writes, o.WriteYield(d, record))
	}
	// The time without room ends here; elsewhere the nomination ends it. What a ReclaimPolicy recorded stays.
	placed := dispatch.Record{Reclaimed: record.Reclaimed}
	if d.State == gate.Ready && (o.Checks.MultiKueue == "" || !o.MultiKueue.Nominates) && record.Encode() != placed.Encode() {
		writes = append(writes, Write{Record: &RecordWrite{Record: placed}})
	}
	w := Write{Check: &CheckWrite{Names: o.Checks.Own, Decision: d, PodSetUpdates: o.podSetUpdates(d), MessageKind: kind, RememberReason: true}}
	if isTransition {
		w.Event = &Notice{Warning: d.State == gate.Rejected, Reason: d.Reason, Message: d.Message}
	}
	return append(writes, w)
}

// writeClock returns the write of a record whose clock of giving up started, stopped or was reset.
func (o *Situation) writeClock(record dispatch.Record) []Write {
	if record.HasClockOf(o.Record.Record) {
		return nil
	}
	return []Write{{Record: &RecordWrite{Record: record}}}
}

// writeYield deactivates the workload for a moment. A workload that is merely evicted would
// reserve its quota again before Kueue looks at the others. The time to activate it is part
// of the same request, so that a restart does not lose it.
func (o *Situation) WriteYield(d gate.Decision, record dispatch.Record) Write {
	inactive := false
	return Write{
		Record: &RecordWrite{Record: record.Yielded(o.waitingSince(o.Checks.Own...), o.Now), Active: &inactive, Reason: d.Reason},
		Event:  &Notice{Reason: d.Reason, Message: d.Message},
	}
}

// decisionKind is what a decision has in common with those of workloads of the same shape.
func DecisionKind(d gate.Decision) string {
	return fmt.Sprintf("%s %t %s", d.State, d.NoRoomAnywhere, MessageKind(d))
}

// messageKind of a decision. Two messages of one kind differ only in what was measured.
func MessageKind(d gate.Decision) string {
	switch {
	case d.Reason == gate.ReasonGateNotReady:
		return d.Message
	case d.Incomplete:
		return d.Reason + ", incomplete"
	}
	return d.Reason
}

func (o *Situation) widenAfter() time.Duration {
	return timing.Seconds(o.Gate.Spec.Widen.AfterSeconds, timing.DefaultWidenAfter)
}

// podSetUpdates of a Ready check. Where no later write records the chosen cluster, the pods
// carry it as an annotation; the gate's own updates pin them to it.
func (o *Situation) podSetUpdates(d gate.Decision) []kueue.PodSetUpdate {
	if d.State != gate.Ready || len(d.Order) == 0 || !o.readyDecidesPlacement() {
		return nil
	}
	var updates []kueue.PodSetUpdate
	for i := range o.Workload.Spec.PodSets {
		update := kueue.PodSetUpdate{Name: o.Workload.Spec.PodSets[i].Name, Annotations: map[string]string{v1alpha1.ClusterAnnotation: d.Order[0]}}
		if o.pinsPods() {
			update.NodeSelector, update.Tolerations = o.nodeSelectorFor(d.Order[0]), o.Gate.Spec.PodSetUpdates.Tolerations
		}
		updates = append(updates, update)
	}
	return updates
}

func nominationMessage(clusters []string, message string) string {
	return gate.Truncate(fmt.Sprintf("nominated %s: %s", strings.Join(clusters, ", "), message))
}

// awaitedCheck returns an admission check of another controller than the gate and MultiKueue that is not
// Ready. Empty means none.
func (o *Situation) AwaitedCheck() string {
	for _, c := range o.Workload.Status.AdmissionChecks {
		if name := string(c.Name); c.State != kueue.CheckStateReady && name != o.Checks.MultiKueue && !slices.Contains(o.Checks.Own, name) {
			return name
		}
	}
	return ""
}
