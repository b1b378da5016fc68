package lifecycle

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// situationWith is a Pending workload with MultiKueue and a known gate, with room on
// cluster1 only.
func situationWith(change func(*Situation)) *Situation {
	b := ledger.New(time.Second, time.Hour)
	s := &Situation{Key: types.NamespacedName{Namespace: "team-a", Name: "job"}, Workload: fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), Now: fixture.Noon,
		Checks: kueuestate.Checks{Own: []string{"plimsoll"}, MultiKueue: "multikueue", Config: "gpu"}, Gate: Gate{Gate: gatestate.Gate{Name: "gpu"}, Known: true, Exists: true},
		MultiKueue: MultiKueue{Nominates: true, Connected: []string{"cluster1", "cluster2"}, ConnectedSince: map[string]time.Time{}},
		Room: Room{LedgerTTL: b.TTL, View: b.View(), Key: gatestate.QueryKey{Gate: "gpu", Facts: "two devices"}, Candidates: []gate.Candidate{
			{Name: "cluster1", SampledAt: fixture.Noon, Shapes: []gate.ShapeMetrics{{Fit: gate.Known(9), Quota: gate.Known(100)}}},
			{Name: "cluster2", SampledAt: fixture.Noon, Shapes: []gate.ShapeMetrics{{Fit: gate.Known(0), Quota: gate.Known(100)}}}}}}
	change(s)
	if s.Workload != nil {
		s.Record = DecodeRecord(s.Workload, s.Now)
		s.Request.Facts = s.FactsUnder(s.Workload, &s.Gate.Spec)
	}
	return s
}

// Changes of a situation.
func setCheck(state kueue.CheckState) func(*Situation) {
	return func(s *Situation) { s.Workload.Status.AdmissionChecks[0].State = state }
}

func shadowed(s *Situation) { s.Gate.Spec.Mode = v1alpha1.ModeShadow }

// passed is a workload that a gate in mode Shadow has let pass, and that a cluster has admitted; "" = none has.
func passed(cluster string, at time.Time) func(*Situation) {
	return inOrder(shadowed, sentTo(at, "cluster1", "cluster2"), func(s *Situation) {
		if cluster != "" {
			fixture.AdmitBy(s.Workload, cluster)
			s.History.Running = &ledger.Entry{Cluster: cluster, DebitedAt: at}
		}
	})
}

// wouldBeOn is what the gate would have done with it at a time; "" = it would wait.
func wouldBeOn(cluster string, at time.Time) func(*Situation) {
	return func(s *Situation) {
		record, _ := dispatch.Decode(s.Workload.Annotations)
		fixture.WithRecord(s.Workload, record.WithPassed(cluster, gate.ReasonNoRoom, "no room", 2, fixture.Noon, at))
	}
}

func inShadow(res *Reservation) *Reservation {
	for i := range res.Entries {
		res.Entries[i].Shadow = true
	}
	return res
}

func started(at time.Time) func(*Situation) {
	return func(s *Situation) {
		fixture.SetCondition(s.Workload, kueue.WorkloadPodsReady, at)
		s.History.StartedAt = at
	}
}

func secondComponent(s *Situation) {
	s.Workload.Annotations = map[string]string{kueuestate.ComponentAnnotation: "1"}
	s.Job.Primary = fixture.Replica(0)
}

func jobOnCluster1(s *Situation) { s.Job.Cluster = "cluster1" }

// refusedFor is a situation some time after a write was refused.
func refusedFor(d time.Duration, ofCheck bool) func(*Situation) {
	return func(s *Situation) {
		s.History.Refusal = &Refusal{At: fixture.Noon, Message: "refused", OfCheck: ofCheck}
		s.Now = fixture.Noon.Add(d)
	}
}

func refusedPause(*Situation) Step { return Step{RequeueAfter: timing.RefusedPause - 20*time.Second} }

func refusedStep(s *Situation) Step {
	next := refusedPause(s)
	next.Writes = []Write{{Check: &CheckWrite{Names: []string{"plimsoll"}, RememberReason: true,
		Decision: gate.Decision{State: gate.Pending, Reason: ReasonWriteRefused, Message: "refused"}}}}
	return next
}

func evictedFor(d time.Duration) func(*Situation) {
	return func(s *Situation) {
		fixture.SetCondition(s.Workload, kueue.WorkloadEvicted, fixture.Noon)
		s.Now = fixture.Noon.Add(d)
	}
}

func yielded(until time.Duration, active bool) func(*Situation) {
	return func(s *Situation) {
		s.Workload.Spec.Active = &active
		fixture.WithRecord(s.Workload, dispatch.Record{Attempt: 1, Yields: 1, SleepsUntil: fixture.Noon.Add(until)})
	}
}

// parked is a workload that was parked some time ago.
func parked(ago time.Duration) func(*Situation) {
	return func(s *Situation) {
		quota := s.Workload.Status.Admission
		inOrder(yielded(0, false), quotaReturned(ago))(s)
		record := dispatch.Record{Attempt: 1, SleepsUntil: fixture.Noon, Reason: gate.ReasonParked, Parked: "can never start here: no cluster has nodes with X"}
		fixture.WithRecord(s.Workload, record.WithReturned(quota))
		s.Workload.Status.Admission = quota // see Reconciler.observe
		for i := range s.Room.Candidates {
			s.Room.Candidates[i].SampledAt = s.Now
		}
	}
}

func parkedPrimary(wl *kueue.Workload) {
	fixture.Deactivated(wl)
	wl.Annotations[v1alpha1.DispatchAnnotation] = dispatch.Record{}.Park("can never start here: no node", fixture.Noon, fixture.Noon).Encode()
}

// parkedComponent was parked with the primary component of its job.
func parkedComponent(primary func(*kueue.Workload)) func(*Situation) {
	return func(s *Situation) {
		parked(time.Minute)(s)
		s.Workload.Annotations[kueuestate.ComponentAnnotation] = "1"
		s.Job.Primary = fixture.Replica(0)
		primary(s.Job.Primary)
	}
}

// neverFits makes the nodes of all clusters too small, even if they were empty.
func neverFits(s *Situation) {
	noRoom(s)
	for i := range s.Room.Candidates {
		s.Room.Candidates[i].SampledAt = s.Now
		for n := range s.Room.Candidates[i].Shapes {
			s.Room.Candidates[i].Shapes[n].EmptyFit, s.Room.Candidates[i].Shapes[n].LargestNode = gate.Known(0), gate.Known(1)
		}
	}
}

// fitsEmpty makes the nodes of all clusters large enough.
func fitsEmpty(s *Situation) {
	for i := range s.Room.Candidates {
		for n := range s.Room.Candidates[i].Shapes {
			s.Room.Candidates[i].Shapes[n].EmptyFit = gate.Known(8)
		}
	}
}

// neverFor is a workload that no cluster could start for some time.
func neverFor(d time.Duration) func(*Situation) {
	return func(s *Situation) { s.History.NeverSince = s.Now.Add(-d) }
}

// activation ends a pause.
func activation(s *Situation) Write {
	active := true
	return Write{Record: &RecordWrite{Record: s.Record.Woken(), Active: &active}}
}

// yieldedByPreemptor is a workload whose pause after a yield has been over for a time, and whose queue preempts.
func yieldedByPreemptor(ago time.Duration) func(*Situation) {
	return func(s *Situation) {
		quota := s.Workload.Status.Admission
		inOrder(yielded(0, false), quotaReturned(ago))(s)
		fixture.WithRecord(s.Workload, dispatch.Record{Attempt: 1, Yields: 1, Reason: gate.ReasonYield, LastYield: fixture.Noon, SleepsUntil: fixture.Noon}.WithReturned(quota))
		s.Workload.Status.Admission, s.Queue.CanPreempt = quota, true // see Reconciler.observe
		s.Gate.Spec.WhenUnplaceable.Mode = v1alpha1.UnplaceableYield
		for i := range s.Room.Candidates {
			s.Room.Candidates[i].SampledAt = s.Now
		}
	}
}

