package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/registry"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// component is what a workload has to do with the other components of its job. It is empty
// for a workload that is a job of its own.
type component struct {
	// unplaced are the job's other components that have no cluster and will start. Some may have no quota.
	unplaced []*kueue.Workload
	// cluster of the other components; empty = none has one.
	cluster string
	// primary is the component that Kueue places first; nil = it is the workload itself, or does not
	// exist.
	primary *kueue.Workload
}

// jobIndex is a field index of the components of jobs. Its values are the UIDs of the jobs.
const jobIndex = "plimsoll.job"

func jobOf(obj client.Object) []string {
	if wl, ok := obj.(*kueue.Workload); ok {
		if uid := kueuestate.JobUID(wl); uid != "" {
			return []string{string(uid)}
		}
	}
	return nil
}

// concernsComponents selects the events that change the steps of the job's other components: a
// component with a cluster, where the others may go, one that loses its cluster, and a primary
// component that loses its quota or is rejected.
var concernsComponents = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return isPlacedComponent(e.Object) },
	DeleteFunc:  func(e event.DeleteEvent) bool { return isPlacedComponent(e.Object) },
	GenericFunc: func(e event.GenericEvent) bool { return isPlacedComponent(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return isPlacedComponent(e.ObjectNew) || isPlacedComponent(e.ObjectOld) || isOnItsWayPrimary(e.ObjectOld) && !isOnItsWayPrimary(e.ObjectNew)
	},
}

func isPlacedComponent(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return ok && kueuestate.IsComponent(wl) && clusterOf(wl) != ""
}

func isOnItsWayPrimary(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return ok && kueuestate.IsComponent(wl) && !kueuestate.FollowsPrimary(wl) && isOnItsWay(wl)
}

// isOnItsWay reports whether a workload holds quota, and nothing takes it away.
func isOnItsWay(wl *kueue.Workload) bool {
	return kueuestate.AcceptsCheckUpdate(wl) && !kueuestate.IsRejected(wl)
}

func clusterOf(wl *kueue.Workload) string {
	if wl.Status.ClusterName == nil {
		return ""
	}
	return *wl.Status.ClusterName
}

// listJob lists all components of the job of a workload.
func (r *Reconciler) listJob(ctx context.Context, wl *kueue.Workload) (*kueue.WorkloadList, error) {
	list := &kueue.WorkloadList{}
	uid := kueuestate.JobUID(wl)
	if uid == "" {
		return list, nil
	}
	if err := r.client.List(ctx, list, client.InNamespace(wl.Namespace), client.MatchingFields{jobIndex: string(uid)}); err != nil {
		return nil, fmt.Errorf("list the components of the job of Workload %s/%s: %w", wl.Namespace, wl.Name, err)
	}
	return list, nil
}

// otherComponents are the requests of the job's other components that wait for a cluster.
func (r *Reconciler) otherComponents(ctx context.Context, obj client.Object) []reconcile.Request {
	wl, ok := obj.(*kueue.Workload)
	if !ok {
		return nil
	}
	job, err := r.listJob(ctx, wl)
	if err != nil {
		log.FromContext(ctx).Error(err, "Listing components failed; they see the cluster in their next round", "workload", client.ObjectKeyFromObject(obj))
		return nil
	}
	var requests []reconcile.Request
	for i := range job.Items {
		if other := &job.Items[i]; other.UID != wl.UID && kueuestate.HoldsQuota(other) && clusterOf(other) == "" {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName(client.ObjectKeyFromObject(other))})
		}
	}
	return requests
}

// observeComponents reads the other components of the workload's job.
func (r *Reconciler) observeComponents(ctx context.Context, o *observation) error {
	if o.multiKueue == "" {
		return nil
	}
	job, err := r.listJob(ctx, o.wl)
	if err != nil {
		return err
	}
	for i := range job.Items {
		other := &job.Items[i]
		hasEnded := kueuestate.IsFinished(other) || !other.DeletionTimestamp.IsZero()
		if other.UID != o.wl.UID && !hasEnded && !kueuestate.FollowsPrimary(other) {
			o.component.primary = other
		}
		switch cluster := clusterOf(other); {
		case other.UID == o.wl.UID:
		case cluster != "": // also of a component that has ended: Kueue sends the others there
			o.component.cluster = cluster
		case !hasEnded && willStart(other):
			o.component.unplaced = append(o.component.unplaced, other)
		}
	}
	return nil
}

// willStart reports whether a component waits for quota or holds it. One that a user deactivated, or that
// is in no queue, does neither. The operator activates a component again that it deactivated.
func willStart(wl *kueue.Workload) bool {
	if kueuestate.IsActive(wl) {
		return wl.Spec.QueueName != ""
	}
	record, err := dispatch.Decode(wl.Annotations)
	return err == nil && !record.SleepsUntil.IsZero()
}

