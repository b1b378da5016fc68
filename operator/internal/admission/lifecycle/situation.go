package lifecycle

import (
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Situation is everything that one reconciliation knows of a workload. The controller's observe and measure
// build it. Nothing changes it afterwards, and no function of this package reads a client or a clock.
type Situation struct {
	Key types.NamespacedName
	// Workload is nil if it does not exist.
	Workload   *kueue.Workload
	Now        time.Time
	Checks     kueuestate.Checks
	MultiKueue MultiKueue
	Gate       Gate
	Record     Record
	History    History
	Queue      Queue
	Request    Request
	Job        Job
	Room       Room
}

// MultiKueue is what MultiKueue does with the workload, and the clusters of the MultiKueueConfig that its
// check names.
type MultiKueue struct {
	// Nominates: the operator is Kueue's dispatcher.
	Nominates bool
	// Connected clusters that the workload's annotation permits, in the order of the
	// configuration, and since when.
	Connected      []string
	ConnectedSince map[string]time.Time
	// Disconnected are the configuration's other clusters with the reason.
	Disconnected map[string]string
	// Lag is how long MultiKueue takes to act on a nomination, EvictionLag how long to complete an eviction.
	Lag, EvictionLag time.Duration
}

func (m MultiKueue) isConnected(cluster string) bool { return slices.Contains(m.Connected, cluster) }

// Dispatch is who sends a workload to a worker.
type Dispatch int

const (
	// Local is used where no check is MultiKueue's: the workload runs where it is.
	Local Dispatch = iota
	// BuiltinDispatch is used where one of Kueue's own dispatchers nominates clusters.
	BuiltinDispatch
	// OwnDispatch is used where the operator nominates clusters.
	OwnDispatch
)

// Dispatch says who sends the workload to a worker.
func (s *Situation) Dispatch() Dispatch {
	switch {
	case s.Checks.MultiKueue == "":
		return Local
	case s.MultiKueue.Nominates:
		return OwnDispatch
	}
	return BuiltinDispatch
}

// Gate is the gate of the workload's check.
type Gate struct {
	// Gate as the registry knows it, or with the API server's spec only.
	gatestate.Gate
	// Known is false while the gate's controller has not read it; Exists is true if the API server has it.
	Known, Exists bool
	// TotalWaiting is the number of waiting workloads at all gates.
	TotalWaiting int32
	// Decide makes the gate's decisions; nil = as the inputs do.
	Decide gate.Decider
	// Conflict is what the registry knows of a conflicting dispatcher.
	Conflict string
}

// Record is the annotation plimsoll.dev/dispatch. Err is set if it does not parse.
type Record struct {
	dispatch.Record
	Err error
}

// DecodeRecord reads the annotation of a workload.
func DecodeRecord(wl *kueue.Workload, now time.Time) Record {
	r, err := dispatch.Decode(wl.Annotations)
	return Record{Record: r.Until(now), Err: err}
}

// Queue is what the workload's ClusterQueue on the hub permits.
type Queue struct {
	// LacksChecks: Kueue has yet to give the workload checks of its queue, which may be the gate's.
	LacksChecks bool
	// CanPreempt: the queue may take quota from others.
	CanPreempt bool
	// PreemptsLowerPriority: the workload may preempt lower priorities of its ClusterQueue.
	PreemptsLowerPriority bool
	// PreemptsNewerEqual: the workload may preempt newer workloads of its priority in its ClusterQueue.
	PreemptsNewerEqual bool
	// Borrows: the queue uses quota of its cohort.
	Borrows bool
	// Reclaim states from whom the queue may take back quota.
	Reclaim gate.Reclaim
	// PreemptsUncounted: Kueue may preempt others for the workload that the gate does not count.
	PreemptsUncounted bool
	// CohortQueues are the other ClusterQueues in the cohort tree.
	CohortQueues []string
}

// Request is what the workload asks for, and the objects that it is read with.
type Request struct {
	Facts shape.Facts
	// Flavors are the assigned ResourceFlavors.
	Flavors map[string]kueue.ResourceFlavorSpec
	// ClaimTemplates are the claims of the ResourceClaimTemplates of the pods, by name; nil if the
	// template does not exist. The map is nil if the gate does not fit shares.
	ClaimTemplates map[string]*resourcev1.ResourceClaimSpec
	// Profile of the workload's job; nil if the gate reads none, or if there is none.
	Profile *v1alpha1.JobProfileStatus
	// NodeRequirements of a workload that MultiKueue does not copy.
	NodeRequirements []NodeRequirement
}

// Job is what the workload has to do with the other Workloads of its job: other components, and the
// slices that it replaces. It is empty for a workload that is a job of its own.
type Job struct {
	// Unplaced are the job's other components that have no cluster and will start. Some may have no quota.
	Unplaced []*kueue.Workload
	// Cluster of the other components; empty = none has one.
	Cluster string
	// Primary is the component that Kueue places first; nil = it is the workload itself, or does not
	// exist.
	Primary *kueue.Workload
	// SliceOn are the clusters that may hold copies of the slice which the workload replaces, and
	// of the workload itself if an eviction did not remove them.
	SliceOn []string
	// SliceSeenOn are those of SliceOn that Kueue's status names, or that this process saw
	// nominated. The others are named by records, which users may write.
	SliceSeenOn []string
	// RunningSlice is the admitted slice of a job that runs without MultiKueue, if the workload is a newer
	// slice of it; nil = none.
	RunningSlice *kueue.Workload
}

// Room is what measure adds: where the workload fits now, and who else waits.
type Room struct {
	// Key of the query results.
	Key gatestate.QueryKey
	// Preceding is the waiting workload that ranks before and is decided first; empty = none.
	Preceding types.NamespacedName
	// Follows: a workload with the same request and limits waits and is decided before.
	Follows bool
	// HasTurn: the wait queue woke the workload as the next one to be decided.
	HasTurn    bool
	Candidates []gate.Candidate
	Fleet      gate.Fleet
	View       ledger.View
	// LedgerTTL is how long the ledger keeps an entry.
	LedgerTTL time.Duration
	// HoldingOn are the nominated clusters where pods of the workload hold devices, if the
	// nomination is about to be widened.
	HoldingOn []string
	// OthersPending: another workload waits for the quota that this one holds.
	OthersPending bool
}

// FactsUnder reads the facts of the workload, or of another component of its job, as a gate's
// settings ask for.
func (s *Situation) FactsUnder(wl *kueue.Workload, spec *v1alpha1.PlacementGateSpec) shape.Facts {
	opts := shape.OptionsOf(spec, func(flavor string) kueue.ResourceFlavorSpec { return s.Request.Flavors[flavor] })
	opts.Profile, opts.Copied = s.Request.Profile, s.Dispatch() != Local
	if s.Request.ClaimTemplates != nil {
		opts.ClaimTemplate = func(name string) *resourcev1.ResourceClaimSpec { return s.Request.ClaimTemplates[name] }
	}
	facts := shape.FactsOf(wl, opts)
	facts.Remote = opts.Copied
	facts.Preempts = facts.Remote && s.Queue.CanPreempt
	facts.Reclaims = facts.Remote && len(s.Queue.Reclaim.Queues) > 0
	return facts
}

// MayYield reports whether the workload gives up its quota if another one waits for it: it has held
// the quota for long enough, or follows the primary component of its job. A yield would begin the
// work of another check anew.
func (s *Situation) MayYield() bool {
	rule := s.Gate.Spec.WhenUnplaceable
	switch {
	case rule.Mode != v1alpha1.UnplaceableYield || !s.mayReturnQuota():
		return false
	case PhaseOf(s) == PhaseAwaitingPrimary:
		return mayYieldWithPrimary(s)
	}
	return PhaseOf(s) == PhaseWaiting && s.Now.Sub(kueuestate.PendingSince(s.Workload, s.Checks.Own[0], s.Now)) >= timing.Seconds(rule.YieldAfterSeconds, timing.DefaultYieldAfter)
}

// Rank is the workload's place in the gate's order. A yield does not move it to the end. Users may
// write the record, but no workload has waited since before its creation.
func (s *Situation) Rank() ledger.Rank {
	rank := ledger.Rank{Since: kueuestate.QuotaReservedAt(s.Workload), Name: s.Key.String()}
	if !kueuestate.HoldsQuota(s.Workload) { // it ranks behind those that have quota already
		rank.Since = s.Now
	}
	if first := s.Record.WaitsSince; !first.IsZero() {
		if created := s.Workload.CreationTimestamp.Time; first.Before(created) {
			first = created
		}
		if first.Before(rank.Since) {
			rank.Since = first
		}
	}
	if s.Workload.Spec.Priority != nil {
		rank.Priority = *s.Workload.Spec.Priority
	}
	return rank
}

// WaitEntry is the workload's entry in the wait queue. A workload without a decision competes
// with no other one.
func (s *Situation) WaitEntry(key gatestate.QueryKey) waitqueue.Entry {
	e := waitqueue.Entry{Workload: s.Key, Key: key, Rank: s.Rank(), Aging: gate.RulesOf(&s.Gate.Spec).Hold.Aging}
	if key.Facts != "" {
		e.PodSets, e.Limits = s.JobFacts().PodSets, limits(s)
	}
	return e
}

// Owners are the topmost controllers of the workload's pods on a worker: its job, or the pods of a
// group. nil = unknown: the components of a job share one owner, and the exporter does not show
// the pods of devices that it does not measure. Without MultiKueue, a controller that the Workload
// does not name may own the job, such as a CronJob. MultiKueue's copies have no such owner.
func (r Request) Owners(wl *kueue.Workload) []ledger.Owner {
	isUnmeasured := func(p shape.PodSet) bool { return !shape.IsMeasured(p.Resource) }
	if !r.Facts.Remote || kueuestate.IsComponent(wl) || slices.ContainsFunc(r.Facts.PodSets, isUnmeasured) {
		return nil
	}
	var owners []ledger.Owner
	for _, ref := range wl.OwnerReferences {
		owners = append(owners, ledger.Owner{Namespace: wl.Namespace, Kind: ref.Kind, Name: ref.Name})
	}
	return owners
}

// Check is the gate's entry.
func (s *Situation) Check() *kueue.AdmissionCheckState {
	return kueuestate.FindCheck(s.Workload, s.Checks.Own[0])
}

// runsAlready reports whether Kueue has chosen the cluster itself, has started the workload on the hub
// before its ClusterQueue got the check, or runs the job of the slice that the workload replaces. Kueue
// adds the check to running workloads, too.
func runsAlready(s *Situation) bool {
	return s.Workload.Status.ClusterName != nil || s.Dispatch() == Local && kueuestate.IsAdmitted(s.Workload) || s.Job.RunningSlice != nil
}

// hasYielded reports whether the gate deactivated the workload. A workload that another
// client deactivated has no such record and is left alone, as is one that finished meanwhile.
func (r Record) hasYielded(wl *kueue.Workload) bool {
	return r.Err == nil && !r.SleepsUntil.IsZero() && wl.DeletionTimestamp.IsZero() && !kueuestate.IsFinished(wl)
}

// MayNominate reports whether the nomination is the gate's turn: every other check except
// MultiKueue's is Ready, and Kueue does not follow another component of the job.
func (s *Situation) MayNominate() bool {
	return s.Dispatch() == OwnDispatch && s.Job.Cluster == "" && kueuestate.WantsNomination(s.Workload, s.Checks.MultiKueue) &&
		kueuestate.OtherChecksReady(s.Workload, s.Checks.Own[0], s.Checks.MultiKueue)
}

// readyDecidesPlacement reports whether a Ready check is the gate's last word: nothing of
// ours decides again where the workload goes. A workload that Kueue pins goes elsewhere.
func readyDecidesPlacement(s *Situation) bool {
	return s.Dispatch() == Local || s.Dispatch() == BuiltinDispatch && !kueuestate.IsPinnedByKueue(s.Workload)
}
