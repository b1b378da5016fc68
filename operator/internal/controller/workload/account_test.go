package workload

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// Devices stay reserved until samples must show them: a settling time after the admission
// or, if Kueue reports ready pods, hardly longer than until these are ready.
func TestDevicesStayReservedUntilSamplesShowThem(t *testing.T) {
	const settle = time.Minute
	earlier, soon := fixture.Noon.Add(-time.Hour), fixture.Noon.Add(time.Second)
	for _, tc := range []struct {
		name                string
		admitted, podsReady time.Time // zero = not
		sampled             time.Duration
		want                int64
	}{
		{"check Ready", time.Time{}, time.Time{}, 2 * settle, 2},
		{"admitted just now", fixture.Noon, time.Time{}, settle / 2, 2},
		{"admitted a settling time ago", fixture.Noon, time.Time{}, 2 * settle, 0},
		{"pods ready", fixture.Noon, soon, settle / 2, 0},
		{"pods ready in an earlier run", fixture.Noon, earlier, settle / 2, 2},
		{"pods not ready yet", fixture.Noon, earlier, 3 * settle, 2},
		{"pods not ready for long", fixture.Noon, earlier, 5 * settle, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.engine.Ledger.Settle = settle
			wl := fixture.ReadyFor(fixture.PendingWorkload(fixture.Noon), "cluster1", fixture.Noon)
			if !tc.admitted.IsZero() {
				fixture.SetCondition(wl, kueue.WorkloadAdmitted, tc.admitted)
			}
			if !tc.podsReady.IsZero() {
				fixture.SetCondition(wl, kueue.WorkloadPodsReady, tc.podsReady)
			}
			b.create(wl)
			s := b.look()
			b.engine.Ledger.Debit(s.Entry("cluster1", fixture.Noon))
			b.reconcile()
			if got := b.engine.Ledger.View().Devices("cluster1", fixture.Noon.Add(tc.sampled), "other", s.Request.Facts.PodSets[0]); got != tc.want {
				t.Errorf("%d devices reserved beside a sample of %s later, want %d", got, tc.sampled, tc.want)
			}
		})
	}
}

// Kueue sets the cluster of a new slice of an elastic job before that cluster has admitted it. Until then
// its pods do not run, however late the sample.
func TestDevicesOfASliceStayReservedUntilItsClusterAdmitsIt(t *testing.T) {
	const settle = time.Minute
	for _, isRestarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted %t", isRestarted), func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.engine.Ledger.Settle = settle
			look := func() { b.reconcile() }
			if isRestarted {
				look = b.restart
			}
			wl, cluster := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), "cluster1"
			wl.Annotations, wl.Status.ClusterName = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}, &cluster
			wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
			b.create(wl)
			look()
			set := b.look().Request.Facts.PodSets[0]
			reserved := func() int64 { return b.engine.Ledger.View().Devices("cluster1", b.now().Add(2*settle), "other", set) }
			if got, running := reserved(), b.engine.Ledger.View().Running("cluster1"); got != 2 || len(running) > 0 {
				t.Errorf("before the admission %d devices are reserved and %d workloads run, want 2 and none", got, len(running))
			}
			if n := testutil.CollectAndCount(b.metrics.admitSeconds); n != 0 {
				t.Errorf("%d admissions are counted before the admission", n)
			}
			b.clock.add(time.Minute)
			b.update(func(wl *kueue.Workload) {
				check := &wl.Status.AdmissionChecks[1]
				check.State, check.LastTransitionTime = kueue.CheckStateReady, metav1.NewTime(b.now())
			})
			look()
			if got, running := reserved(), b.engine.Ledger.View().Running("cluster1"); got != 0 || len(running) != 1 {
				t.Errorf("two settling times after the admission %d devices are reserved and %d workloads run, want none and 1", got, len(running))
			}
			b.clock.add(b.engine.Ledger.TTL)
			b.engine.Ledger.Expire(nil, b.now())
			b.update(func(wl *kueue.Workload) { wl.Status.AdmissionChecks[1].State = kueue.CheckStatePending })
			if look(); reserved() != 0 {
				t.Error("a reservation that has expired is made again")
			}
		})
	}
}