// assignedFlavors are the flavors that Kueue assigned to the workload and to the other
// components of its job.
func (o *observation) assignedFlavors() []string {
	var names []string
	for _, wl := range append([]*kueue.Workload{o.wl}, o.component.unplaced...) {
		if wl.Status.Admission == nil {
			continue
		}
		for _, assigned := range wl.Status.Admission.PodSetAssignments {
			for _, name := range assigned.Flavors {
				names = append(names, string(name))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// decidesForJob reports whether the workload's cluster becomes the cluster of its whole job.
func (o *observation) decidesForJob() bool {
	return o.component.cluster == "" && !kueuestate.FollowsPrimary(o.wl) && len(o.component.unplaced) > 0
}

// jobFacts are what has to fit on the workload's cluster: the workload or, for the primary
// component of a job, all components.
func (o *observation) jobFacts() shape.Facts {
	if !o.decidesForJob() {
		return o.facts
	}
	var others []shape.Facts
	for _, other := range o.component.unplaced {
		others = append(others, o.componentFacts(other))
	}
	return o.facts.With(others...)
}

// jobRunsFor is the longest time for which what jobFacts has runs; zero = unknown.
func (o *observation) jobRunsFor() time.Duration {
	longest := o.runsFor()
	if !o.decidesForJob() {
		return longest
	}
	for _, other := range o.component.unplaced {
		limit := runTimeLimit(other)
		if limit == 0 || longest == 0 {
			return 0
		}
		longest = max(longest, limit)
	}
	return longest
}

// componentFacts are the facts of another component. A component without quota has no flavors
// yet and gets those of the workload: pod sets of the same name have the same template.
func (o *observation) componentFacts(other *kueue.Workload) shape.Facts {
	if other.Status.Admission == nil {
		other = other.DeepCopy()
		other.Status.Admission = o.wl.Status.Admission
	}
	return o.factsUnder(other, &o.gate.Spec)
}

// componentEntries reserve the devices of the other components, whose cluster the workload
// decides. Each component has its own entry, which its own decision replaces, and which ends with the
// workload's reservation. A component without quota has none: only quota limits how many devices a
// tenant keeps from others.
func (o *observation) componentEntries(cluster string, debitedAt time.Time) []ledger.Entry {
	if !o.decidesForJob() {
		return nil
	}
	var entries []ledger.Entry
	for _, other := range o.component.unplaced {
		if !kueuestate.HoldsQuota(other) {
			continue
		}
		facts := o.componentFacts(other)
		entries = append(entries, ledger.Entry{UID: facts.UID, Workload: facts.Key(), Cluster: cluster, ClusterQueue: facts.ClusterQueue,
			DecidedBy: o.facts.UID, PodSets: facts.PodSets, DebitedAt: debitedAt})
	}
	return entries
}

// lacksJobQuota reports whether the workload decides for components that have no quota.
func (o *observation) lacksJobQuota() bool {
	lacksQuota := func(other *kueue.Workload) bool { return !kueuestate.HoldsQuota(other) }
	return o.decidesForJob() && slices.ContainsFunc(o.component.unplaced, lacksQuota)
}

// awaitsJobQuota reports whether Kueue may be about to reserve quota for the components that the workload
// decides for. Their devices can be reserved then, so that the job starts as a whole. If Kueue's clock is
// ahead, the time counts from when the operator saw the quota.
func (o *observation) awaitsJobQuota() bool {
	since := o.quotaReservedAt()
	if seen := o.history.quotaSeenAt; !seen.IsZero() && seen.Before(since) {
		since = seen
	}
	return o.lacksJobQuota() && o.now.Sub(since) < timing.JobQuotaGrace
}

// hasPlaceInJob reports whether devices are reserved for a component on the cluster of its job: the
// decision that placed the job counted it. The reservation stays while the component waits, and is
// restored after a restart. A replica that an autoscaler adds later has no place in the job. Annotations
// and owners alone give none: users may write them.
func (o *observation) hasPlaceInJob() bool {
	return o.component.cluster != "" && o.view.Reserves(o.facts.UID, o.component.cluster)
}

// undecidedCandidates returns the cluster of the workload's job if the Placement decides others, but no
// longer this one. Kueue sends a component nowhere else. The candidate states why the component waits,
// and can't be chosen: a cluster leaves the decisions because it should not start anything more.
func (o *observation) undecidedCandidates() []gate.Candidate {
	cluster := o.component.cluster
	isDecided := slices.ContainsFunc(o.gate.Clusters, func(c registry.Cluster) bool { return c.Name == cluster })
	if cluster == "" || isDecided || len(o.gate.Clusters) == 0 {
		return nil
	}
	placement := o.gate.Spec.PlacementRef
	return []gate.Candidate{{Name: cluster, Unusable: "runs the job's other components, but is not decided by Placement " + placement.Namespace + "/" + placement.Name}}
}

// viewFor is the ledger without the reservations of the components that the workload decides
// for: an earlier decision made them.
func (r *Reconciler) viewFor(o *observation) ledger.View {
	view := r.ledger.View()
	if !o.decidesForJob() {
		return view
	}
	var uids []string
	for _, other := range o.component.unplaced {
		uids = append(uids, string(other.UID))
	}
	return view.Without(uids)
}

// awaitsPrimary reports whether Kueue will place the workload with the primary component of
// its job, and that component has no cluster yet.
func (o *observation) awaitsPrimary() bool {
	return o.multiKueue != "" && kueuestate.FollowsPrimary(o.wl) && o.component.cluster == "" && len(o.pendingChecks()) > 0
}

// stepAwaitPrimary blocks a component until the primary one has a cluster. Without that
// cluster the gate does not know where the workload needs room. If the primary component has lost its
// quota, the others would hold theirs for nothing: they follow it.
func (o *observation) stepAwaitPrimary() step {
	d := o.decisionWithoutPrimary()
	switch {
	case d.State == gate.Retry:
		return step{decision: &d, writes: []write{o.writeYield(d, o.record)}}
	case d.State == gate.Pending && o.check().Message == d.Message:
		return step{wait: o.waitWithoutResults(), requeueAfter: o.followPrimaryAfter()}
	}
	s := step{decision: &d}
	if d.State == gate.Rejected {
		s.writes = o.writeClock(o.record.GivenUp())
	}
	s.writes = append(s.writes, write{
		check: &checkWrite{names: o.checks, decision: d, rememberReason: true},
		event: &notice{warning: d.State == gate.Rejected, reason: d.Reason, message: d.Message},
	})
	if d.State == gate.Pending {
		s.wait, s.requeueAfter = o.waitWithoutResults(), o.followPrimaryAfter()
	}
	return s
}

// decisionWithoutPrimary is the decision about a component whose primary component has no cluster.
func (o *observation) decisionWithoutPrimary() gate.Decision {
	message := "waits until Kueue has placed component 0 of the job"
	if o.component.primary != nil {
		message += ", Workload " + o.component.primary.Name
	}
	return o.followPrimary(gate.Decision{State: gate.Pending, Reason: gate.ReasonAwaitingPrimary, Message: message})
}

// followPrimary applies the gate's whenUnplaceable to a component whose primary component has no
// quota.
func (o *observation) followPrimary(d gate.Decision) gate.Decision {
	switch {
	case !o.primaryLacksQuota():
	case kueuestate.IsRejected(o.component.primary) && o.gate.Spec.WhenUnplaceable.GiveUpAfterSeconds != nil:
		d.State, d.Reason = gate.Rejected, gate.ReasonGaveUp
		d.Message = "gave up: an admission check rejected component 0 of the job, Workload " + o.component.primary.Name
	case o.othersPending && o.mayYield():
		d.State, d.Reason = gate.Retry, gate.ReasonYield
		d.Message = "returns its quota for other workloads: component 0 of the job, Workload " + o.component.primary.Name + ", has none"
	}
	return d
}

// followPrimaryAfter is the time until followPrimary may apply; zero = at the next change.
func (o *observation) followPrimaryAfter() time.Duration {
	if !o.primaryLacksQuota() {
		return 0
	}
	return o.unplaceableAfter()
}

// primaryLacksQuota reports whether the job's primary component has no quota, or is about to lose it.
// While the gate is at fault, nothing is concluded from that.
func (o *observation) primaryLacksQuota() bool {
	return o.component.primary != nil && !isOnItsWay(o.component.primary) && o.gateKnown && o.gate.Problem == ""
}

// mayYieldWithPrimary reports whether a component gives up its quota for another workload: while the
// gate has deactivated the primary component, or if that has had no quota for yieldAfterSeconds.
func (o *observation) mayYieldWithPrimary() bool {
	if !o.primaryLacksQuota() {
		return false
	}
	record, err := dispatch.Decode(o.component.primary.Annotations)
	if err == nil && !kueuestate.IsActive(o.component.primary) && !record.SleepsUntil.IsZero() {
		return true
	}
	waiting := gate.Decision{State: gate.Pending, Reason: gate.ReasonAwaitingPrimary}
	return gate.Unplaceable(waiting, o.gate.Spec.WhenUnplaceable, o.record, o.waitingSince(o.checks...), o.now).State == gate.Retry
}
