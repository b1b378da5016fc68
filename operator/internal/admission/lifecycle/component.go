package lifecycle

import (
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/registry"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// isOnItsWay reports whether a workload holds quota, and nothing takes it away.
func IsOnItsWay(wl *kueue.Workload) bool {
	return kueuestate.AcceptsCheckUpdate(wl) && !kueuestate.IsRejected(wl)
}

func ClusterOf(wl *kueue.Workload) string {
	if wl.Status.ClusterName == nil {
		return ""
	}
	return *wl.Status.ClusterName
}

// assignedFlavors are the flavors that Kueue assigned to the workload and to the other
// components of its job.
func (o *Situation) AssignedFlavors() []string {
	var names []string
	for _, wl := range append([]*kueue.Workload{o.Workload}, o.Job.Unplaced...) {
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
func (o *Situation) DecidesForJob() bool {
	return o.Job.Cluster == "" && !kueuestate.FollowsPrimary(o.Workload) && len(o.Job.Unplaced) > 0
}

// jobFacts are what has to fit on the workload's cluster: the workload or, for the primary
// component of a job, all components.
func (o *Situation) JobFacts() shape.Facts {
	if !o.DecidesForJob() {
		return o.Request.Facts
	}
	var others []shape.Facts
	for _, other := range o.Job.Unplaced {
		others = append(others, o.componentFacts(other))
	}
	return o.Request.Facts.With(others...)
}

// jobRunsFor is the longest time for which what jobFacts has runs; zero = unknown.
func (o *Situation) jobRunsFor() time.Duration {
	longest := o.runsFor()
	if !o.DecidesForJob() {
		return longest
	}
	for _, other := range o.Job.Unplaced {
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
func (o *Situation) componentFacts(other *kueue.Workload) shape.Facts {
	if other.Status.Admission == nil {
		other = other.DeepCopy()
		other.Status.Admission = o.Workload.Status.Admission
	}
	return o.FactsUnder(other, &o.Gate.Spec)
}

// componentEntries reserve the devices of the other components, whose cluster the workload
// decides. Each component has its own entry, which its own decision replaces, and which ends with the
// workload's reservation. A component without quota has none: only quota limits how many devices a
// tenant keeps from others.
func (o *Situation) ComponentEntries(cluster string, debitedAt time.Time) []ledger.Entry {
	if !o.DecidesForJob() {
		return nil
	}
	var entries []ledger.Entry
	for _, other := range o.Job.Unplaced {
		if !kueuestate.HoldsQuota(other) {
			continue
		}
		facts := o.componentFacts(other)
		entries = append(entries, ledger.Entry{UID: facts.UID, Workload: facts.Key(), Cluster: cluster, ClusterQueue: facts.ClusterQueue,
			DecidedBy: o.Request.Facts.UID, PodSets: facts.PodSets, DebitedAt: debitedAt})
	}
	return entries
}

// lacksJobQuota reports whether the workload decides for components that have no quota.
func (o *Situation) lacksJobQuota() bool {
	lacksQuota := func(other *kueue.Workload) bool { return !kueuestate.HoldsQuota(other) }
	return o.DecidesForJob() && slices.ContainsFunc(o.Job.Unplaced, lacksQuota)
}

// awaitsJobQuota reports whether Kueue may be about to reserve quota for the components that the workload
// decides for. Their devices can be reserved then, so that the job starts as a whole. If Kueue's clock is
// ahead, the time counts from when the operator saw the quota.
func (o *Situation) awaitsJobQuota() bool {
	since := o.QuotaReservedAt()
	if seen := o.History.QuotaSeenAt; !seen.IsZero() && seen.Before(since) {
		since = seen
	}
	return o.lacksJobQuota() && o.Now.Sub(since) < timing.JobQuotaGrace
}

// hasPlaceInJob reports whether devices are reserved for a component on the cluster of its job: the
// decision that placed the job counted it. The reservation stays while the component waits, and is
// restored after a restart. A replica that an autoscaler adds later has no place in the job. Annotations
// and owners alone give none: users may write them.
func (o *Situation) hasPlaceInJob() bool {
	return o.Job.Cluster != "" && o.Room.View.Reserves(o.Request.Facts.UID, o.Job.Cluster)
}

// undecidedCandidates returns the cluster of the workload's job if the Placement decides others, but no
// longer this one. Kueue sends a component nowhere else. The candidate states why the component waits,
// and can't be chosen: a cluster leaves the decisions because it should not start anything more.
func (o *Situation) undecidedCandidates() []gate.Candidate {
	cluster := o.Job.Cluster
	isDecided := slices.ContainsFunc(o.Gate.Clusters, func(c registry.Cluster) bool { return c.Name == cluster })
	if cluster == "" || isDecided || len(o.Gate.Clusters) == 0 {
		return nil
	}
	placement := o.Gate.Spec.PlacementRef
	return []gate.Candidate{{Name: cluster, Unusable: "runs the job's other components, but is not decided by Placement " + placement.Namespace + "/" + placement.Name}}
}

// awaitsPrimary reports whether Kueue will place the workload with the primary component of
// its job, and that component has no cluster yet.
func (o *Situation) awaitsPrimary() bool {
	return o.Checks.MultiKueue != "" && kueuestate.FollowsPrimary(o.Workload) && o.Job.Cluster == "" && len(o.pendingChecks()) > 0
}

// stepAwaitPrimary blocks a component until the primary one has a cluster. Without that
// cluster the gate does not know where the workload needs room. If the primary component has lost its
// quota, the others would hold theirs for nothing: they follow it.
func (o *Situation) stepAwaitPrimary() Step {
	d := o.decisionWithoutPrimary()
	switch {
	case d.State == gate.Retry:
		return Step{Decision: &d, Writes: []Write{o.WriteYield(d, o.Record.Record)}}
	case d.State == gate.Pending && o.Check().Message == d.Message:
		return Step{Wait: o.waitWithoutResults(), RequeueAfter: o.followPrimaryAfter()}
	}
	s := Step{Decision: &d}
	if d.State == gate.Rejected {
		s.Writes = o.writeClock(o.Record.GivenUp())
	}
	s.Writes = append(s.Writes, Write{
		Check: &CheckWrite{Names: o.Checks.Own, Decision: d, RememberReason: true},
		Event: &Notice{Warning: d.State == gate.Rejected, Reason: d.Reason, Message: d.Message},
	})
	if d.State == gate.Pending {
		s.Wait, s.RequeueAfter = o.waitWithoutResults(), o.followPrimaryAfter()
	}
	return s
}

// decisionWithoutPrimary is the decision about a component whose primary component has no cluster.
func (o *Situation) decisionWithoutPrimary() gate.Decision {
	message := "waits until Kueue has placed component 0 of the job"
	if o.Job.Primary != nil {
		message += ", Workload " + o.Job.Primary.Name
	}
	return o.followPrimary(gate.Decision{State: gate.Pending, Reason: gate.ReasonAwaitingPrimary, Message: message})
}

// followPrimary applies the gate's whenUnplaceable to a component whose primary component has no
// quota.
func (o *Situation) followPrimary(d gate.Decision) gate.Decision {
	switch {
	case !o.primaryLacksQuota():
	case kueuestate.IsRejected(o.Job.Primary) && o.Gate.Spec.WhenUnplaceable.GiveUpAfterSeconds != nil:
		d.State, d.Reason = gate.Rejected, gate.ReasonGaveUp
		d.Message = "gave up: an admission check rejected component 0 of the job, Workload " + o.Job.Primary.Name
	case o.Room.OthersPending && o.MayYield():
		d.State, d.Reason = gate.Retry, gate.ReasonYield
		d.Message = "returns its quota for other workloads: component 0 of the job, Workload " + o.Job.Primary.Name + ", has none"
	}
	return d
}

// followPrimaryAfter is the time until followPrimary may apply; zero = at the next change.
func (o *Situation) followPrimaryAfter() time.Duration {
	if !o.primaryLacksQuota() {
		return 0
	}
	return o.unplaceableAfter()
}

// primaryLacksQuota reports whether the job's primary component has no quota, or is about to lose it.
// While the gate is at fault, nothing is concluded from that.
func (o *Situation) primaryLacksQuota() bool {
	return o.Job.Primary != nil && !IsOnItsWay(o.Job.Primary) && o.Gate.Known && o.Gate.Problem == ""
}

// mayYieldWithPrimary reports whether a component gives up its quota for another workload: while the
// gate has deactivated the primary component, or if that has had no quota for yieldAfterSeconds.
func (o *Situation) mayYieldWithPrimary() bool {
	if !o.primaryLacksQuota() {
		return false
	}
	record, err := dispatch.Decode(o.Job.Primary.Annotations)
	if err == nil && !kueuestate.IsActive(o.Job.Primary) && !record.SleepsUntil.IsZero() {
		return true
	}
	waiting := gate.Decision{State: gate.Pending, Reason: gate.ReasonAwaitingPrimary}
	return gate.Unplaceable(waiting, o.Gate.Spec.WhenUnplaceable, o.Record.Record, o.waitingSince(o.Checks.Own...), o.Now).State == gate.Retry
}
