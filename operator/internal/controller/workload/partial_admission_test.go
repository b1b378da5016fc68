package workload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// permitPartialAdmission makes a workload request pods with two devices each, of which Kueue may admit
// fewer.
func permitPartialAdmission(wl *kueue.Workload, pods, minPods int32) *kueue.Workload {
	wl.Spec.PodSets[0].Count, wl.Spec.PodSets[0].MinCount = pods, &minPods
	return wl
}

// quota replaces the unreserved quota of the workload's queue on each cluster, in devices.
func (b *bench) quota(devices map[string]float64) {
	b.source.mu.Lock()
	defer b.source.mu.Unlock()
	b.source.quota = devices
}

// runningDevices are the devices that the running workloads of a cluster return at least if the worker
// preempts them.
func (b *bench) runningDevices(cluster string) int64 {
	var n int64
	for _, r := range b.engine.Ledger.View().Running(cluster) {
		for _, p := range r.PodSets {
			n += p.Devices()
		}
	}
	return n
}

// A job may request more pods than any cluster has devices, if it also runs with few. It takes no more
// than the quota of the worker's queue permits, before and after the admission.
func TestPartialAdmissionReservesWhatTheQuotaPermits(t *testing.T) {
	for _, tc := range []struct {
		name    string
		quota   map[string]float64
		room    map[string]float64
		want    map[string]int64
		running int64
	}{
		{"quota for one pod", map[string]float64{"cluster1": 2}, onlyCluster1, map[string]int64{"cluster1": 2}, 2},
		{"quota for three pods", map[string]float64{"cluster1": 7}, onlyCluster1, map[string]int64{"cluster1": 6}, 6},
		{"quota for all pods", map[string]float64{"cluster1": 4000}, map[string]float64{"cluster1": 1000}, map[string]int64{"cluster1": 2000}, 2000},
		{"unknown quota", nil, map[string]float64{"cluster1": 1000}, map[string]int64{"cluster1": 2000}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.quota(tc.quota)
			b.room(tc.room)
			b.create(fixture.WithMultiKueue(permitPartialAdmission(fixture.PendingWorkload(fixture.Noon), 1000, 1)))
			b.reconcile()
			if diff := cmp.Diff(tc.want, b.engine.Ledger.DevicesByCluster()); diff != "" {
				t.Errorf("reserved devices (-want +got):\n%s\ncheck: %v", diff, checkTexts(b.workload()))
			}
			b.update(func(wl *kueue.Workload) { fixture.AdmitBy(wl, "cluster1") })
			b.reconcile()
			if diff := cmp.Diff(tc.want, b.engine.Ledger.DevicesByCluster()); diff != "" {
				t.Errorf("reserved devices after the admission (-want +got):\n%s", diff)
			}
			if got := b.runningDevices("cluster1"); got != tc.running {
				t.Errorf("%d devices run, want %d", got, tc.running)
			}
		})
	}
}

// Each nominated cluster may admit another number of pods. When a nomination is widened, the present
// quota of a cluster counts.
func TestPartialAdmissionByCluster(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.quota(map[string]float64{"cluster1": 2, "cluster2": 0})
	b.create(fixture.WithMultiKueue(permitPartialAdmission(fixture.PendingWorkload(fixture.Noon), 4, 1)))
	b.reconcile()
	b.quota(map[string]float64{"cluster1": 4, "cluster2": 6})
	b.clock.add(time.Minute)
	b.cache = b.newCache()
	b.reconcile()
	if diff := cmp.Diff(map[string]int64{"cluster1": 4, "cluster2": 6}, b.engine.Ledger.DevicesByCluster()); diff != "" {
		t.Errorf("reserved devices (-want +got):\n%s\nnominated: %v", diff, b.workload().Status.NominatedClusterNames)
	}
	b.update(func(wl *kueue.Workload) { fixture.AdmitBy(wl, "cluster2") })
	b.reconcile()
	if got := b.runningDevices("cluster2"); got != 6 {
		t.Errorf("%d devices run on cluster2, want 6", got)
	}
}

// A cluster may admit a workload although the gate saw no room there, or saw it with other quota in an
// earlier attempt: the number of pods is not known, and only the minimum counts.
func TestPartialAdmissionWithUnknownNumber(t *testing.T) {
	admitted := func() *kueue.Workload {
		wl := fixture.Nominated(permitPartialAdmission(fixture.PendingWorkload(fixture.Noon), 1000, 1), "cluster1")
		fixture.AdmitBy(wl, "cluster1")
		return wl
	}
	for _, tc := range []struct {
		name string
		look func(b *bench)
	}{
		{"admitted without a decision of this process", func(b *bench) { b.create(admitted()); b.reconcile() }},
		{"restarted", func(b *bench) { b.create(admitted()); b.restart() }},
		{"decided for quota that was lost", func(b *bench) {
			b.quota(map[string]float64{"cluster1": 8})
			b.create(fixture.WithMultiKueue(permitPartialAdmission(fixture.PendingWorkload(fixture.Noon), 1000, 1)))
			b.reconcile()
			b.engine.Ledger.Release("uid")
			b.update(func(wl *kueue.Workload) {
				wl.Status = admitted().Status
				wl.Status.Conditions[0].LastTransitionTime.Time = fixture.Noon.Add(time.Minute)
			})
			b.reconcile()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			tc.look(b)
			if got := b.engine.Ledger.DevicesByCluster()["cluster1"]; got != 2 {
				t.Errorf("%d devices reserved, want 2", got)
			}
			if got := b.runningDevices("cluster1"); got != 2 {
				t.Errorf("%d devices run, want 2", got)
			}
		})
	}
}

// While a workload is nominated, a new process debits all pods: it does not know the quota with which
// the nomination was decided.
func TestPartialAdmissionIsRebuilt(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.WithRecord(fixture.Nominated(permitPartialAdmission(fixture.PendingWorkload(fixture.Noon), 4, 1), "cluster1"), fixture.RecordOf(fixture.Noon, "cluster1")))
	b.restart()
	if got := b.engine.Ledger.DevicesByCluster()["cluster1"]; got != 8 {
		t.Errorf("%d devices reserved, want 8", got)
	}
}