// decidedFirst is a workload without quota about which the gate decides first: it is held back, or the operator has
// released it.
func decidedFirst(isReleased bool) func(*Situation) {
	return func(s *Situation) {
		admission := s.Workload.Status.Admission
		quotaReturned(time.Minute)(s)
		record := dispatch.Record{SleepsUntil: time.Unix(0, 0)}
		if isReleased {
			record = record.Woken()
		}
		fixture.WithRecord(s.Workload, record)
		s.Workload.Annotations[v1alpha1.GateFirst], s.Workload.Spec.Active = "true", &isReleased
		s.Workload.Status.Admission, s.Queue.CanPreempt = admission, true // see Reconciler.observeWithoutQuota
		for i := range s.Room.Candidates {
			s.Room.Candidates[i].SampledAt = s.Now
		}
	}
}

// releasedAgo is the time since the operator has released the workload.
func releasedAgo(d time.Duration) func(*Situation) {
	return func(s *Situation) { s.History.ReleasedAt = s.Now.Add(-d) }
}

// heldComponent is a component whose primary one is held back, or active.
func heldComponent(isPrimaryActive bool) func(*Situation) {
	return func(s *Situation) {
		decidedFirst(false)(s)
		s.Workload.Annotations[kueuestate.ComponentAnnotation] = "1"
		s.Job.Primary = fixture.Replica(0)
		s.Job.Primary.Spec.Active = &isPrimaryActive
	}
}

// quotaReturned is the end of an eviction some time ago.
func quotaReturned(ago time.Duration) func(*Situation) {
	return func(s *Situation) {
		s.Workload.Status.Admission, s.Now = nil, fixture.Noon.Add(ago)
		c := apimeta.FindStatusCondition(s.Workload.Status.Conditions, kueue.WorkloadQuotaReserved)
		c.Status, c.LastTransitionTime = metav1.ConditionFalse, metav1.NewTime(fixture.Noon)
	}
}

func sentTo(at time.Time, clusters ...string) func(*Situation) {
	return func(s *Situation) {
		s.Workload.Status.AdmissionChecks[0].State, s.Workload.Status.NominatedClusterNames = kueue.CheckStateReady, clusters
		fixture.WithRecord(s.Workload, fixture.RecordOf(at, clusters...))
	}
}

// repairedOn is a nomination that completes a stuck eviction.
func repairedOn(clusters ...string) func(*Situation) {
	return func(s *Situation) {
		sentTo(fixture.Noon, clusters...)(s)
		fixture.WithRecord(s.Workload, dispatch.Record{}.BeginRepair(clusters, fixture.Noon, "the remote copy is gone", fixture.Noon))
	}
}

// reservedAgain changes the time at which quota was reserved, as another reservation does.
func reservedAgain(s *Situation) {
	apimeta.FindStatusCondition(s.Workload.Status.Conditions, kueue.WorkloadQuotaReserved).LastTransitionTime = metav1.NewTime(fixture.Noon.Add(time.Minute))
}

// readyAgain makes the gate's check Ready under that reservation, as after an eviction.
func readyAgain(s *Situation) {
	s.Check().LastTransitionTime = metav1.NewTime(fixture.Noon.Add(time.Minute))
}

func inOrder(changes ...func(*Situation)) func(*Situation) {
	return func(s *Situation) {
		for _, change := range changes {
			change(s)
		}
	}
}

var (
	onCluster1 = func(s *Situation) { name := "cluster1"; s.Workload.Status.ClusterName = &name }
	runsOnHub  = func(s *Situation) {
		s.Checks.MultiKueue, s.Workload.Status.AdmissionChecks = "", s.Workload.Status.AdmissionChecks[:1]
		fixture.SetCondition(s.Workload, kueue.WorkloadAdmitted, fixture.Noon)
	}
	noWorkload = func(s *Situation) { s.Workload = nil }
	staleCache = func(s *Situation) {
		s.Workload.ResourceVersion = "6"
		s.History.LastWrite.Version, s.History.LastWrite.At = "7", fixture.Noon
	}
	noGate  = func(s *Situation) { s.Gate.Known, s.Gate.Exists = false, false }
	noCheck = func(s *Situation) {
		s.Checks.Own, s.Gate.Name, s.Workload.Status.AdmissionChecks = nil, "", s.Workload.Status.AdmissionChecks[1:]
	}
	secondCheck = func(s *Situation) {
		fixture.WithSecondCheck(s.Workload, kueue.CheckStatePending)
		s.Checks.Own = []string{"plimsoll", "second"}
	}
	badRecord      = func(s *Situation) { s.Workload.Annotations = map[string]string{v1alpha1.DispatchAnnotation: "{"} }
	kueueNominates = func(s *Situation) { s.MultiKueue.Nominates = false }
	budgetPending  = func(s *Situation) {
		s.Workload.Status.AdmissionChecks = append(s.Workload.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "budget", State: kueue.CheckStatePending})
	}
	noRoom  = func(s *Situation) { s.Room.Candidates = s.Room.Candidates[1:] }
	revoked = inOrder(sentTo(fixture.Noon, "cluster1", "cluster2"), func(s *Situation) {
		s.Workload.Status.NominatedClusterNames = []string{"cluster1"}
		s.History.NominatedSeen = []string{"cluster1", "cluster2"}
	})
)

