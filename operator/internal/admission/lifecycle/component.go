package lifecycle

import (
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// AssignedFlavors are the flavors that Kueue assigned to the workload and to the other
// components of its job.
func (j Job) AssignedFlavors(own *kueue.Workload) []string {
	var names []string
	for _, wl := range append([]*kueue.Workload{own}, j.Unplaced...) {
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

// IsPlacedWith reports whether the workload's cluster becomes the cluster of its whole job.
func (j Job) IsPlacedWith(wl *kueue.Workload) bool {
	return j.Cluster == "" && !kueuestate.FollowsPrimary(wl) && len(j.Unplaced) > 0
}

// JobFacts are what has to fit on the workload's cluster: the workload or, for the primary
// component of a job, all components.
func (s *Situation) JobFacts() shape.Facts {
	if !s.Job.IsPlacedWith(s.Workload) {
		return s.Request.Facts
	}
	var others []shape.Facts
	for _, other := range s.Job.Unplaced {
		others = append(others, componentFacts(s, other))
	}
	return s.Request.Facts.With(others...)
}

// maxRunTime is the longest time for which the workload runs, or all components if the job is placed with it;
// zero = unknown.
func (j Job) maxRunTime(wl *kueue.Workload) time.Duration {
	longest := kueuestate.MaxRunTime(wl)
	if !j.IsPlacedWith(wl) {
		return longest
	}
	for _, other := range j.Unplaced {
		limit := kueuestate.MaxRunTime(other)
		if limit == 0 || longest == 0 {
			return 0
		}
		longest = max(longest, limit)
	}
	return longest
}

// componentFacts are the facts of another component. A component without quota has no flavors
// yet and gets those of the workload: pod sets of the same name have the same template.
func componentFacts(s *Situation, other *kueue.Workload) shape.Facts {
	if other.Status.Admission == nil {
		other = other.DeepCopy()
		other.Status.Admission = s.Workload.Status.Admission
	}
	return s.FactsUnder(other, &s.Gate.Spec)
}

// ComponentEntries reserve the devices of the other components, whose cluster the workload
// decides. Each component has its own entry, which its own decision replaces, and which ends with the
// workload's reservation. A component without quota has none: only quota limits how many devices a
// tenant keeps from others.
func (s *Situation) ComponentEntries(cluster string, debitedAt time.Time) []ledger.Entry {
	if !s.Job.IsPlacedWith(s.Workload) {
		return nil
	}
	var entries []ledger.Entry
	for _, other := range s.Job.Unplaced {
		if !kueuestate.HoldsQuota(other) {
			continue
		}
		facts := componentFacts(s, other)
		entries = append(entries, ledger.Entry{UID: facts.UID, Workload: facts.Key(), Cluster: cluster, Queue: ledger.QueueOf(&facts),
			DecidedBy: s.Request.Facts.UID, PodSets: facts.PodSets, DebitedAt: debitedAt})
	}
	return entries
}

// lacksQuota reports whether the job is placed with the workload, and other components have no quota.
func (j Job) lacksQuota(wl *kueue.Workload) bool {
	return j.IsPlacedWith(wl) && len(j.withoutQuota()) > 0
}

// awaitsJobQuota reports whether Kueue may be about to reserve quota for the components that the workload
// decides for. Their devices can be reserved then, so that the job starts as a whole.
func awaitsJobQuota(s *Situation) bool {
	return s.Job.lacksQuota(s.Workload) && hasQuotaFor(s) < timing.JobQuotaGrace
}

// hasQuotaFor is for how long the workload has quota. If Kueue's clock is ahead, the time counts from when the
// operator saw the quota.
func hasQuotaFor(s *Situation) time.Duration {
	since := kueuestate.QuotaReservedAt(s.Workload)
	if seen := s.History.QuotaSeenAt; !seen.IsZero() && seen.Before(since) {
		since = seen
	}
	return s.Now.Sub(since)
}

// jobQuotaWait is for how much longer the workload waits until all components of its job have quota. While one has
// none, MultiKueue deletes the job on its cluster:
//  1. Kueue on the worker creates Workloads for all components as soon as one of them is sent there.
//  2. MultiKueue removes what a worker has of a Workload without quota on the hub. For a component, that is the job.
//  3. The other components lose their copies and their quota, and would be sent again.
//
// When the time is over, the component is sent: the eviction that follows returns its quota, which another job may
// wait for that lacks quota itself.
func jobQuotaWait(s *Situation) time.Duration {
	if s.Dispatch() == Local || len(s.Job.withoutQuota()) == 0 || awaitsJobQuota(s) {
		return 0
	}
	return max(0, timing.MaxJobQuotaWait-hasQuotaFor(s))
}

func awaitQuota(s *Situation, d gate.Decision) gate.Decision {
	return gate.Decision{State: gate.Pending, Reason: gate.ReasonAwaitingQuota, Verdicts: d.Verdicts, Message: gate.Truncate(
		"there is room, but Workload " + s.Job.withoutQuota()[0].Name + " of the job has no quota, without which MultiKueue deletes the job on its cluster")}
}

// withoutQuota are the other components that wait for quota.
func (j Job) withoutQuota() []*kueue.Workload {
	return slices.DeleteFunc(slices.Clone(j.Unplaced), kueuestate.HoldsQuota)
}

// hasPlaceInJob reports whether devices are reserved for a component on the cluster of its job: the
// decision that placed the job counted it. The reservation stays while the component waits, and is
// restored after a restart. A replica that an autoscaler adds later has no place in the job. Annotations
// and owners alone give none: users may write them.
func hasPlaceInJob(s *Situation) bool {
	return s.Job.Cluster != "" && s.Room.View.Reserves(s.Request.Facts.UID, s.Job.Cluster)
}

// undecidedCandidates returns the cluster of a workload's job if the Placement decides others, but no
// longer this one. Kueue sends a component nowhere else. The candidate states why the component waits,
// and can't be chosen: a cluster leaves the decisions because it should not start anything more.
func (g Gate) undecidedCandidates(cluster string) []gate.Candidate {
	isDecided := slices.ContainsFunc(g.Clusters, func(c gatestate.Cluster) bool { return c.Name == cluster })
	if cluster == "" || isDecided || len(g.Clusters) == 0 {
		return nil
	}
	placement := g.Spec.PlacementRef
	undecided := gate.Candidate{Name: cluster}
	undecided.Exclude(gate.RejectUndecided, placement.Namespace+"/"+placement.Name)
	return []gate.Candidate{undecided}
}

// awaitsPrimary reports whether Kueue will place the workload with the primary component of
// its job, and that component has no cluster yet.
func awaitsPrimary(s *Situation) bool {
	return s.Dispatch() != Local && kueuestate.FollowsPrimary(s.Workload) && s.Job.Cluster == "" && len(s.Checks.Pending(s.Workload)) > 0
}

// stepAwaitPrimary blocks a component until the primary one has a cluster. Without that
// cluster the gate does not know where the workload needs room. If the primary component has lost its
// quota, the others would hold theirs for nothing: they follow it.
func stepAwaitPrimary(s *Situation) Step {
	d := decisionWithoutPrimary(s)
	switch {
	case d.State == gate.Retry:
		return Step{Decision: &d, Writes: []Write{WriteYield(s, d, s.Record.Record)}}
	case d.State == gate.Pending && s.Check().Message == d.Message:
		return Step{Wait: waitWithoutResults(s), RequeueAfter: followPrimaryAfter(s)}
	}
	next := Step{Decision: &d}
	if d.State == gate.Rejected {
		next.Writes = s.Record.writeClock(s.Record.GivenUp())
	}
	next.Writes = append(next.Writes, Write{
		Check: &CheckWrite{Names: s.Checks.Own, Decision: d, RememberReason: true},
		Event: &Notice{Warning: d.State == gate.Rejected, Reason: d.Reason, Message: d.Message},
	})
	if d.State == gate.Pending {
		next.Wait, next.RequeueAfter = waitWithoutResults(s), followPrimaryAfter(s)
	}
	return next
}

// decisionWithoutPrimary is the decision about a component whose primary component has no cluster.
func decisionWithoutPrimary(s *Situation) gate.Decision {
	message := "waits until Kueue has placed component 0 of the job"
	if s.Job.Primary != nil {
		message += ", Workload " + s.Job.Primary.Name
	}
	return followPrimary(s, gate.Decision{State: gate.Pending, Reason: gate.ReasonAwaitingPrimary, Message: message})
}

// followPrimary applies the gate's WhenUnplaceable to a component whose primary component has no
// quota.
func followPrimary(s *Situation, d gate.Decision) gate.Decision {
	switch why := s.Job.whyPrimaryIsParked(); {
	case !primaryLacksQuota(s):
	case why != "" && s.mayReturnQuota():
		d.State, d.Reason, d.Message = gate.Retry, gate.ReasonParked, why
	case kueuestate.IsRejected(s.Job.Primary) && (s.Gate.Spec.WhenUnplaceable.GiveUpAfterSeconds != nil || neverMode(s) == v1alpha1.NeverReject):
		d.State, d.Reason = gate.Rejected, gate.ReasonGaveUp
		d.Message = "gave up: an admission check rejected component 0 of the job, Workload " + s.Job.Primary.Name
	case s.Room.OthersPending && s.MayYield():
		d.State, d.Reason = gate.Retry, gate.ReasonYield
		d.Message = "returns its quota for other workloads: component 0 of the job, Workload " + s.Job.Primary.Name + ", has none"
	}
	return d
}

// followPrimaryAfter is the time until followPrimary may apply; zero = at the next change.
func followPrimaryAfter(s *Situation) time.Duration {
	if !primaryLacksQuota(s) {
		return 0
	}
	return unplaceableAfter(s)
}

// primaryLacksQuota reports whether the job's primary component has no quota, or is about to lose it.
// While the gate is at fault, nothing is concluded from that.
func primaryLacksQuota(s *Situation) bool {
	return s.Job.Primary != nil && !kueuestate.IsOnItsWay(s.Job.Primary) && s.Gate.Known && s.Gate.Problem == ""
}

// mayYieldWithPrimary reports whether a component gives up its quota for another workload: while the
// gate has deactivated the primary component, or if that has had no quota for yieldAfterSeconds.
func mayYieldWithPrimary(s *Situation) bool {
	if !primaryLacksQuota(s) {
		return false
	}
	record, err := dispatch.Decode(s.Job.Primary.Annotations)
	if err == nil && !kueuestate.IsActive(s.Job.Primary) && !record.SleepsUntil.IsZero() {
		return true
	}
	waiting := gate.Decision{State: gate.Pending, Reason: gate.ReasonAwaitingPrimary}
	return gate.Unplaceable(waiting, s.Gate.Spec.WhenUnplaceable, s.Record.Record, kueuestate.PendingSince(s.Workload, s.Checks.Own[0], s.Now), s.Now).State == gate.Retry
}

func limitOfComponent(s *Situation) string {
	switch {
	case s.Job.Cluster == "":
		return ""
	case hasPlaceInJob(s):
		return s.Job.Cluster + ", with a place" // it passes holds there
	}
	return s.Job.Cluster
}

func excludeByComponent(s *Situation, c *gate.Candidate) {
	if s.Job.Cluster != "" && c.Name != s.Job.Cluster {
		c.Exclude(gate.RejectJobElsewhere, s.Job.Cluster)
	}
}