// finishedBy finishes a workload for a reason.
func finishedBy(reason string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		fixture.SetCondition(wl, kueue.WorkloadFinished, fixture.Noon)
		apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished).Reason = reason
	}
}

// What a workload held becomes free: its devices count in ranking, unless its copy was lost before, and waiting
// workloads are decided again. Devices of a workload that did not finish may still be in use, until
// samples show them.
func TestEndOfAnAttemptReturnsDevices(t *testing.T) {
	for _, tc := range []struct {
		name               string
		end                func(*kueue.Workload)
		reserved, credited int64
	}{
		{"finished", func(wl *kueue.Workload) { fixture.SetCondition(wl, kueue.WorkloadFinished, fixture.Noon) }, 0, 2},
		{"deleted with its job", finishedBy(kueue.WorkloadFinishedReasonOwnerNotFound), 2, 2},
		{"replaced by another slice", finishedBy(kueue.WorkloadSliceReplaced), 0, 2},
		{"replaced before it had quota", finishedBy(kueue.WorkloadFinishedReasonOutOfSync), 2, 2},
		{"quota lost", func(wl *kueue.Workload) { wl.Status.Admission = nil }, 2, 2},
		{"quota lost after the copy was lost, by a repair", func(wl *kueue.Workload) {
			record := dispatch.Record{}.BeginRepair([]string{"cluster1"}, fixture.Noon, "the copy is gone", fixture.Noon)
			wl.Annotations, wl.Status.Admission = map[string]string{v1alpha1.DispatchAnnotation: record.Encode()}, nil
		}, 2, 0},
		{"quota lost and reserved again between two looks", func(wl *kueue.Workload) {
			wl.Status.AdmissionChecks[0].State = kueue.CheckStatePending
			wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(fixture.Noon.Add(time.Minute))
		}, 2, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{PeriodSeconds: 3600})
			b.engine.Ledger.Settle = time.Minute
			wl := fixture.ReadyFor(fixture.PendingWorkload(fixture.Noon), "cluster1", fixture.Noon)
			fixture.SetCondition(wl, kueue.WorkloadAdmitted, fixture.Noon)
			b.create(wl)
			b.reconcile()
			if got := b.engine.Ledger.DevicesByCluster()["cluster1"]; got != 2 {
				t.Fatalf("%d devices reserved on cluster1, want 2", got)
			}
			b.clock.add(time.Minute)
			set := b.look().Request.Facts.PodSets[0]
			b.engine.Waiting.Add(waitqueue.Entry{Workload: types.NamespacedName{Name: "waits"}, Key: gatestate.QueryKey{Gate: "gpu"}, PodSets: []shape.PodSet{set}})
			b.refreshes = 0
			b.update(tc.end)
			b.account(b.look())
			view := b.engine.Ledger.View()
			if got := view.Credited("cluster1", fixture.Noon, set); got != tc.credited {
				t.Errorf("%d devices credited, want %d", got, tc.credited)
			}
			for after, want := range map[time.Duration]int64{0: tc.reserved, b.engine.Ledger.Settle + time.Second: 0} {
				if got := view.Devices("cluster1", b.now().Add(after), "other", set); got != want {
					t.Errorf("%d devices reserved beside a sample of %s later, want %d", got, after, want)
				}
			}
			for _, after := range []time.Duration{timing.MinWakeUpGap, timing.SettlingWakeUpGap} {
				b.clock.add(after)
				b.engine.Waiting.StartWakeUps()
			}
			if wakeUps := b.refreshes; wakeUps != 2 {
				t.Errorf("%d wake-ups, want one at once and one while samples come to show the change", wakeUps)
			}
		})
	}
}

