package workload

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/ledger"
	"plimsoll.dev/plimsoll/operator/internal/shape"
)

// component is what a workload has to do with the other components of its job. It is empty
// for a workload that is a job of its own.
type component struct {
	// unplaced are the job's other components that have no cluster.
	unplaced []*kueue.Workload
	// cluster of the other components; empty = none has one.
	cluster string
	// primary is the name of the component that Kueue places first; empty = it does not exist.
	primary string
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

// isPlacedComponent selects components with a cluster: the other components of the job may
// only go there.
var isPlacedComponent = predicate.NewPredicateFuncs(func(obj client.Object) bool {
	wl, ok := obj.(*kueue.Workload)
	return ok && kueuestate.IsComponent(wl) && clusterOf(wl) != ""
})

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
			o.component.primary = other.Name
		}
		switch cluster := clusterOf(other); {
		case other.UID == o.wl.UID:
		case cluster != "": // also of a component that has ended: Kueue sends the others there
			o.component.cluster = cluster
		case !hasEnded:
			o.component.unplaced = append(o.component.unplaced, other)
		}
	}
	return nil
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
// decides. Each component has its own entry, which its own decision replaces.
func (o *observation) componentEntries(cluster string) []ledger.Entry {
	if !o.decidesForJob() {
		return nil
	}
	var entries []ledger.Entry
	for _, other := range o.component.unplaced {
		facts := o.componentFacts(other)
		entries = append(entries, ledger.Entry{UID: facts.UID, Workload: facts.Key(), Cluster: cluster, PodSets: facts.PodSets, DebitedAt: o.now})
	}
	return entries
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
// cluster the gate does not know where the workload needs room.
func (o *observation) stepAwaitPrimary() step {
	s := step{wait: o.waitWithoutResults()}
	message := "waits until Kueue has placed component 0 of the job"
	if o.component.primary != "" {
		message += ", Workload " + o.component.primary
	}
	if o.check().Message == message {
		return s
	}
	d := gate.Decision{State: gate.Pending, Reason: gate.ReasonAwaitingPrimary, Message: message}
	s.decision = &d
	s.writes = []write{{
		check: &checkWrite{names: o.checks, decision: d, rememberReason: true},
		event: &notice{reason: d.Reason, message: message},
	}}
	return s
}