func TestPhaseOf(t *testing.T) {
	covered := map[Phase]bool{}
	for _, tc := range []struct {
		name   string
		change func(*Situation)
		want   Phase
	}{
		{"does not exist", noWorkload, PhaseDeleted},
		{"older than the last write", staleCache, PhaseCacheStale},
		{"older than the last write for too long", inOrder(staleCache, func(s *Situation) { s.Now = fixture.Noon.Add(timing.MaxCacheLag) }), PhaseWaiting},
		{"yielded", yielded(time.Second, false), PhaseYielded},
		{"yielded, pause over, Kueue has not begun the eviction", yielded(-time.Hour, false), PhaseYielded},
		{"yielded, pause over, Kueue has not begun the eviction, Kueue nominates", inOrder(yielded(-time.Hour, false), kueueNominates), PhaseYielded},
		{"yielded, eviction just began", inOrder(yielded(time.Minute, false), evictedFor(time.Second)), PhaseEvicting},
		{"yielded, eviction stuck", inOrder(yielded(time.Minute, false), evictedFor(timing.EvictionGrace)), PhaseEvictionStuck},
		{"yielded, pause over, eviction stuck", inOrder(yielded(0, false), evictedFor(timing.EvictionGrace)), PhaseEvictionStuck},
		{"yielded, pause over, pods still end", inOrder(yielded(0, false), kueueNominates, evictedFor(time.Minute)), PhaseYielded},
		{"yielded, pause over, pods ended just now", inOrder(yielded(0, false), quotaReturned(0)), PhaseYielded},
		{"yielded, pause over, pods ended before", inOrder(yielded(0, false), quotaReturned(timing.YieldSleep)), PhaseReturning},
		{"yielded, activated by a user", yielded(time.Second, true), PhaseReturning},
		{"yielded, pause over, without a condition of quota", inOrder(yielded(0, false), func(s *Situation) { s.Workload.Status.Admission, s.Workload.Status.Conditions = nil, nil }), PhaseReturning},
		{"yielded, finished", inOrder(yielded(0, false), func(s *Situation) { fixture.SetCondition(s.Workload, kueue.WorkloadFinished, fixture.Noon) }), PhaseIdle},
		{"yielded, being deleted", inOrder(yielded(time.Second, false), func(s *Situation) { s.Workload.DeletionTimestamp = &metav1.Time{Time: fixture.Noon} }), PhaseIdle},
		{"deactivated by a user", func(s *Situation) { active := false; s.Workload.Spec.Active = &active }, PhaseIdle},
		{"evicted just now", evictedFor(time.Second), PhaseEvicting},
		{"evicted, and its pods may not have ended", evictedFor(fixture.StuckAfter - time.Second), PhaseEvicting},
		{"evicted for long, but MultiKueue is late", inOrder(evictedFor(fixture.StuckAfter), func(s *Situation) { s.MultiKueue.EvictionLag = time.Minute }), PhaseEvicting},
		{"evicted for long", evictedFor(fixture.StuckAfter), PhaseEvictionStuck},
		{"evicted for long without a check of ours", inOrder(noCheck, evictedFor(fixture.StuckAfter)), PhaseEvictionStuck},
		{"evicted for long, Kueue nominates", inOrder(kueueNominates, evictedFor(fixture.StuckAfter)), PhaseIdle},
		{"no check of ours", noCheck, PhaseUngated},
		{"no check of ours yet", inOrder(noCheck, func(s *Situation) { s.Queue.LacksChecks = true }), PhaseIdle},
		{"no check of ours, Kueue nominates", inOrder(noCheck, kueueNominates), PhaseIdle},
		{"no quota", func(s *Situation) { s.Workload.Status.Admission = nil }, PhaseIdle},
		{"no quota, check Ready", inOrder(setCheck(kueue.CheckStateReady), quotaReturned(0)), PhaseIdle},
		{"no quota, check Ready, Kueue nominates", inOrder(kueueNominates, setCheck(kueue.CheckStateReady), quotaReturned(0)), PhaseQuotaLost},
		{"finished", func(s *Situation) { fixture.SetCondition(s.Workload, kueue.WorkloadFinished, fixture.Noon) }, PhaseIdle},
		{"on a cluster", inOrder(setCheck(kueue.CheckStateReady), onCluster1), PhaseIdle},
		{"on a cluster, bad record", inOrder(setCheck(kueue.CheckStateReady), onCluster1, badRecord), PhaseIdle},
		{"rejected", setCheck(kueue.CheckStateRejected), PhaseIdle},
		{"retry", setCheck(kueue.CheckStateRetry), PhaseIdle},
		{"bad record", badRecord, PhaseRecordUnreadable},
		{"bad record without quota", inOrder(badRecord, func(s *Situation) { s.Workload.Status.Admission = nil }), PhaseIdle},
		{"two checks of ours", secondCheck, PhaseTooManyChecks},
		{"two checks of ours, on a cluster", inOrder(secondCheck, onCluster1), PhaseTooManyChecks},
		{"slice of an elastic job", onCluster1, PhasePlacedByKueue},
		{"runs on the hub, and its queue got the check", runsOnHub, PhasePlacedByKueue},
		{"runs on the hub, check Ready", inOrder(runsOnHub, setCheck(kueue.CheckStateReady)), PhaseReady},
		{"component of a job without a cluster", secondComponent, PhaseAwaitingPrimary},
		{"component of a job on a cluster", inOrder(secondComponent, jobOnCluster1), PhaseWaiting},
		{"component of a job on a cluster, Ready", inOrder(setCheck(kueue.CheckStateReady), jobOnCluster1), PhaseReady},
		{"gate does not exist", noGate, PhaseGateUnknown},
		{"gate does not exist, check Ready", inOrder(setCheck(kueue.CheckStateReady), noGate), PhaseGateUnknown},
		{"gate does not exist, nominated", inOrder(sentTo(fixture.Noon, "cluster1"), noGate), PhaseNominated},
		{"Pending", func(*Situation) {}, PhaseWaiting},
		{"Pending, no room", noRoom, PhaseWaiting},
		{"a write was refused", refusedFor(timing.RefusedPause-time.Second, false), PhaseWriteRefused},
		{"a write was refused a while ago", refusedFor(timing.RefusedPause, false), PhaseWaiting},
		{"yielded, and its queue preempts", yieldedByPreemptor(timing.YieldSleep), PhaseAwaitingRoom},
		{"yielded half an hour ago, and its queue preempts", yieldedByPreemptor(timing.LastYieldPause), PhaseReturning},
		{"yielded, its queue preempts, and the gate no longer yields", inOrder(yieldedByPreemptor(time.Minute), func(s *Situation) { s.Gate.Spec.WhenUnplaceable.Mode = v1alpha1.UnplaceableWait }), PhaseReturning},
		{"yielded, and its queue does not preempt", inOrder(yieldedByPreemptor(time.Minute), func(s *Situation) { s.Queue.CanPreempt = false }), PhaseReturning},
		{"yielded, and the record does not say which quota", inOrder(yieldedByPreemptor(time.Minute), func(s *Situation) {
			fixture.WithRecord(s.Workload, dispatch.Record{Attempt: 1, Yields: 1, Reason: gate.ReasonYield, LastYield: fixture.Noon, SleepsUntil: fixture.Noon})
		}), PhaseReturning},
		{"parked", parked(timing.YieldSleep), PhaseParked},
		{"parked for a week", parked(7 * 24 * time.Hour), PhaseParked},
		{"parked, and its pause lasts", parked(timing.YieldSleep - time.Second), PhaseYielded},
		{"parked, and a user activated it", inOrder(parked(time.Minute), func(s *Situation) { s.Workload.Spec.Active = nil }), PhaseReturning},
		{"parked, and the gate no longer parks", inOrder(parked(time.Minute), func(s *Situation) { s.Gate.Spec.WhenUnplaceable.Never.Mode = v1alpha1.NeverWait }), PhaseReturning},
		{"parked, and the gate was deleted", inOrder(parked(time.Minute), noGate), PhaseReturning},
		{"parked, and the gate has a problem", inOrder(parked(time.Minute), func(s *Situation) { s.Gate.Problem = "no Placement" }), PhaseParked},
		{"parked with component 0", parkedComponent(parkedPrimary), PhaseYielded},
		{"parked, and component 0 has returned", parkedComponent(func(*kueue.Workload) {}), PhaseReturning},
		{"parked, and component 0 does not exist", inOrder(parkedComponent(parkedPrimary), func(s *Situation) { s.Job.Primary = nil }), PhaseParked},
		{"held back", decidedFirst(false), PhaseHeldBack},
		{"held back, after it was parked", inOrder(parked(time.Minute), func(s *Situation) { s.Queue.CanPreempt, s.Workload.Annotations[v1alpha1.GateFirst] = true, "true" }), PhaseHeldBack},
		{"held back, no checks yet", inOrder(decidedFirst(false), noCheck, func(s *Situation) { s.Queue.LacksChecks = true }), PhaseHeldBack},
		{"held back, its queue has no gate", inOrder(decidedFirst(false), noCheck), PhaseReturning},
		{"held back, its queue does not preempt", inOrder(decidedFirst(false), func(s *Situation) { s.Queue.CanPreempt = false }), PhaseReturning},
		{"released, deactivated by a user", inOrder(decidedFirst(true), func(s *Situation) { *s.Workload.Spec.Active = false }), PhaseIdle},
		{"released", decidedFirst(true), PhaseReleased},
		{"released, its queue does not preempt", inOrder(decidedFirst(true), func(s *Situation) { s.Queue.CanPreempt = false }), PhaseIdle},
		{"released, component of a job on a cluster", inOrder(decidedFirst(true), jobOnCluster1), PhaseIdle},
		{"released, finished", inOrder(decidedFirst(true), func(s *Situation) { fixture.SetCondition(s.Workload, kueue.WorkloadFinished, fixture.Noon) }), PhaseIdle},
		{"Ready, Kueue nominates", inOrder(kueueNominates, setCheck(kueue.CheckStateReady)), PhaseBuiltinDispatch},
		{"Ready, another check is Pending", inOrder(setCheck(kueue.CheckStateReady), budgetPending), PhaseReady},
		{"nomination removed", revoked, PhaseRevoked},
		{"nomination removed of a disconnected cluster", inOrder(revoked, func(s *Situation) { s.MultiKueue.Connected = []string{"cluster1"} }), PhaseNominated},
		{"Ready, every other check too", setCheck(kueue.CheckStateReady), PhaseNominating},
		{"nominated", sentTo(fixture.Noon, "cluster1"), PhaseNominated},
		{"mode Shadow", shadowed, PhasePassing},
		{"mode Shadow, the gate has a problem", inOrder(shadowed, func(s *Situation) { s.Gate.Problem = "no Placement" }), PhasePassing},
		{"mode Shadow, the gate was not read yet", inOrder(shadowed, func(s *Situation) { s.Gate.Known = false }), PhasePassing},
		{"mode Shadow, a component", inOrder(secondComponent, shadowed), PhasePassing},
		{"mode Shadow, a write was refused", inOrder(shadowed, refusedFor(time.Second, false)), PhasePassing},
		{"mode Shadow, Ready, nominated nowhere", inOrder(shadowed, setCheck(kueue.CheckStateReady)), PhasePassing},
		{"mode Shadow, a cluster has connected since", inOrder(shadowed, sentTo(fixture.Noon, "cluster1")), PhasePassing},
		{"mode Shadow, passed", passed("", fixture.Noon), PhaseComparing},
		{"mode Shadow, passed, would wait", inOrder(passed("", fixture.Noon), wouldBeOn("", fixture.Noon)), PhaseComparing},
		{"mode Shadow, passed, would wait, with former quota", inOrder(passed("", fixture.Noon), wouldBeOn("cluster1", fixture.Noon), func(s *Situation) {
			apimeta.FindStatusCondition(s.Workload.Status.Conditions, kueue.WorkloadQuotaReserved).LastTransitionTime = metav1.NewTime(fixture.Noon.Add(time.Minute))
		}), PhaseComparing},
		{"mode Shadow, passed, would go", inOrder(passed("", fixture.Noon), wouldBeOn("cluster1", fixture.Noon)), PhasePassed},
		{"mode Shadow, passed, started", inOrder(passed("cluster2", fixture.Noon), wouldBeOn("", fixture.Noon), started(fixture.Noon)), PhasePassed},
		{"mode Shadow, passed, another check is Pending", inOrder(passed("", fixture.Noon), budgetPending), PhasePassed},
		{"mode Shadow, ran before it passed", inOrder(passed("cluster2", fixture.Noon), func(s *Situation) { s.Check().LastTransitionTime = metav1.NewTime(fixture.Noon.Add(time.Hour)) }), PhasePassed},
		{"mode Shadow, component of a job on a cluster, would wait", inOrder(passed("cluster2", fixture.Noon), wouldBeOn("", fixture.Noon), func(s *Situation) {
			s.Workload.Annotations[kueuestate.ComponentAnnotation] = "0"
		}), PhasePassed},
		{"mode Shadow, a cluster leaves the configuration", inOrder(shadowed, sentTo(fixture.Noon, "cluster1"), func(s *Situation) {
			s.Gate.Spec.MultiKueue, s.Gate.Clusters = &v1alpha1.GateMultiKueue{}, []gatestate.Cluster{{Name: "cluster1"}, {Name: "cluster2", Leaving: true}}
		}), PhaseComparing},
		{"mode Shadow, a cluster is not decided any more", inOrder(shadowed, sentTo(fixture.Noon, "cluster1"), func(s *Situation) {
			s.Gate.Spec.MultiKueue, s.Gate.Clusters = &v1alpha1.GateMultiKueue{}, []gatestate.Cluster{{Name: "cluster1"}}
		}), PhaseComparing},
		{"mode Shadow, held back", inOrder(decidedFirst(false), shadowed), PhaseReturning},
		{"mode Shadow, parked", inOrder(parked(time.Minute), shadowed), PhaseReturning},
		{"mode Shadow, yielded by a preemptor", inOrder(yieldedByPreemptor(time.Minute), shadowed), PhaseReturning},
		{"mode Shadow, released", inOrder(decidedFirst(true), shadowed), PhaseIdle},
		{"mode Shadow, two checks", inOrder(shadowed, func(s *Situation) {
			s.Checks.Own = append(s.Checks.Own, "second")
			fixture.WithSecondCheck(s.Workload, kueue.CheckStatePending)
		}), PhaseTooManyChecks},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := PhaseOf(situationWith(tc.change)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
		covered[tc.want] = true
	}
	requireEveryPhase(t, covered)
}

func requireEveryPhase(t *testing.T, covered map[Phase]bool) {
	t.Helper()
	for _, phase := range declaredPhases(t) {
		if !covered[phase] {
			t.Errorf("no case for phase %s", phase)
		}
	}
}

// stepOptions compare steps. The verdicts of a decision are the gate's.
var stepOptions = cmp.Options{
	cmp.AllowUnexported(Step{}, LateAdmission{}, Reservation{}, Write{}, CheckWrite{}, RecordWrite{}, NominationWrite{}, Notice{}, conflict{}),
	cmp.Comparer(func(a, b gatestate.QueryKey) bool { return a == b }),
	cmpopts.IgnoreFields(gate.Decision{}, "Verdicts"), cmpopts.EquateEmpty(),
}

// reservationOn is a reservation of the workload's devices, made now.
func reservationOn(s *Situation, kept []string, clusters ...string) *Reservation {
	res := &Reservation{Kept: kept}
	for _, c := range clusters {
		res.Entries = append(res.Entries, ledger.Entry{UID: "uid", Workload: "team-a/job", Cluster: c, Queue: ledger.Queue{Cluster: "gpu", Local: "team-a/"}, PodSets: s.Request.Facts.PodSets, DebitedAt: s.Now})
	}
	return res
}

// nominationOf are the writes of a nomination.
func nominationOf(record *dispatch.Record, reason, message string, clusters ...string) []Write {
	var writes []Write
	if record != nil {
		writes = append(writes, Write{Record: &RecordWrite{Record: *record}})
	}
	return append(writes, Write{Nomination: &NominationWrite{Clusters: clusters, Reason: reason}, Event: &Notice{Reason: reason, Message: message}})
}

// waitsWith is the wait queue's entry of the workload team-a/job.
func waitsWith(key gatestate.QueryKey, podSets []shape.PodSet) *waitqueue.Entry {
	e := &waitqueue.Entry{Workload: types.NamespacedName{Namespace: "team-a", Name: "job"}, Key: key,
		Rank: ledger.Rank{Since: fixture.Noon, Name: "team-a/job"}, Aging: timing.DefaultAging, PodSets: podSets}
	if podSets != nil {
		e.Limits = "workers gpu\n"
	}
	return e
}

func TestNext(t *testing.T) {
	const room = "cluster1 has room for 9 such pods"
	const passes = "gate gpu is in mode Shadow and lets every workload pass"
	own := []string{"plimsoll"}
	twoDevices := []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", DevicesPerPod: 2, Pods: 1}}
	gateKey := gatestate.QueryKey{Gate: "gpu"}
	shapeKey := gatestate.QueryKey{Gate: "gpu", Facts: "two devices"}
	placeable := gate.Decision{State: gate.Ready, Reason: gate.ReasonPlaceable, Message: room, Order: []string{"cluster1"}}
	full := gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom, NoRoomAnywhere: true, Message: "no cluster has 2 free nvidia.com/gpu on one node: best is cluster2 with 0 in total"}
	never := gate.Decision{State: gate.Pending, Reason: gate.ReasonNever, NoRoomAnywhere: true, Prospect: gate.ProspectNever, Message: "can never start here: no node holds a pod of 2 nvidia.com/gpu: the largest, on cluster2, has 1"}
	readyWrite := Write{Check: &CheckWrite{Names: own, Decision: placeable, MessageKind: gate.ReasonPlaceable, RememberReason: true},
		Event: &Notice{Reason: gate.ReasonPlaceable, Message: room}}
	first := fixture.RecordOf(fixture.Noon, "cluster1")
	first.Reason, first.QuotaReservedAt = room, fixture.Noon
	yieldingGate := func(s *Situation) {
		s.Gate.Spec.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield}
		s.Now, s.Room.OthersPending = fixture.Noon.Add(time.Hour), true
		for i := range s.Room.Candidates {
			s.Room.Candidates[i].SampledAt = s.Now
		}
	}
	later := func(d time.Duration) func(*Situation) {
		return func(s *Situation) {
			s.Now = fixture.Noon.Add(d)
			for i := range s.Room.Candidates {
				s.Room.Candidates[i].SampledAt = s.Now
			}
		}
	}
	covered := map[Phase]bool{}
	for _, tc := range []struct {
		name   string
		change func(*Situation)
		phase  Phase
		want   func(*Situation) Step
		to     Phase
	}{
		{"deleted", noWorkload, PhaseDeleted, func(*Situation) Step { return Step{} }, PhaseDeleted},
		{"cache stale", staleCache, PhaseCacheStale, func(*Situation) Step { return Step{RequeueAfter: timing.RereadDelay} }, PhaseCacheStale},
		{"a write was refused", refusedFor(20*time.Second, false), PhaseWriteRefused, refusedStep, PhaseWriteRefused},
		{"a write was refused, check Ready", inOrder(setCheck(kueue.CheckStateReady), refusedFor(20*time.Second, false)), PhaseWriteRefused, refusedStep, PhaseWriteRefused},
		{"a write was refused, and the check says so", inOrder(func(s *Situation) { s.Workload.Status.AdmissionChecks[0].Message = "refused" }, refusedFor(20*time.Second, false)), PhaseWriteRefused, refusedPause, PhaseWriteRefused},
		{"the check was refused", refusedFor(20*time.Second, true), PhaseWriteRefused, refusedPause, PhaseWriteRefused},
		{"a wider nomination was refused", inOrder(sentTo(fixture.Noon, "cluster1"), refusedFor(20*time.Second, false)), PhaseWriteRefused, refusedPause, PhaseWriteRefused},
		{"a write was refused of a workload without quota", inOrder(func(s *Situation) { s.Workload.Status.Admission = nil }, refusedFor(20*time.Second, false)), PhaseWriteRefused, refusedPause, PhaseWriteRefused},
		{"a write was refused of a workload that runs on the hub", inOrder(setCheck(kueue.CheckStateReady), func(s *Situation) { s.Checks.MultiKueue = "" }, refusedFor(20*time.Second, false)), PhaseWriteRefused, refusedPause, PhaseWriteRefused},
		{"a write was refused a while ago", refusedFor(timing.RefusedPause, false), PhaseWaiting, func(s *Situation) Step {
			record := first
			record.NominatedAt = s.Now
			writes := nominationOf(&record, ReasonNominated, "nominated cluster1: "+room, "cluster1")
			return Step{RequeueAfter: timing.DefaultWidenAfter, Decision: &placeable, Reservation: reservationOn(s, nil, "cluster1"), Writes: []Write{writes[0], readyWrite, writes[1]}}
		}, PhaseNominated},
		{"yielded", yielded(time.Second, false), PhaseYielded, func(*Situation) Step { return Step{RequeueAfter: time.Second} }, PhaseYielded},
		{"pause over, the queue preempts, no room", inOrder(yieldedByPreemptor(time.Minute), noRoom), PhaseAwaitingRoom, func(*Situation) Step {
			return Step{RequeueAfter: timing.DefaultPeriod}
		}, PhaseAwaitingRoom},
		{"pause over, the queue preempts, there is room", yieldedByPreemptor(time.Minute), PhaseAwaitingRoom, func(s *Situation) Step {
			active := true
			return Step{Writes: []Write{{Record: &RecordWrite{Record: s.Record.Woken(), Active: &active}}}}
		}, PhaseIdle},
		{"held back, no room", inOrder(decidedFirst(false), noRoom), PhaseHeldBack, func(s *Situation) Step {
			d := s.Decision(1)
			return Step{RequeueAfter: timing.DefaultPeriod, Writes: []Write{{Check: &CheckWrite{Names: []string{"plimsoll"}, Decision: d, MessageKind: gate.ReasonNoRoom, RememberReason: true}, Event: &Notice{Reason: d.Reason, Message: d.Message}}}}
		}, PhaseHeldBack},
		{"held back, there is room", decidedFirst(false), PhaseHeldBack, func(s *Situation) Step {
			return Step{Reservation: reservationOn(s, nil, "cluster1"), Writes: []Write{activation(s)}}
		}, PhaseIdle},
		{"held back, the primary component, too", heldComponent(false), PhaseHeldBack, func(*Situation) Step { return Step{RequeueAfter: timing.DefaultPeriod} }, PhaseHeldBack},
		{"held back, and the primary component is released", inOrder(heldComponent(true), noRoom), PhaseHeldBack, func(s *Situation) Step { return Step{Writes: []Write{activation(s)}} }, PhaseIdle},
		{"released a moment ago, no room", inOrder(decidedFirst(true), noRoom, releasedAgo(20*time.Second)), PhaseReleased, func(*Situation) Step {
			return Step{RequeueAfter: timing.ReleasedWait - 20*time.Second}
		}, PhaseReleased},
		{"released, there is still room", inOrder(decidedFirst(true), releasedAgo(timing.ReleasedWait)), PhaseReleased, func(*Situation) Step { return Step{RequeueAfter: timing.DefaultPeriod} }, PhaseReleased},
		{"released, gate not known yet", inOrder(decidedFirst(true), noGate), PhaseReleased, func(*Situation) Step { return Step{RequeueAfter: timing.DefaultPeriod} }, PhaseReleased},
		{"released, no room", inOrder(decidedFirst(true), noRoom, releasedAgo(timing.ReleasedWait)), PhaseReleased, func(s *Situation) Step {
			inactive := false
			return Step{Writes: []Write{{Record: &RecordWrite{Record: s.Record.Requeued(ReasonHeldBack, s.Now), Active: &inactive},
				Event: &Notice{Reason: ReasonHeldBack, Message: "no cluster has room for the workload: it gets quota when one has, and preempts no other one in vain"}}}}
		}, PhaseYielded},
		{"pause over", inOrder(yielded(0, false), quotaReturned(timing.YieldSleep)), PhaseReturning, func(*Situation) Step {
			active := true
			return Step{Writes: []Write{{Record: &RecordWrite{Record: dispatch.Record{Attempt: 1, QuotaReservedAt: fixture.Noon, Yields: 1}, Active: &active}}}}
		}, PhaseIdle},
		{"activated by a user", yielded(time.Second, true), PhaseReturning, func(*Situation) Step {
			return Step{Writes: []Write{{Record: &RecordWrite{Record: dispatch.Record{Attempt: 1, QuotaReservedAt: fixture.Noon, Yields: 1}}}}}
		}, PhaseIdle},
		{"evicting", evictedFor(time.Second), PhaseEvicting, func(*Situation) Step { return Step{RequeueAfter: fixture.StuckAfter - time.Second} }, PhaseEvicting},
		{"eviction stuck, check Pending", evictedFor(fixture.StuckAfter), PhaseEvictionStuck, func(*Situation) Step {
			return Step{RequeueAfter: timing.EvictionGrace, Writes: []Write{{Check: &CheckWrite{Names: own,
				Decision: gate.Decision{State: gate.Ready, Reason: "EvictionRepair", Message: "the remote copy is gone and the eviction can't complete without a nomination"}}}}}
		}, PhaseEvictionStuck},
		{"eviction stuck, check Ready", inOrder(setCheck(kueue.CheckStateReady), evictedFor(fixture.StuckAfter)), PhaseEvictionStuck, func(s *Situation) Step {
			const message = "the remote copy is gone and the eviction can't complete without a nomination"
			record := dispatch.Record{}.BeginRepair([]string{"cluster1"}, kueuestate.QuotaReservedAt(s.Workload), message, s.Now)
			return Step{RequeueAfter: timing.EvictionGrace, Reservation: reservationOn(s, nil, "cluster1"),
				Writes: nominationOf(&record, "EvictionRepair", "nominated cluster1: "+message, "cluster1")}
		}, PhaseEvictionStuck},
		{"eviction stuck, no cluster connected", inOrder(evictedFor(fixture.StuckAfter), func(s *Situation) { s.MultiKueue.Connected = nil }), PhaseEvictionStuck,
			func(*Situation) Step { return Step{RequeueAfter: timing.EvictionGrace} }, PhaseEvictionStuck},
		{"no check of ours", noCheck, PhaseUngated, func(*Situation) Step {
			return Step{Writes: nominationOf(nil, "NominatedAll", "nominated cluster1, cluster2: no gate decides this queue, so every connected cluster is nominated", "cluster1", "cluster2")}
		}, PhaseUngated},
		{"no quota", func(s *Situation) { s.Workload.Status.Admission = nil }, PhaseIdle, func(*Situation) Step { return Step{} }, PhaseIdle},
		{"no quota, check Ready, Kueue nominates", inOrder(kueueNominates, setCheck(kueue.CheckStateReady), quotaReturned(0)), PhaseQuotaLost, func(*Situation) Step {
			d := gate.Decision{State: gate.Pending, Reason: "QuotaLost", Message: fixture.QuotaLost}
			return Step{Writes: []Write{{Check: &CheckWrite{Names: own, Decision: d, RememberReason: true}, Event: &Notice{Reason: d.Reason, Message: d.Message}}}}
		}, PhaseIdle},
		{"bad record", badRecord, PhaseRecordUnreadable, func(s *Situation) Step {
			return Step{Writes: []Write{{Record: &RecordWrite{}, Event: &Notice{Warning: true, Reason: "BadAnnotation", Message: s.Record.Err.Error() + "; the annotation was reset"}}}}
		}, PhaseRecordUnreadable},
		{"component of a job without a cluster", secondComponent, PhaseAwaitingPrimary, func(*Situation) Step {
			d := gate.Decision{State: gate.Pending, Reason: gate.ReasonAwaitingPrimary, Message: "waits until Kueue has placed component 0 of the job, Workload serve-0"}
			return Step{Decision: &d, Wait: waitsWith(gateKey, nil),
				Writes: []Write{{Check: &CheckWrite{Names: own, Decision: d, RememberReason: true}, Event: &Notice{Reason: d.Reason, Message: d.Message}}}}
		}, PhaseAwaitingPrimary},
		{"parked, and no cluster could start it", inOrder(parked(time.Minute), neverFits), PhaseParked, func(s *Situation) Step {
			e := s.WaitEntry(s.Room.Key)
			e.Parked = true
			return Step{Wait: &e}
		}, PhaseParked},
		{"parked, and metrics do not say", inOrder(parked(time.Minute), neverFits, func(s *Situation) { s.Room.Fleet.Problem = "fit: timeout" }), PhaseParked, func(s *Situation) Step {
			e := s.WaitEntry(s.Room.Key)
			e.Parked = true
			return Step{Wait: &e}
		}, PhaseParked},
		{"parked, and an empty cluster could start it", inOrder(parked(time.Minute), noRoom, fitsEmpty), PhaseParked, func(s *Situation) Step {
			active := true
			return Step{Writes: []Write{{Record: &RecordWrite{Record: s.Record.Woken(), Active: &active}}}}
		}, PhaseIdle},
		{"no cluster admits it", inOrder(sentTo(fixture.Noon, "cluster1"), later(10*time.Minute)), PhaseNominated, func(s *Situation) Step {
			inactive := false
			return Step{Requeued: true, Writes: []Write{{Record: &RecordWrite{Record: s.Record.AvoidIfOther("cluster1", s.Now.Add(timing.StartAvoidance), "did not admit it").Requeued("NotAdmitted", s.Now), Active: &inactive},
				Event: &Notice{Warning: true, Reason: "Requeued", Message: "cluster1 has not admitted it within 10m0s; it returns to its queue"}}}}
		}, PhaseYielded},
		{"nominated to complete an eviction, and holds quota again", inOrder(repairedOn("cluster1"), reservedAgain), PhaseNominated, func(s *Situation) Step {
			inactive := false
			return Step{Writes: []Write{{Record: &RecordWrite{Record: s.Record.Requeued("EvictionRepaired", s.Now), Active: &inactive},
				Event: &Notice{Warning: true, Reason: "Requeued", Message: "the nomination of cluster1 was for an eviction that is complete; it returns to its queue"}}}}
		}, PhaseYielded},
		{"nominated by another dispatcher to the clusters of an earlier attempt", inOrder(sentTo(fixture.Noon, "cluster1"), reservedAgain, readyAgain), PhaseNominated, func(s *Situation) Step {
			record := s.Record.Adopt([]string{"cluster1"}, fixture.Noon.Add(time.Minute), fixture.Noon)
			return Step{RequeueAfter: timing.DefaultWidenAfter, Reservation: reservationOn(s, []string{"cluster1"}, "cluster1"),
				Conflict: &conflict{Evidence: "team-a/job was nominated to cluster1 by another dispatcher", At: fixture.Noon}, Writes: []Write{{Record: &RecordWrite{Record: record}}}}
		}, PhaseNominated},
		{"nominated for quota that it has lost, and the gate would nominate the same", inOrder(sentTo(fixture.Noon, "cluster1"), reservedAgain), PhaseNominated, func(s *Situation) Step {
			return Step{RequeueAfter: timing.DefaultWidenAfter, Reservation: reservationOn(s, []string{"cluster1"}, "cluster1"),
				Writes: []Write{{Record: &RecordWrite{Record: s.Record.Adopt([]string{"cluster1"}, fixture.Noon.Add(time.Minute), fixture.Noon)}}}}
		}, PhaseNominated},
		{"nominated for quota that it has lost, and there is no room", inOrder(noRoom, sentTo(fixture.Noon, "cluster1"), reservedAgain), PhaseNominated, func(s *Situation) Step {
			inactive := false
			return Step{Writes: []Write{{Record: &RecordWrite{Record: s.Record.Requeued("QuotaLost", s.Now), Active: &inactive},
				Event: &Notice{Warning: true, Reason: "Requeued", Message: "the nomination of cluster1 was for quota that it has lost; it returns to its queue"}}}}
		}, PhaseYielded},
		{"nominated to complete an eviction that lasts", inOrder(sentTo(fixture.Noon, "cluster1"), evictedFor(fixture.StuckAfter), reservedAgain), PhaseEvictionStuck, func(s *Situation) Step {
			record := s.Record.Adopt([]string{"cluster1"}, fixture.Noon.Add(time.Minute), s.Now)
			return Step{RequeueAfter: timing.DefaultWidenAfter, Reservation: reservationOn(s, []string{"cluster1"}, "cluster1"), Writes: []Write{{Record: &RecordWrite{Record: record}}}}
		}, PhaseEvictionStuck},
		{"two checks of ours", secondCheck, PhaseTooManyChecks, func(s *Situation) Step {
			message := gate.TooManyChecksMessage(s.Checks.Own)
			return Step{Wait: waitsWith(gateKey, nil), Writes: []Write{{Event: &Notice{Warning: true, Reason: gate.ReasonGateNotReady, Message: message},
				Check: &CheckWrite{Names: s.Checks.Own, RememberReason: true, Decision: gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: message}}}}}
		}, PhaseTooManyChecks},
		{"slice of an elastic job", onCluster1, PhasePlacedByKueue, func(*Situation) Step {
			d := gate.Decision{State: gate.Ready, Reason: "PlacedByKueue", Message: "Kueue placed it on cluster1, where the job already runs"}
			return Step{Decision: &d, Writes: []Write{{Check: &CheckWrite{Names: own, Decision: d, RememberReason: true}, Event: &Notice{Reason: d.Reason, Message: d.Message}}}}
		}, PhaseIdle},
		{"runs on the hub, and its queue got the check", inOrder(runsOnHub, noRoom), PhasePlacedByKueue, func(*Situation) Step {
			d := gate.Decision{State: gate.Ready, Reason: "PlacedByKueue", Message: "the job ran before its queue had this check"}
			return Step{Decision: &d, Writes: []Write{{Check: &CheckWrite{Names: own, Decision: d, RememberReason: true}, Event: &Notice{Reason: d.Reason, Message: d.Message}}}}
		}, PhaseIdle},
		{"gate does not exist", noGate, PhaseGateUnknown, func(*Situation) Step {
			const message = "PlacementGate gpu does not exist"
			return Step{Wait: waitsWith(gateKey, nil), Writes: []Write{{Event: &Notice{Warning: true, Reason: gate.ReasonGateNotReady, Message: message},
				Check: &CheckWrite{Names: own, RememberReason: true, Decision: gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: message}}}}}
		}, PhaseGateUnknown},
		{"gate not read yet", inOrder(noGate, func(s *Situation) { s.Gate.Exists = true }), PhaseGateUnknown,
			func(*Situation) Step { return Step{Wait: waitsWith(shapeKey, twoDevices)} }, PhaseGateUnknown},
		{"waiting, room, other checks Ready", func(*Situation) {}, PhaseWaiting, func(s *Situation) Step {
			return Step{Decision: &placeable, Reservation: reservationOn(s, nil, "cluster1"), RequeueAfter: timing.DefaultWidenAfter,
				Writes: slices.Concat([]Write{readyWrite}, nominationOf(&first, "Nominated", "nominated cluster1: "+room, "cluster1"))}
		}, PhaseNominated},
		{"waiting, room, another check Pending", budgetPending, PhaseWaiting, func(*Situation) Step {
			return Step{Decision: &placeable, Reservation: &Reservation{}, Writes: []Write{readyWrite}}
		}, PhaseReady},
		{"waiting, room, Kueue nominates", kueueNominates, PhaseWaiting, func(s *Situation) Step {
			ready := readyWrite
			check := *ready.Check
			check.PodSetUpdates = []kueue.PodSetUpdate{{Name: "main", Annotations: map[string]string{v1alpha1.ClusterAnnotation: "cluster1"}}}
			ready.Check = &check
			return Step{Decision: &placeable, Reservation: reservationOn(s, nil, "cluster1"), Writes: []Write{ready}}
		}, PhaseReady},
		{"waiting, no room", noRoom, PhaseWaiting, func(*Situation) Step {
			return Step{Wait: waitsWith(shapeKey, twoDevices), Decision: &full, Reservation: &Reservation{}, Writes: []Write{{
				Check: &CheckWrite{Names: own, Decision: full, MessageKind: gate.ReasonNoRoom, RememberReason: true}, Event: &Notice{Reason: gate.ReasonNoRoom, Message: full.Message}}}}
		}, PhaseWaiting},
		{"waiting, gate has a problem", func(s *Situation) { s.Gate.Problem = "no Placement" }, PhaseWaiting, func(*Situation) Step {
			d := gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: "PlacementGate gpu is not ready: no Placement"}
			return Step{Wait: waitsWith(gateKey, nil), Decision: &d, Writes: []Write{{
				Check: &CheckWrite{Names: own, Decision: d, MessageKind: d.Message, RememberReason: true}, Event: &Notice{Reason: d.Reason, Message: d.Message}}}}
		}, PhaseWaiting},
		{"waiting, no room, yield due", inOrder(noRoom, yieldingGate), PhaseWaiting, func(s *Situation) Step {
			d, active := full, false
			d.State, d.Reason, d.Message = gate.Retry, gate.ReasonYield, "returns its quota for other workloads: "+full.Message
			return Step{Decision: &d, Reservation: &Reservation{}, Writes: []Write{{
				Record: &RecordWrite{Record: dispatch.Record{}.Yielded(fixture.Noon, s.Now).WithReturned(s.Workload.Status.Admission), Active: &active, Reason: gate.ReasonYield}, Event: &Notice{Reason: gate.ReasonYield, Message: d.Message}}}}
		}, PhaseYielded},
		{"waiting, can never start", neverFits, PhaseWaiting, func(s *Situation) Step {
			d := never
			return Step{Wait: waitsWith(shapeKey, twoDevices), Decision: &d, NeverSince: s.Now, RequeueAfter: timing.DefaultNeverAfter, Reservation: &Reservation{}, Writes: []Write{{
				Check: &CheckWrite{Names: own, Decision: d, MessageKind: gate.ReasonNever, RememberReason: true}, Event: &Notice{Reason: gate.ReasonNever, Message: d.Message}}}}
		}, PhaseWaiting},
		{"waiting, could never start for long enough", inOrder(neverFits, neverFor(timing.DefaultNeverAfter)), PhaseWaiting, func(s *Situation) Step {
			d, inactive := never, false
			d.State, d.Reason = gate.Retry, gate.ReasonParked
			return Step{Decision: &d, NeverSince: s.History.NeverSince, Reservation: &Reservation{}, Writes: []Write{{
				Record: &RecordWrite{Record: dispatch.Record{}.Park(d.Message, fixture.Noon, s.Now).WithReturned(s.Workload.Status.Admission), Active: &inactive, Reason: gate.ReasonParked},
				Event:  &Notice{Reason: gate.ReasonParked, Message: d.Message}}}}
		}, PhaseYielded},
		{"waiting, could never start, and the gate rejects", inOrder(neverFits, neverFor(timing.DefaultNeverAfter), func(s *Situation) { s.Gate.Spec.WhenUnplaceable.Never.Mode = v1alpha1.NeverReject }), PhaseWaiting, func(s *Situation) Step {
			d := never
			d.State, d.Message = gate.Rejected, "gave up: "+d.Message
			return Step{Decision: &d, NeverSince: s.History.NeverSince, Reservation: &Reservation{}, Writes: []Write{{
				Check: &CheckWrite{Names: own, Decision: d, MessageKind: gate.ReasonNever, RememberReason: true}, Event: &Notice{Warning: true, Reason: gate.ReasonNever, Message: d.Message}}}}
		}, PhaseIdle},
		{"waiting, could never start, and the gate lets it wait", inOrder(neverFits, neverFor(time.Hour), func(s *Situation) { s.Gate.Spec.WhenUnplaceable.Never.Mode = v1alpha1.NeverWait }), PhaseWaiting, func(s *Situation) Step {
			d := never
			return Step{Wait: waitsWith(shapeKey, twoDevices), Decision: &d, NeverSince: s.History.NeverSince, Reservation: &Reservation{}, Writes: []Write{{
				Check: &CheckWrite{Names: own, Decision: d, MessageKind: gate.ReasonNever, RememberReason: true}, Event: &Notice{Reason: gate.ReasonNever, Message: d.Message}}}}
		}, PhaseWaiting},
		{"waiting, no room, given up", inOrder(noRoom, func(s *Situation) {
			after := int32(60)
			s.Gate.Spec.WhenUnplaceable.GiveUpAfterSeconds = &after
			fixture.WithRecord(s.Workload, dispatch.Record{UnplacedSeconds: 60, UnplacedSince: fixture.Noon})
		}), PhaseWaiting, func(*Situation) Step {
			d := full
			d.State, d.Reason, d.Message = gate.Rejected, gate.ReasonGaveUp, "gave up: "+full.Message
			reset := Write{Record: &RecordWrite{Record: dispatch.Record{QuotaReservedAt: fixture.Noon}}}
			return Step{Decision: &d, Reservation: &Reservation{}, Writes: []Write{reset, {
				Check: &CheckWrite{Names: own, Decision: d, MessageKind: gate.ReasonGaveUp, RememberReason: true}, Event: &Notice{Warning: true, Reason: gate.ReasonGaveUp, Message: d.Message}}}}
		}, PhaseIdle},
		{"Kueue nominates, within the grace period", inOrder(kueueNominates, setCheck(kueue.CheckStateReady)), PhaseBuiltinDispatch,
			func(*Situation) Step { return Step{RequeueAfter: timing.DispatchGrace} }, PhaseBuiltinDispatch},
		{"another check is Pending", inOrder(setCheck(kueue.CheckStateReady), budgetPending), PhaseReady, func(*Situation) Step { return Step{} }, PhaseReady},
		{"nomination removed", revoked, PhaseRevoked, func(s *Situation) Step {
			const message = "another component removed the nomination of cluster2"
			record := s.Record.Widen([]string{"cluster1", "cluster2"}, message, fixture.Noon)
			return Step{RequeueAfter: timing.DefaultWidenAfter, Conflict: &conflict{Evidence: "team-a/job: " + message, At: fixture.Noon},
				Writes: nominationOf(&record, "NominatedAgain", "nominated cluster1, cluster2: "+message, "cluster1", "cluster2")}
		}, PhaseNominated},
		{"nominating", setCheck(kueue.CheckStateReady), PhaseNominating, func(s *Situation) Step {
			return Step{Decision: &placeable, Reservation: reservationOn(s, nil, "cluster1"), RequeueAfter: timing.DefaultWidenAfter,
				Writes: nominationOf(&first, "Nominated", "nominated cluster1: "+room, "cluster1")}
		}, PhaseNominated},
		{"nominating, no room any more", inOrder(noRoom, setCheck(kueue.CheckStateReady)), PhaseNominating, func(*Situation) Step {
			return Step{Wait: waitsWith(shapeKey, twoDevices), Decision: &full, Reservation: &Reservation{}, Writes: []Write{{
				Check: &CheckWrite{Names: own, Decision: full, MessageKind: gate.ReasonNoRoom, RememberReason: true}, Event: &Notice{Reason: gate.ReasonNoRoom, Message: full.Message}}}}
		}, PhaseNominating},
		{"nominated", sentTo(fixture.Noon, "cluster1"), PhaseNominated, func(*Situation) Step { return Step{RequeueAfter: timing.DefaultWidenAfter} }, PhaseNominated},
		{"nominated, late", inOrder(sentTo(fixture.Noon, "cluster2"), later(timing.DefaultWidenAfter)), PhaseNominated, func(s *Situation) Step {
			const message = "cluster2 has not admitted it within 30s; check that the worker has the queue and quota; now also cluster1"
			record := s.Record.Widen([]string{"cluster2", "cluster1"}, message, s.Now)
			return Step{RequeueAfter: timing.DefaultWidenAfter, LateAttempt: 1, Mispredicted: true, Reservation: reservationOn(s, []string{"cluster2"}, "cluster1"),
				Writes: nominationOf(&record, "Widened", "nominated cluster2, cluster1: "+message, "cluster2", "cluster1")}
		}, PhaseNominated},
		{"nominated by another component", inOrder(sentTo(fixture.Noon, "cluster1"), func(s *Situation) { s.Workload.Status.NominatedClusterNames = []string{"cluster1", "cluster2"} }), PhaseNominated, func(s *Situation) Step {
			record := s.Record.Adopt([]string{"cluster1", "cluster2"}, fixture.Noon, fixture.Noon)
			return Step{RequeueAfter: timing.DefaultWidenAfter, Reservation: reservationOn(s, []string{"cluster1", "cluster2"}, "cluster1"),
				Conflict: &conflict{Evidence: "team-a/job was nominated to cluster2 by another dispatcher", At: fixture.Noon}, Writes: []Write{{Record: &RecordWrite{Record: record}}}}
		}, PhaseNominated},
		{"mode Shadow", inOrder(noRoom, shadowed), PhasePassing, func(*Situation) Step {
			record := dispatch.Record{}.Begin([]string{"cluster1", "cluster2"}, fixture.Noon, passes, fixture.Noon)
			return Step{Writes: append([]Write{{Check: &CheckWrite{Names: own, RememberReason: true, Decision: gate.Decision{State: gate.Ready, Reason: ReasonShadow, Message: passes}}}},
				nominationOf(&record, ReasonNominated, "nominated cluster1, cluster2: "+passes, "cluster1", "cluster2")...)}
		}, PhaseComparing},
		{"mode Shadow, a cluster has connected since", inOrder(shadowed, sentTo(fixture.Noon, "cluster1")), PhasePassing, func(s *Situation) Step {
			record := s.Record.Widen([]string{"cluster1", "cluster2"}, passes, fixture.Noon)
			return Step{Writes: nominationOf(&record, ReasonNominated, "nominated cluster1, cluster2: "+passes, "cluster1", "cluster2")}
		}, PhaseComparing},
		{"mode Shadow, would wait, the first cluster has connected", inOrder(shadowed, setCheck(kueue.CheckStateReady), wouldBeOn("", fixture.Noon)), PhasePassing, func(s *Situation) Step {
			record := s.Record.Begin([]string{"cluster1", "cluster2"}, fixture.Noon, passes, fixture.Noon)
			record.Passed = s.Record.Passed
			return Step{Writes: nominationOf(&record, ReasonNominated, "nominated cluster1, cluster2: "+passes, "cluster1", "cluster2")}
		}, PhaseComparing},
		{"mode Shadow, the record was refused", inOrder(shadowed, setCheck(kueue.CheckStateReady), refusedFor(time.Second, false)), PhasePassing, func(*Situation) Step {
			return Step{Writes: nominationOf(nil, ReasonNominated, "nominated cluster1, cluster2: "+passes, "cluster1", "cluster2")}
		}, PhaseComparing},
		{"mode Shadow, would be sent", passed("", fixture.Noon), PhaseComparing, func(s *Situation) Step {
			return Step{RequeueAfter: timing.DefaultPeriod, Reservation: inShadow(reservationOn(s, nil, "cluster1")), Writes: []Write{{
				Record: &RecordWrite{Record: s.Record.WithPassed("cluster1", gate.ReasonPlaceable, room, 2, fixture.Noon, fixture.Noon)},
				Event:  &Notice{Reason: ReasonWouldSend, Message: "gate gpu would send it to cluster1: " + room}}}}
		}, PhaseComparing},
		{"mode Shadow, would wait", inOrder(noRoom, passed("", fixture.Noon)), PhaseComparing, func(s *Situation) Step {
			return Step{RequeueAfter: timing.DefaultPeriod, Reservation: &Reservation{}, Writes: []Write{{
				Record: &RecordWrite{Record: s.Record.WithPassed("", gate.ReasonNoRoom, full.Message, 2, fixture.Noon, fixture.Noon)},
				Event:  &Notice{Reason: ReasonWouldWait, Message: "gate gpu would keep it waiting: " + full.Message}}}}
		}, PhaseComparing},
		{"mode Shadow, would go on waiting, on a cluster", inOrder(noRoom, passed("cluster2", fixture.Noon), wouldBeOn("", fixture.Noon)), PhaseComparing, func(*Situation) Step {
			return Step{RequeueAfter: timing.DefaultPeriod}
		}, PhaseComparing},
		{"mode Shadow, room after a minute, on a cluster", inOrder(passed("cluster2", fixture.Noon), wouldBeOn("", fixture.Noon), later(time.Minute)), PhaseComparing, func(s *Situation) Step {
			return Step{RequeueAfter: timing.DefaultPeriod, Writes: []Write{{
				Record: &RecordWrite{Record: s.Record.WithPassed("cluster1", "", "", 2, fixture.Noon, s.Now)},
				Event:  &Notice{Reason: ReasonWouldSend, Message: "gate gpu would send it to cluster1: " + room}}}}
		}, PhaseComparing},
		{"mode Shadow, the gate has a problem", inOrder(passed("", fixture.Noon), func(s *Situation) { s.Gate.Problem = "no Placement" }), PhaseComparing, func(s *Situation) Step {
			const message = "PlacementGate gpu is not ready: no Placement"
			return Step{RequeueAfter: timing.DefaultPeriod, Writes: []Write{{
				Record: &RecordWrite{Record: s.Record.WithPassed("", gate.ReasonGateNotReady, message, 2, fixture.Noon, fixture.Noon)},
				Event:  &Notice{Reason: ReasonWouldWait, Message: "gate gpu would keep it waiting: " + message}}}}
		}, PhaseComparing},
		{"mode Shadow, the gate was not read yet", inOrder(passed("", fixture.Noon), func(s *Situation) { s.Gate.Known = false }), PhaseComparing, func(*Situation) Step {
			return Step{RequeueAfter: time.Second}
		}, PhaseComparing},
		{"mode Shadow, waits for its pods", inOrder(passed("cluster2", fixture.Noon), wouldBeOn("cluster1", fixture.Noon)), PhasePassed, func(*Situation) Step {
			return Step{RequeueAfter: timing.HangsAfter}
		}, PhasePassed},
		{"mode Shadow, started", inOrder(passed("cluster2", fixture.Noon), wouldBeOn("cluster1", fixture.Noon), started(fixture.Noon)), PhasePassed, func(s *Situation) Step {
			return Step{Writes: []Write{{Record: &RecordWrite{Record: s.Record.Settled(v1alpha1.OutcomeOtherCluster)},
				Event: &Notice{Reason: ReasonShadow, Message: "compared with gate gpu: OtherCluster"}}}}
		}, PhasePassed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := situationWith(tc.change)
			if PhaseOf(s) != tc.phase {
				t.Fatalf("phase %s, want %s", PhaseOf(s), tc.phase)
			}
			got := Next(s)
			if diff := cmp.Diff(tc.want(s), got, stepOptions); diff != "" {
				t.Errorf("step (-want +got):\n%s", diff)
			}
			if s.Workload != nil {
				wait := gate.Snapshot{Workload: s.Workload, Own: s.Checks.Own, MultiKueue: s.Checks.MultiKueue, Config: s.Checks.Config, Connected: s.MultiKueue.Connected,
					Cluster: s.Checks.PlacedCluster(s.Workload), Dispatch: s.Record.Record, Decision: NextDecision(s), BuiltinDispatcher: !s.MultiKueue.Nominates}.Wait(s.Now)
				if waits := !strings.HasPrefix(wait.For, "nothing"); waits != (wait.Next != "") {
					t.Errorf("waits for %q, and the next event is %q", wait.For, wait.Next)
				}
			}
			if to := got.LeadsTo(PhaseOf(s)); to != tc.to || !isDocumented(PhaseOf(s), to) {
				t.Errorf("leads to %s, want %s; documented: %t", to, tc.to, isDocumented(PhaseOf(s), to))
			}
		})
		covered[tc.phase] = true
	}
	requireEveryPhase(t, covered)
}