// Nothing is kept of a deleted workload, with or without quota, and what a former workload
// of the same name held becomes free.
func TestDeletedWorkloadsAreForgotten(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	for i, uid := range []types.UID{"queued", "with quota", "with the name of another"} {
		wl := fixture.PendingWorkload(fixture.Noon)
		wl.UID, wl.Status.Admission = uid, nil
		if i > 0 {
			b.delete()
		}
		b.create(wl)
		b.reconcile()
		if uid == "with quota" {
			e := b.look().Entry("cluster1", fixture.Noon)
			e.UID = string(uid)
			b.engine.Ledger.Debit(e)
		}
	}
	if entries := b.engine.Ledger.View().Entries("cluster1", b.now().Add(time.Hour)); len(entries) != 0 {
		t.Errorf("the former workload of the same name still holds %v", entries)
	}
	b.look()
	b.delete()
	b.reconcile()
	if n := b.engine.Histories(); n != 0 {
		t.Errorf("%d histories are kept", n)
	}
	b.create(fixture.PendingWorkload(fixture.Noon))
	if b.look(); b.engine.Histories() != 0 {
		t.Error("an observation alone must not be remembered")
	}
}

// Nominations of an evicted workload don't belong to the attempt that is about to end.
func TestNominationsAreRememberedForTheCurrentAttempt(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		want   int
	}{
		{"check Ready", func(*kueue.Workload) {}, 1},
		{"evicted", func(wl *kueue.Workload) { fixture.SetCondition(wl, kueue.WorkloadEvicted, fixture.Noon) }, 0},
		{"check Pending", func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStatePending }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			wl := fixture.Nominated(fixture.PendingWorkload(fixture.Noon), "cluster1")
			tc.change(wl)
			b.create(wl)
			s := b.look()
			s = b.account(s)
			if got := len(s.History.NominatedSeen); got != tc.want {
				t.Errorf("%d clusters remembered, want %d", got, tc.want)
			}
		})
	}
}

// The exporter shows the pods that hold devices by their topmost controller: the job, or each pod of
// a group. It does not show those of devices that it can't count.
func TestOwnersWithoutMultiKueueAreUnknown(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	wl := fixture.PendingWorkload(fixture.Noon)
	wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "nightly-1", UID: "nightly-1"}}
	b.create(wl)
	s := b.look()
	if owners := s.Request.Owners(s.Workload); owners != nil {
		t.Errorf("owners %v; a CronJob may own the job, and the exporter then shows the CronJob", owners)
	}
}

func TestEntriesNameTheOwnersOfPods(t *testing.T) {
	owner := func(kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: name, UID: types.UID(name)}
	}
	request := func(wl *kueue.Workload, name corev1.ResourceName) {
		wl.OwnerReferences = []metav1.OwnerReference{owner("Job", "train")}
		devices := corev1.ResourceList{name: resource.MustParse("1")}
		wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: devices}
	}
	inTeam := func(kind, name string) ledger.Owner { return ledger.Owner{Namespace: "team-a", Kind: kind, Name: name} }
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		want   []ledger.Owner
	}{
		{"job", func(wl *kueue.Workload) { wl.OwnerReferences = []metav1.OwnerReference{owner("RayJob", "train")} }, []ledger.Owner{inTeam("RayJob", "train")}},
		{"pod group", func(wl *kueue.Workload) {
			wl.OwnerReferences = []metav1.OwnerReference{owner("Pod", "a"), owner("Pod", "b")}
		}, []ledger.Owner{inTeam("Pod", "a"), inTeam("Pod", "b")}},
		{"component of a job", func(wl *kueue.Workload) {
			wl.OwnerReferences = []metav1.OwnerReference{owner("LeaderWorkerSet", "serve")}
			wl.Annotations = map[string]string{kueuestate.ComponentAnnotation: "0"}
		}, nil},
		{"MIG instances", func(wl *kueue.Workload) { request(wl, "nvidia.com/mig-1g.10gb") }, []ledger.Owner{inTeam("Job", "train")}},
		{"devices of another vendor", func(wl *kueue.Workload) { request(wl, "habana.ai/gaudi") }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Fit: `floor(sum by (cluster) (free))`}})
			wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
			tc.change(wl)
			b.create(wl)
			b.reconcile()
			entries := b.engine.Ledger.View().Entries(b.workload().Status.NominatedClusterNames[0], fixture.Noon)
			if len(entries) != 1 {
				t.Fatalf("entries %v, want one", entries)
			}
			if diff := cmp.Diff(tc.want, entries[0].Owners); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
}
