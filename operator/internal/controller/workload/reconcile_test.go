package workload

import (
	"errors"
	"slices"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// An observation from before the last write would take back what the ledger holds.
func TestStaleCacheChangesNothing(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(onlyCluster1)
	b.create(withMultiKueue(pendingWorkload(noon)))
	stale := b.workload()
	b.reconcile()
	want := map[string]int64{"cluster1": 2}
	if diff := cmp.Diff(want, b.ledger.DevicesByCluster()); diff != "" {
		t.Fatalf("reserved devices (-want +got):\n%s", diff)
	}
	written := b.workload()
	b.room(onlyCluster2)
	b.clock.add(timing.MaxCacheLag - time.Second)
	b.client = newStaleClient(b.hub, stale)
	if result := b.reconcile(); result.RequeueAfter != timing.RereadDelay {
		t.Errorf("next look after %s", result.RequeueAfter)
	}
	if diff := cmp.Diff(want, b.ledger.DevicesByCluster()); diff != "" {
		t.Errorf("reserved devices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(written, b.workload()); diff != "" {
		t.Errorf("the workload changed (-want +got):\n%s", diff)
	}
}

// observationWith is a Pending workload with MultiKueue and a known gate, with room on
// cluster1 only.
func observationWith(change func(*observation)) *observation {
	b := ledger.New(time.Second, time.Hour)
	o := &observation{key: types.NamespacedName{Namespace: "team-a", Name: "job"}, wl: withMultiKueue(pendingWorkload(noon)), now: noon,
		checks: []string{"plimsoll"}, gateName: "gpu", gate: registry.Gate{Name: "gpu"}, gateKnown: true, gateExists: true,
		multiKueue: "multikueue", nominates: true, ledgerTTL: b.TTL, view: b.View(), queryKey: querycache.Key{Gate: "gpu", Facts: "two devices"},
		workers: workers{config: "gpu", connected: []string{"cluster1", "cluster2"}, connectedSince: map[string]time.Time{}},
		candidates: []gate.Candidate{
			{Name: "cluster1", SampledAt: noon, Shapes: []gate.ShapeMetrics{{Fit: gate.Known(9), Quota: gate.Known(100)}}},
			{Name: "cluster2", SampledAt: noon, Shapes: []gate.ShapeMetrics{{Fit: gate.Known(0), Quota: gate.Known(100)}}}}}
	change(o)
	if o.wl != nil {
		o.readRecord()
		o.facts = o.factsUnder(o.wl, &o.gate.Spec)
	}
	o.phase = phaseOf(o)
	return o
}

// Changes of an observation.
func setCheck(state kueue.CheckState) func(*observation) {
	return func(o *observation) { o.wl.Status.AdmissionChecks[0].State = state }
}

func secondComponent(o *observation) {
	o.wl.Annotations = map[string]string{kueuestate.ComponentAnnotation: "1"}
	o.component.primary = replica(0)
}

func jobOnCluster1(o *observation) { o.component.cluster = "cluster1" }

func evictedFor(d time.Duration) func(*observation) {
	return func(o *observation) { setCondition(o.wl, kueue.WorkloadEvicted, noon); o.now = noon.Add(d) }
}

// stuckAfter is the time after which the eviction of an active workload of the tests counts as stuck.
const stuckAfter = timing.EvictionGrace + timing.DefaultPodGrace

func yielded(until time.Duration, active bool) func(*observation) {
	return func(o *observation) {
		o.wl.Spec.Active = &active
		withRecord(o.wl, dispatch.Record{Attempt: 1, Yields: 1, SleepsUntil: noon.Add(until)})
	}
}

// quotaReturned is the end of an eviction some time ago.
func quotaReturned(ago time.Duration) func(*observation) {
	return func(o *observation) {
		o.wl.Status.Admission, o.now = nil, noon.Add(ago)
		c := apimeta.FindStatusCondition(o.wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		c.Status, c.LastTransitionTime = metav1.ConditionFalse, metav1.NewTime(noon)
	}
}

func sentTo(at time.Time, clusters ...string) func(*observation) {
	return func(o *observation) {
		o.wl.Status.AdmissionChecks[0].State, o.wl.Status.NominatedClusterNames = kueue.CheckStateReady, clusters
		withRecord(o.wl, recordOf(at, clusters...))
	}
}

// repairedOn is a nomination that completes a stuck eviction.
func repairedOn(clusters ...string) func(*observation) {
	return func(o *observation) {
		sentTo(noon, clusters...)(o)
		withRecord(o.wl, dispatch.Record{}.BeginRepair(clusters, noon, "the remote copy is gone", noon))
	}
}

// reservedAgain changes the time at which quota was reserved, as another reservation does.
func reservedAgain(o *observation) {
	apimeta.FindStatusCondition(o.wl.Status.Conditions, kueue.WorkloadQuotaReserved).LastTransitionTime = metav1.NewTime(noon.Add(time.Minute))
}

// readyAgain makes the gate's check Ready under that reservation, as after an eviction.
func readyAgain(o *observation) {
	o.check().LastTransitionTime = metav1.NewTime(noon.Add(time.Minute))
}

func inOrder(changes ...func(*observation)) func(*observation) {
	return func(o *observation) {
		for _, change := range changes {
			change(o)
		}
	}
}

var (
	onCluster1 = func(o *observation) { name := "cluster1"; o.wl.Status.ClusterName = &name }
	runsOnHub  = func(o *observation) {
		o.multiKueue, o.wl.Status.AdmissionChecks = "", o.wl.Status.AdmissionChecks[:1]
		setCondition(o.wl, kueue.WorkloadAdmitted, noon)
	}
	noWorkload = func(o *observation) { o.wl = nil }
	staleCache = func(o *observation) {
		o.wl.ResourceVersion = "6"
		o.history.lastWrite.version, o.history.lastWrite.at = "7", noon
	}
	noGate  = func(o *observation) { o.gateKnown, o.gateExists = false, false }
	noCheck = func(o *observation) {
		o.checks, o.gateName, o.wl.Status.AdmissionChecks = nil, "", o.wl.Status.AdmissionChecks[1:]
	}
	secondCheck = func(o *observation) {
		withSecondCheck(o.wl, kueue.CheckStatePending)
		o.checks = []string{"plimsoll", "second"}
	}
	badRecord      = func(o *observation) { o.wl.Annotations = map[string]string{v1alpha1.DispatchAnnotation: "{"} }
	kueueNominates = func(o *observation) { o.nominates = false }
	budgetPending  = func(o *observation) {
		o.wl.Status.AdmissionChecks = append(o.wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "budget", State: kueue.CheckStatePending})
	}
	noRoom  = func(o *observation) { o.candidates = o.candidates[1:] }
	revoked = inOrder(sentTo(noon, "cluster1", "cluster2"), func(o *observation) {
		o.wl.Status.NominatedClusterNames = []string{"cluster1"}
		o.history.nominatedSeen = []string{"cluster1", "cluster2"}
	})
)

func TestPhaseOf(t *testing.T) {
	covered := map[Phase]bool{}
	for _, tc := range []struct {
		name   string
		change func(*observation)
		want   Phase
	}{
		{"does not exist", noWorkload, PhaseDeleted},
		{"older than the last write", staleCache, PhaseCacheStale},
		{"older than the last write for too long", inOrder(staleCache, func(o *observation) { o.now = noon.Add(timing.MaxCacheLag) }), PhaseWaiting},
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
		{"yielded, pause over, without a condition of quota", inOrder(yielded(0, false), func(o *observation) { o.wl.Status.Admission, o.wl.Status.Conditions = nil, nil }), PhaseReturning},
		{"yielded, finished", inOrder(yielded(0, false), func(o *observation) { setCondition(o.wl, kueue.WorkloadFinished, noon) }), PhaseIdle},
		{"yielded, being deleted", inOrder(yielded(time.Second, false), func(o *observation) { o.wl.DeletionTimestamp = &metav1.Time{Time: noon} }), PhaseIdle},
		{"deactivated by a user", func(o *observation) { active := false; o.wl.Spec.Active = &active }, PhaseIdle},
		{"evicted just now", evictedFor(time.Second), PhaseEvicting},
		{"evicted, and its pods may not have ended", evictedFor(stuckAfter - time.Second), PhaseEvicting},
		{"evicted for long, but MultiKueue is late", inOrder(evictedFor(stuckAfter), func(o *observation) { o.evictionLag = time.Minute }), PhaseEvicting},
		{"evicted for long", evictedFor(stuckAfter), PhaseEvictionStuck},
		{"evicted for long without a check of ours", inOrder(noCheck, evictedFor(stuckAfter)), PhaseEvictionStuck},
		{"evicted for long, Kueue nominates", inOrder(kueueNominates, evictedFor(stuckAfter)), PhaseIdle},
		{"no check of ours", noCheck, PhaseUngated},
		{"no check of ours yet", inOrder(noCheck, func(o *observation) { o.lacksChecks = true }), PhaseIdle},
		{"no check of ours, Kueue nominates", inOrder(noCheck, kueueNominates), PhaseIdle},
		{"no quota", func(o *observation) { o.wl.Status.Admission = nil }, PhaseIdle},
		{"no quota, check Ready", inOrder(setCheck(kueue.CheckStateReady), quotaReturned(0)), PhaseIdle},
		{"no quota, check Ready, Kueue nominates", inOrder(kueueNominates, setCheck(kueue.CheckStateReady), quotaReturned(0)), PhaseQuotaLost},
		{"finished", func(o *observation) { setCondition(o.wl, kueue.WorkloadFinished, noon) }, PhaseIdle},
		{"on a cluster", inOrder(setCheck(kueue.CheckStateReady), onCluster1), PhaseIdle},
		{"on a cluster, bad record", inOrder(setCheck(kueue.CheckStateReady), onCluster1, badRecord), PhaseIdle},
		{"rejected", setCheck(kueue.CheckStateRejected), PhaseIdle},
		{"retry", setCheck(kueue.CheckStateRetry), PhaseIdle},
		{"bad record", badRecord, PhaseRecordUnreadable},
		{"bad record without quota", inOrder(badRecord, func(o *observation) { o.wl.Status.Admission = nil }), PhaseIdle},
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
		{"gate does not exist, nominated", inOrder(sentTo(noon, "cluster1"), noGate), PhaseNominated},
		{"Pending", func(*observation) {}, PhaseWaiting},
		{"Pending, no room", noRoom, PhaseWaiting},
		{"Ready, Kueue nominates", inOrder(kueueNominates, setCheck(kueue.CheckStateReady)), PhaseBuiltinDispatch},
		{"Ready, another check is Pending", inOrder(setCheck(kueue.CheckStateReady), budgetPending), PhaseReady},
		{"nomination removed", revoked, PhaseRevoked},
		{"nomination removed of a disconnected cluster", inOrder(revoked, func(o *observation) { o.workers.connected = []string{"cluster1"} }), PhaseNominated},
		{"Ready, every other check too", setCheck(kueue.CheckStateReady), PhaseNominating},
		{"nominated", sentTo(noon, "cluster1"), PhaseNominated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := observationWith(tc.change).phase; got != tc.want {
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
	cmp.AllowUnexported(step{}, lateAdmission{}, reservation{}, write{}, checkWrite{}, recordWrite{}, nominationWrite{}, notice{}, conflict{}),
	cmp.Comparer(func(a, b querycache.Key) bool { return a == b }),
	cmpopts.IgnoreFields(gate.Decision{}, "Verdicts"), cmpopts.EquateEmpty(),
}

// reservationOn is a reservation of the workload's devices, made now.
func reservationOn(o *observation, kept []string, clusters ...string) *reservation {
	res := &reservation{kept: kept}
	for _, c := range clusters {
		res.entries = append(res.entries, ledger.Entry{UID: "uid", Workload: "team-a/job", Cluster: c, ClusterQueue: "gpu", PodSets: o.facts.PodSets, DebitedAt: o.now})
	}
	return res
}

// nominationOf are the writes of a nomination.
func nominationOf(record *dispatch.Record, reason, message string, clusters ...string) []write {
	var writes []write
	if record != nil {
		writes = append(writes, write{record: &recordWrite{record: *record}})
	}
	return append(writes, write{nomination: &nominationWrite{clusters: clusters, reason: reason}, event: &notice{reason: reason, message: message}})
}

// waitsWith is the wait queue's entry of the workload team-a/job.
func waitsWith(key querycache.Key, podSets []shape.PodSet) *waitqueue.Entry {
	e := &waitqueue.Entry{Workload: types.NamespacedName{Namespace: "team-a", Name: "job"}, Key: key,
		Rank: order.Rank{Since: noon, Name: "team-a/job"}, Aging: timing.DefaultAging, PodSets: podSets}
	if podSets != nil {
		e.Limits.MultiKueueConfig = "gpu"
	}
	return e
}

func TestNext(t *testing.T) {
	const room = "cluster1 has room for 9 such pods"
	own := []string{"plimsoll"}
	twoDevices := []shape.PodSet{{Name: "main", Resource: "nvidia.com/gpu", DevicesPerPod: 2, Pods: 1}}
	gateKey := querycache.Key{Gate: "gpu"}
	shapeKey := querycache.Key{Gate: "gpu", Facts: "two devices"}
	placeable := gate.Decision{State: gate.Ready, Reason: gate.ReasonPlaceable, Message: room, Order: []string{"cluster1"}}
	full := gate.Decision{State: gate.Pending, Reason: gate.ReasonNoRoom, NoRoomAnywhere: true, Message: "no cluster has 2 free nvidia.com/gpu on one node: best is cluster2 with 0 in total"}
	readyWrite := write{check: &checkWrite{names: own, decision: placeable, messageKind: gate.ReasonPlaceable, rememberReason: true},
		event: &notice{reason: gate.ReasonPlaceable, message: room}}
	first := recordOf(noon, "cluster1")
	first.Reason, first.QuotaReservedAt = room, noon
	yieldingGate := func(o *observation) {
		o.gate.Spec.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield}
		o.now, o.othersPending = noon.Add(time.Hour), true
		for i := range o.candidates {
			o.candidates[i].SampledAt = o.now
		}
	}
	later := func(d time.Duration) func(*observation) {
		return func(o *observation) {
			o.now = noon.Add(d)
			for i := range o.candidates {
				o.candidates[i].SampledAt = o.now
			}
		}
	}
	covered := map[Phase]bool{}
	for _, tc := range []struct {
		name   string
		change func(*observation)
		phase  Phase
		want   func(*observation) step
		to     Phase
	}{
		{"deleted", noWorkload, PhaseDeleted, func(*observation) step { return step{} }, PhaseDeleted},
		{"cache stale", staleCache, PhaseCacheStale, func(*observation) step { return step{} }, PhaseCacheStale},
		{"yielded", yielded(time.Second, false), PhaseYielded, func(*observation) step { return step{requeueAfter: time.Second} }, PhaseYielded},
		{"pause over", inOrder(yielded(0, false), quotaReturned(timing.YieldSleep)), PhaseReturning, func(*observation) step {
			active := true
			return step{writes: []write{{record: &recordWrite{record: dispatch.Record{Attempt: 1, QuotaReservedAt: noon, Yields: 1}, active: &active}}}}
		}, PhaseIdle},
		{"activated by a user", yielded(time.Second, true), PhaseReturning, func(*observation) step {
			return step{writes: []write{{record: &recordWrite{record: dispatch.Record{Attempt: 1, QuotaReservedAt: noon, Yields: 1}}}}}
		}, PhaseIdle},
		{"evicting", evictedFor(time.Second), PhaseEvicting, func(*observation) step { return step{requeueAfter: stuckAfter - time.Second} }, PhaseEvicting},
		{"eviction stuck, check Pending", evictedFor(stuckAfter), PhaseEvictionStuck, func(*observation) step {
			return step{requeueAfter: timing.EvictionGrace, writes: []write{{check: &checkWrite{names: own,
				decision: gate.Decision{State: gate.Ready, Reason: "EvictionRepair", Message: "the remote copy is gone and the eviction can't complete without a nomination"}}}}}
		}, PhaseEvictionStuck},
		{"eviction stuck, check Ready", inOrder(setCheck(kueue.CheckStateReady), evictedFor(stuckAfter)), PhaseEvictionStuck, func(o *observation) step {
			const message = "the remote copy is gone and the eviction can't complete without a nomination"
			record := dispatch.Record{}.BeginRepair([]string{"cluster1"}, o.quotaReservedAt(), message, o.now)
			return step{requeueAfter: timing.EvictionGrace, reservation: reservationOn(o, nil, "cluster1"),
				writes: nominationOf(&record, "EvictionRepair", "nominated cluster1: "+message, "cluster1")}
		}, PhaseEvictionStuck},
		{"eviction stuck, no cluster connected", inOrder(evictedFor(stuckAfter), func(o *observation) { o.workers.connected = nil }), PhaseEvictionStuck,
			func(*observation) step { return step{requeueAfter: timing.EvictionGrace} }, PhaseEvictionStuck},
		{"no check of ours", noCheck, PhaseUngated, func(*observation) step {
			return step{writes: nominationOf(nil, "NominatedAll", "nominated cluster1, cluster2: no gate decides this queue, so every connected cluster is nominated", "cluster1", "cluster2")}
		}, PhaseUngated},
		{"no quota", func(o *observation) { o.wl.Status.Admission = nil }, PhaseIdle, func(*observation) step { return step{} }, PhaseIdle},
		{"no quota, check Ready, Kueue nominates", inOrder(kueueNominates, setCheck(kueue.CheckStateReady), quotaReturned(0)), PhaseQuotaLost, func(*observation) step {
			d := gate.Decision{State: gate.Pending, Reason: "QuotaLost", Message: quotaLost}
			return step{writes: []write{{check: &checkWrite{names: own, decision: d, rememberReason: true}, event: &notice{reason: d.Reason, message: d.Message}}}}
		}, PhaseIdle},
		{"bad record", badRecord, PhaseRecordUnreadable, func(o *observation) step {
			return step{writes: []write{{record: &recordWrite{}, event: &notice{warning: true, reason: "BadAnnotation", message: o.recordErr.Error() + "; the annotation was reset"}}}}
		}, PhaseRecordUnreadable},
		{"component of a job without a cluster", secondComponent, PhaseAwaitingPrimary, func(*observation) step {
			d := gate.Decision{State: gate.Pending, Reason: gate.ReasonAwaitingPrimary, Message: "waits until Kueue has placed component 0 of the job, Workload serve-0"}
			return step{decision: &d, wait: waitsWith(gateKey, nil),
				writes: []write{{check: &checkWrite{names: own, decision: d, rememberReason: true}, event: &notice{reason: d.Reason, message: d.Message}}}}
		}, PhaseAwaitingPrimary},
		{"no cluster admits it", inOrder(sentTo(noon, "cluster1"), later(10*time.Minute)), PhaseNominated, func(o *observation) step {
			inactive := false
			return step{requeued: true, writes: []write{{record: &recordWrite{record: o.record.Requeued("NotAdmitted", o.now), active: &inactive},
				event: &notice{warning: true, reason: "Requeued", message: "cluster1 has not admitted it within 10m0s; it returns to its queue"}}}}
		}, PhaseYielded},
		{"nominated to complete an eviction, and holds quota again", inOrder(repairedOn("cluster1"), reservedAgain), PhaseNominated, func(o *observation) step {
			inactive := false
			return step{writes: []write{{record: &recordWrite{record: o.record.Requeued("EvictionRepaired", o.now), active: &inactive},
				event: &notice{warning: true, reason: "Requeued", message: "the nomination of cluster1 was for an eviction that is complete; it returns to its queue"}}}}
		}, PhaseYielded},
		{"nominated by another dispatcher to the clusters of an earlier attempt", inOrder(sentTo(noon, "cluster1"), reservedAgain, readyAgain), PhaseNominated, func(o *observation) step {
			record := o.record.Adopt([]string{"cluster1"}, noon.Add(time.Minute), noon)
			return step{requeueAfter: timing.DefaultWidenAfter, reservation: reservationOn(o, []string{"cluster1"}, "cluster1"),
				conflict: &conflict{evidence: "team-a/job was nominated to cluster1 by another dispatcher", at: noon}, writes: []write{{record: &recordWrite{record: record}}}}
		}, PhaseNominated},
		{"nominated for quota that it has lost, and the gate would nominate the same", inOrder(sentTo(noon, "cluster1"), reservedAgain), PhaseNominated, func(o *observation) step {
			return step{requeueAfter: timing.DefaultWidenAfter, reservation: reservationOn(o, []string{"cluster1"}, "cluster1"),
				writes: []write{{record: &recordWrite{record: o.record.Adopt([]string{"cluster1"}, noon.Add(time.Minute), noon)}}}}
		}, PhaseNominated},
		{"nominated for quota that it has lost, and there is no room", inOrder(noRoom, sentTo(noon, "cluster1"), reservedAgain), PhaseNominated, func(o *observation) step {
			inactive := false
			return step{writes: []write{{record: &recordWrite{record: o.record.Requeued("QuotaLost", o.now), active: &inactive},
				event: &notice{warning: true, reason: "Requeued", message: "the nomination of cluster1 was for quota that it has lost; it returns to its queue"}}}}
		}, PhaseYielded},
		{"nominated to complete an eviction that lasts", inOrder(sentTo(noon, "cluster1"), evictedFor(stuckAfter), reservedAgain), PhaseEvictionStuck, func(o *observation) step {
			record := o.record.Adopt([]string{"cluster1"}, noon.Add(time.Minute), o.now)
			return step{requeueAfter: timing.DefaultWidenAfter, reservation: reservationOn(o, []string{"cluster1"}, "cluster1"), writes: []write{{record: &recordWrite{record: record}}}}
		}, PhaseEvictionStuck},
		{"two checks of ours", secondCheck, PhaseTooManyChecks, func(o *observation) step {
			message := gate.TooManyChecksMessage(o.checks)
			return step{wait: waitsWith(gateKey, nil), writes: []write{{event: &notice{warning: true, reason: gate.ReasonGateNotReady, message: message},
				check: &checkWrite{names: o.checks, rememberReason: true, decision: gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: message}}}}}
		}, PhaseTooManyChecks},
		{"slice of an elastic job", onCluster1, PhasePlacedByKueue, func(*observation) step {
			d := gate.Decision{State: gate.Ready, Reason: "PlacedByKueue", Message: "Kueue placed it on cluster1, where the job already runs"}
			return step{decision: &d, writes: []write{{check: &checkWrite{names: own, decision: d, rememberReason: true}, event: &notice{reason: d.Reason, message: d.Message}}}}
		}, PhaseIdle},
		{"runs on the hub, and its queue got the check", inOrder(runsOnHub, noRoom), PhasePlacedByKueue, func(*observation) step {
			d := gate.Decision{State: gate.Ready, Reason: "PlacedByKueue", Message: "the job ran before its queue had this check"}
			return step{decision: &d, writes: []write{{check: &checkWrite{names: own, decision: d, rememberReason: true}, event: &notice{reason: d.Reason, message: d.Message}}}}
		}, PhaseIdle},
		{"gate does not exist", noGate, PhaseGateUnknown, func(*observation) step {
			const message = "PlacementGate gpu does not exist"
			return step{wait: waitsWith(gateKey, nil), writes: []write{{event: &notice{warning: true, reason: gate.ReasonGateNotReady, message: message},
				check: &checkWrite{names: own, rememberReason: true, decision: gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: message}}}}}
		}, PhaseGateUnknown},
		{"gate not read yet", inOrder(noGate, func(o *observation) { o.gateExists = true }), PhaseGateUnknown,
			func(*observation) step { return step{wait: waitsWith(shapeKey, twoDevices)} }, PhaseGateUnknown},
		{"waiting, room, other checks Ready", func(*observation) {}, PhaseWaiting, func(o *observation) step {
			return step{decision: &placeable, reservation: reservationOn(o, nil, "cluster1"), requeueAfter: timing.DefaultWidenAfter,
				writes: slices.Concat([]write{readyWrite}, nominationOf(&first, "Nominated", "nominated cluster1: "+room, "cluster1"))}
		}, PhaseNominated},
		{"waiting, room, another check Pending", budgetPending, PhaseWaiting, func(*observation) step {
			return step{decision: &placeable, reservation: &reservation{}, writes: []write{readyWrite}}
		}, PhaseReady},
		{"waiting, room, Kueue nominates", kueueNominates, PhaseWaiting, func(o *observation) step {
			ready := readyWrite
			check := *ready.check
			check.podSetUpdates = []kueue.PodSetUpdate{{Name: "main", Annotations: map[string]string{v1alpha1.ClusterAnnotation: "cluster1"}}}
			ready.check = &check
			return step{decision: &placeable, reservation: reservationOn(o, nil, "cluster1"), writes: []write{ready}}
		}, PhaseReady},
		{"waiting, no room", noRoom, PhaseWaiting, func(*observation) step {
			return step{wait: waitsWith(shapeKey, twoDevices), decision: &full, reservation: &reservation{}, writes: []write{{
				check: &checkWrite{names: own, decision: full, messageKind: gate.ReasonNoRoom, rememberReason: true}, event: &notice{reason: gate.ReasonNoRoom, message: full.Message}}}}
		}, PhaseWaiting},
		{"waiting, gate has a problem", func(o *observation) { o.gate.Problem = "no Placement" }, PhaseWaiting, func(*observation) step {
			d := gate.Decision{State: gate.Pending, Reason: gate.ReasonGateNotReady, Message: "PlacementGate gpu is not ready: no Placement"}
			return step{wait: waitsWith(gateKey, nil), decision: &d, writes: []write{{
				check: &checkWrite{names: own, decision: d, messageKind: d.Message, rememberReason: true}, event: &notice{reason: d.Reason, message: d.Message}}}}
		}, PhaseWaiting},
		{"waiting, no room, yield due", inOrder(noRoom, yieldingGate), PhaseWaiting, func(o *observation) step {
			d, active := full, false
			d.State, d.Reason, d.Message = gate.Retry, gate.ReasonYield, "returns its quota for other workloads: "+full.Message
			return step{decision: &d, reservation: &reservation{}, writes: []write{{
				record: &recordWrite{record: dispatch.Record{}.Yielded(noon, o.now), active: &active, reason: gate.ReasonYield}, event: &notice{reason: gate.ReasonYield, message: d.Message}}}}
		}, PhaseYielded},
		{"waiting, no room, given up", inOrder(noRoom, func(o *observation) {
			after := int32(60)
			o.gate.Spec.WhenUnplaceable.GiveUpAfterSeconds = &after
			withRecord(o.wl, dispatch.Record{UnplacedSeconds: 60, UnplacedSince: noon})
		}), PhaseWaiting, func(*observation) step {
			d := full
			d.State, d.Reason, d.Message = gate.Rejected, gate.ReasonGaveUp, "gave up: "+full.Message
			reset := write{record: &recordWrite{record: dispatch.Record{QuotaReservedAt: noon}}}
			return step{decision: &d, reservation: &reservation{}, writes: []write{reset, {
				check: &checkWrite{names: own, decision: d, messageKind: gate.ReasonGaveUp, rememberReason: true}, event: &notice{warning: true, reason: gate.ReasonGaveUp, message: d.Message}}}}
		}, PhaseIdle},
		{"Kueue nominates, within the grace period", inOrder(kueueNominates, setCheck(kueue.CheckStateReady)), PhaseBuiltinDispatch,
			func(*observation) step { return step{requeueAfter: timing.DispatchGrace} }, PhaseBuiltinDispatch},
		{"another check is Pending", inOrder(setCheck(kueue.CheckStateReady), budgetPending), PhaseReady, func(*observation) step { return step{} }, PhaseReady},
		{"nomination removed", revoked, PhaseRevoked, func(o *observation) step {
			const message = "another component removed the nomination of cluster2"
			record := o.record.Widen([]string{"cluster1", "cluster2"}, message, noon)
			return step{requeueAfter: timing.DefaultWidenAfter, conflict: &conflict{evidence: "team-a/job: " + message, at: noon},
				writes: nominationOf(&record, "NominatedAgain", "nominated cluster1, cluster2: "+message, "cluster1", "cluster2")}
		}, PhaseNominated},
		{"nominating", setCheck(kueue.CheckStateReady), PhaseNominating, func(o *observation) step {
			return step{decision: &placeable, reservation: reservationOn(o, nil, "cluster1"), requeueAfter: timing.DefaultWidenAfter,
				writes: nominationOf(&first, "Nominated", "nominated cluster1: "+room, "cluster1")}
		}, PhaseNominated},
		{"nominating, no room any more", inOrder(noRoom, setCheck(kueue.CheckStateReady)), PhaseNominating, func(*observation) step {
			return step{wait: waitsWith(shapeKey, twoDevices), decision: &full, reservation: &reservation{}, writes: []write{{
				check: &checkWrite{names: own, decision: full, messageKind: gate.ReasonNoRoom, rememberReason: true}, event: &notice{reason: gate.ReasonNoRoom, message: full.Message}}}}
		}, PhaseNominating},
		{"nominated", sentTo(noon, "cluster1"), PhaseNominated, func(*observation) step { return step{requeueAfter: timing.DefaultWidenAfter} }, PhaseNominated},
		{"nominated, late", inOrder(sentTo(noon, "cluster2"), later(timing.DefaultWidenAfter)), PhaseNominated, func(o *observation) step {
			const message = "cluster2 has not admitted it within 30s; check that the worker has the queue and quota; now also cluster1"
			record := o.record.Widen([]string{"cluster2", "cluster1"}, message, o.now)
			return step{requeueAfter: timing.DefaultWidenAfter, lateAttempt: 1, mispredicted: true, reservation: reservationOn(o, []string{"cluster2"}, "cluster1"),
				writes: nominationOf(&record, "Widened", "nominated cluster2, cluster1: "+message, "cluster2", "cluster1")}
		}, PhaseNominated},
		{"nominated by another component", inOrder(sentTo(noon, "cluster1"), func(o *observation) { o.wl.Status.NominatedClusterNames = []string{"cluster1", "cluster2"} }), PhaseNominated, func(o *observation) step {
			record := o.record.Adopt([]string{"cluster1", "cluster2"}, noon, noon)
			return step{requeueAfter: timing.DefaultWidenAfter, reservation: reservationOn(o, []string{"cluster1", "cluster2"}, "cluster1"),
				conflict: &conflict{evidence: "team-a/job was nominated to cluster2 by another dispatcher", at: noon}, writes: []write{{record: &recordWrite{record: record}}}}
		}, PhaseNominated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := observationWith(tc.change)
			if o.phase != tc.phase {
				t.Fatalf("phase %s, want %s", o.phase, tc.phase)
			}
			got := next(o)
			if diff := cmp.Diff(tc.want(o), got, stepOptions); diff != "" {
				t.Errorf("step (-want +got):\n%s", diff)
			}
			if to := got.leadsTo(o.phase); to != tc.to || !isDocumented(o.phase, to) {
				t.Errorf("leads to %s, want %s; documented: %t", to, tc.to, isDocumented(o.phase, to))
			}
		})
		covered[tc.phase] = true
	}
	requireEveryPhase(t, covered)
}

// A conflict means that the observation was out of date, and is no error. Another error is.
func TestFailedWriteEndsTheStep(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(withMultiKueue(pendingWorkload(noon)))
	o := b.look()
	b.update(func(wl *kueue.Workload) { wl.Labels = map[string]string{"changed": "true"} })
	if err := b.apply(t.Context(), o, next(o)); err == nil || errors.Unwrap(err) == nil {
		t.Errorf("want a conflict with the object, got %v", err)
	}
	if wl := b.workload(); wl.Status.AdmissionChecks[0].State != kueue.CheckStatePending || len(wl.Annotations) > 0 || len(wl.Status.NominatedClusterNames) > 0 {
		t.Errorf("a later write of the step was sent: %+v", wl.Status)
	}
	if events := b.events(); len(events) > 0 {
		t.Errorf("events of writes that failed: %q", events)
	}
}
