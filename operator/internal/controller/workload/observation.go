package workload

import (
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/order"
	"plimsoll.dev/plimsoll/operator/internal/admission/querycache"
	"plimsoll.dev/plimsoll/operator/internal/admission/registry"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// observation is everything that one reconciliation knows of a workload. observe fills it,
// measure adds what a decision needs, and nothing after that reads a client or a clock.
type observation struct {
	key types.NamespacedName
	// wl is nil if the Workload does not exist.
	wl  *kueue.Workload
	now time.Time
	// phase that phaseOf computed.
	phase Phase

	// checks are the names of the gate's entries, sorted. More than one is a mistake.
	checks   []string
	gateName string
	// lacksChecks: Kueue has yet to give the workload checks of its queue, which may be the gate's.
	lacksChecks bool
	// trialChecks are the names of the entries that TrialPolicies decide.
	trialChecks []string
	// gate as the registry knows it. gateKnown is false while its controller has not read it,
	// gateExists if the API server has it.
	gate       registry.Gate
	gateKnown  bool
	gateExists bool

	// multiKueue is the name of MultiKueue's check; empty = none.
	multiKueue string
	workers    workers
	// nominates: the operator is Kueue's dispatcher.
	nominates bool

	// lag is how long MultiKueue takes to act on a nomination.
	lag time.Duration
	// evictionLag is how long MultiKueue takes to complete an eviction.
	evictionLag time.Duration
	record      dispatch.Record
	recordErr   error
	history     history

	// flavorLabels are the nodeLabels of the assigned ResourceFlavors.
	flavorLabels map[string]map[string]string
	// claimTemplates are the claims of the ResourceClaimTemplates of the pods, by name; nil if the
	// template does not exist. The map is nil if the gate does not fit shares.
	claimTemplates map[string]*resourcev1.ResourceClaimSpec
	// profile of the workload's job; nil if the gate reads none, or if there is none.
	profile *v1alpha1.JobProfileStatus
	// nodeRequirements of a workload that MultiKueue does not copy.
	nodeRequirements []nodeRequirement
	// canPreempt: the workload's ClusterQueue may take quota from others.
	canPreempt bool
	// preemptsLowerPriority: the workload may preempt lower priorities of its ClusterQueue.
	preemptsLowerPriority bool
	// reclaim states from whom the workload's ClusterQueue may take back quota.
	reclaim gate.Reclaim
	// preemptsUncounted: Kueue may preempt others for the workload that the gate does not count.
	preemptsUncounted bool
	// cohortQueues are the other ClusterQueues in the cohort tree of the workload's.
	cohortQueues []string
	facts        shape.Facts
	component    component
	// replacedSliceOn are the clusters that may hold copies of the slice which the workload replaces, and
	// of the workload itself if an eviction did not remove them. Empty for other workloads.
	replacedSliceOn []string
	// sliceSeenOn are those of replacedSliceOn that Kueue's status names, or that this process saw
	// nominated. The others are named by records, which users may write.
	sliceSeenOn []string
	// runningSlice is the admitted slice of a job that runs without MultiKueue, if the workload is a newer
	// slice of it; nil = none.
	runningSlice *kueue.Workload

	// totalWaiting is the number of waiting workloads at all gates.
	totalWaiting int32
	// conflictEvidence is what the registry knows of a conflicting dispatcher.
	conflictEvidence string
	// settings of the ledger.
	ledgerTTL time.Duration

	// hasTurn: the wait queue woke the workload as the next one to be decided.
	hasTurn bool

	// What measure adds.
	queryKey querycache.Key
	// preceding is the waiting workload that ranks before and is decided first; empty = none.
	preceding  types.NamespacedName
	candidates []gate.Candidate
	fleet      gate.Fleet
	view       ledger.View
	// holdingOn are the nominated clusters where pods of the workload hold devices, if the
	// nomination is about to be widened.
	holdingOn []string
	// othersPending: another workload waits for the quota that this one holds.
	othersPending bool
}

// workers are the clusters of the MultiKueueConfig that MultiKueue's check names.
type workers struct {
	config string
	// connected clusters that the workload's annotation permits, in the order of the
	// configuration, and since when.
	connected      []string
	connectedSince map[string]time.Time
	// disconnected are the configuration's other clusters with the reason.
	disconnected map[string]string
}

func (w workers) isConnected(cluster string) bool { return slices.Contains(w.connected, cluster) }

// factsUnder reads the facts of the workload, or of another component of its job, as a gate's
// settings ask for.
func (o *observation) factsUnder(wl *kueue.Workload, spec *v1alpha1.PlacementGateSpec) shape.Facts {
	opts := shape.OptionsOf(spec, func(flavor string) map[string]string { return o.flavorLabels[flavor] })
	opts.Profile, opts.Copied = o.profile, o.multiKueue != ""
	if o.claimTemplates != nil {
		opts.ClaimTemplate = func(name string) *resourcev1.ResourceClaimSpec { return o.claimTemplates[name] }
	}
	facts := shape.FactsOf(wl, opts)
	facts.Remote = opts.Copied
	facts.Preempts = facts.Remote && o.canPreempt
	facts.Reclaims = facts.Remote && len(o.reclaim.Queues) > 0
	return facts
}

// mayYield reports whether the workload gives up its quota if another one waits for it: it has held
// the quota for long enough, or follows the primary component of its job. A yield would reset the
// retries that Kueue counts, and end a trial in the middle. A workload is tried once.
func (o *observation) mayYield() bool {
	rule := o.gate.Spec.WhenUnplaceable
	switch {
	case rule.Mode != v1alpha1.UnplaceableYield || o.wl.Status.Admission == nil || o.component.cluster != "" || kueuestate.HasRetries(o.wl):
		return false
	case slices.ContainsFunc(o.trialChecks, func(name string) bool { return kueuestate.FindCheck(o.wl, name).State == kueue.CheckStatePending }):
		return false
	case o.phase == PhaseAwaitingPrimary:
		return o.mayYieldWithPrimary()
	}
	return o.phase == PhaseWaiting && o.now.Sub(o.waitingSince(o.checks...)) >= timing.Seconds(rule.YieldAfterSeconds, timing.DefaultYieldAfter)
}

// decides reports whether the step of this phase rests on a decision of the gate.
func (o *observation) decides() bool {
	isDeciding := slices.Contains([]Phase{PhaseWaiting, PhaseNominating, PhaseNominated, PhaseEvictionStuck}, o.phase)
	return isDeciding && o.gateKnown && o.gate.Problem == "" && len(o.checks) == 1
}

// candidatesWith pairs the gate's clusters with their query results. MultiKueue's
// configuration and the pods' own node selectors rule clusters out.
func (o *observation) candidatesWith(results map[string]querycache.ClusterResult) []gate.Candidate {
	list := o.undecidedCandidates()
	left, leftFor := o.record.LeftCluster(o.now)
	for _, c := range o.gate.Clusters {
		result := results[c.Name]
		candidate := gate.Candidate{Name: c.Name, Scores: c.Scores, SampledAt: result.SampledAt, QuotaSampledAt: result.QuotaSampledAt,
			Shapes: result.Shapes, Conditions: result.Conditions, Prerequisites: result.Prerequisites, Preference: result.Preference}
		if o.multiKueue != "" && !o.workers.isConnected(c.Name) {
			candidate.Unusable = o.workers.disconnected[c.Name]
			if isMember := candidate.Unusable != ""; !isMember && o.mayRequestClusters() {
				candidate.Outside = true
			} else if !isMember {
				candidate.Unusable = "is not in MultiKueueConfig " + o.workers.config
			}
		}
		candidate.Outside = candidate.Outside || o.isLeaving(c.Name)
		if candidate.Outside && !kueuestate.AllowsCluster(o.wl, c.Name) {
			candidate.Unusable = "is not in annotation " + kueuestate.ClusterNamesAnnotation
		}
		if o.pinsPods() {
			candidate.Unusable = o.contradiction(c.Name)
		}
		if candidate.Unusable == "" && o.component.cluster != "" && c.Name != o.component.cluster {
			candidate.Unusable = "does not run the job's other components, which are on " + o.component.cluster
		}
		if candidate.Unusable == "" && c.Name == left {
			candidate.Unusable = "was left for " + leftFor
		}
		list = append(list, candidate)
	}
	return list
}

// mayRequestClusters reports whether the gate can add clusters to its MultiKueueConfig. Under
// Kueue's built-in dispatcher no member can leave: Kueue may nominate it at any time.
func (o *observation) mayRequestClusters() bool {
	return o.nominates && o.gate.Spec.MultiKueue != nil
}

// rank is the workload's place in the gate's order. A yield does not move it to the end. Users may
// write the record, but no workload has waited since before its creation.
func (o *observation) rank() order.Rank {
	rank := order.Rank{Since: o.quotaReservedAt(), Name: o.key.String()}
	if first := o.record.WaitsSince; !first.IsZero() {
		if created := o.wl.CreationTimestamp.Time; first.Before(created) {
			first = created
		}
		if first.Before(rank.Since) {
			rank.Since = first
		}
	}
	if o.wl.Spec.Priority != nil {
		rank.Priority = *o.wl.Spec.Priority
	}
	return rank
}

// waitEntry is the workload's entry in the wait queue. A workload without a decision competes
// with no other one.
func (o *observation) waitEntry(key querycache.Key) waitqueue.Entry {
	e := waitqueue.Entry{Workload: o.key, Key: key, Rank: o.rank(), Aging: gate.RulesOf(&o.gate.Spec).Hold.Aging}
	if key.Facts != "" {
		e.PodSets, e.Limits = o.jobFacts().PodSets, o.limits()
	}
	return e
}

// runsFor is the longest time for which the workload runs; zero = unknown.
func (o *observation) runsFor() time.Duration { return runTimeLimit(o.wl) }

func runTimeLimit(wl *kueue.Workload) time.Duration {
	if limit := wl.Spec.MaximumExecutionTimeSeconds; limit != nil {
		return time.Duration(*limit) * time.Second
	}
	return 0
}

// owners are the topmost controllers of the workload's pods on a worker: its job, or the pods of a
// group. nil = unknown: the components of a job share one owner, and the exporter does not show
// the pods of devices that it does not measure. Without MultiKueue, a controller that the Workload
// does not name may own the job, such as a CronJob. MultiKueue's copies have no such owner.
func (o *observation) owners() []ledger.Owner {
	isUnmeasured := func(p shape.PodSet) bool { return !shape.IsMeasured(p.Resource) }
	if !o.facts.Remote || kueuestate.IsComponent(o.wl) || slices.ContainsFunc(o.facts.PodSets, isUnmeasured) {
		return nil
	}
	var owners []ledger.Owner
	for _, ref := range o.wl.OwnerReferences {
		owners = append(owners, ledger.Owner{Namespace: o.wl.Namespace, Kind: ref.Kind, Name: ref.Name})
	}
	return owners
}

// check is the gate's entry.
func (o *observation) check() *kueue.AdmissionCheckState {
	return kueuestate.FindCheck(o.wl, o.checks[0])
}

// runsAlready reports whether Kueue has chosen the cluster itself, has started the workload on the hub
// before its ClusterQueue got the check, or runs the job of the slice that the workload replaces. Kueue
// adds the check to running workloads, too.
func (o *observation) runsAlready() bool {
	return o.wl.Status.ClusterName != nil || o.multiKueue == "" && kueuestate.IsAdmitted(o.wl) || o.runningSlice != nil
}

// pendingChecks are the gate's entries that are Pending.
func (o *observation) pendingChecks() []string {
	return slices.DeleteFunc(slices.Clone(o.checks), func(name string) bool {
		return kueuestate.FindCheck(o.wl, name).State != kueue.CheckStatePending
	})
}

func (o *observation) isActive() bool { return kueuestate.IsActive(o.wl) }

// hasYielded reports whether the gate deactivated the workload. A workload that another
// client deactivated has no such record and is left alone, as is one that finished meanwhile.
func (o *observation) hasYielded() bool {
	return o.recordErr == nil && !o.record.SleepsUntil.IsZero() && o.wl.DeletionTimestamp.IsZero() && !kueuestate.IsFinished(o.wl)
}

// mayNominate reports whether the nomination is the gate's turn: every other check except
// MultiKueue's is Ready, and Kueue does not follow another component of the job.
func (o *observation) mayNominate() bool {
	return o.nominates && o.component.cluster == "" && o.multiKueue != "" && kueuestate.WantsNomination(o.wl, o.multiKueue) &&
		kueuestate.OtherChecksReady(o.wl, o.checks[0], o.multiKueue)
}

// readyDecidesPlacement reports whether a Ready check is the gate's last word: nothing of
// ours decides again where the workload goes. A workload that Kueue pins goes elsewhere.
func (o *observation) readyDecidesPlacement() bool {
	return o.multiKueue == "" || !o.nominates && !kueuestate.IsPinnedByKueue(o.wl)
}

// quotaReservedAt is the transition time of QuotaReserved; zero = no such condition.
func (o *observation) quotaReservedAt() time.Time {
	if c := apimeta.FindStatusCondition(o.wl.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// waitingSince is when the workload began to wait at the gate. Kueue adds the check long
// before it reserves quota, or to a workload that already holds quota.
func (o *observation) waitingSince(checks ...string) time.Time {
	since := o.quotaReservedAt()
	check := kueuestate.FindCheck(o.wl, checks[0])
	if since.IsZero() || check.State != kueue.CheckStatePending {
		return o.now
	}
	if check.LastTransitionTime.After(since) {
		return check.LastTransitionTime.Time
	}
	return since
}

// awaitsWorker reports whether Kueue chose the workload's cluster before that admitted it, as for a
// new slice of an elastic job. For any other workload, MultiKueue sets the cluster and its own check
// Ready in one write.
func (o *observation) awaitsWorker() bool {
	c := kueuestate.FindCheck(o.wl, o.multiKueue)
	return c != nil && c.State == kueue.CheckStatePending
}

// placedOn is the cluster that runs, or is about to run, the workload; empty = none yet.
func (o *observation) placedOn() string {
	return kueuestate.PlacedCluster(o.wl, o.checks, o.multiKueue)
}
