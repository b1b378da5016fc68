package workload

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// createReplicasWithQuota stores n replicas, of which the first ones hold quota, and selects the first.
func (b *bench) createReplicasWithQuota(n, quota int) {
	for i := range n {
		wl := fixture.Replica(i)
		if i >= quota {
			fixture.WithoutQuota(wl)
		}
		b.create(wl)
	}
	b.selectReplica(0)
}

// A component without quota can't start. Everybody may create any number of such components.
func TestComponentsWithoutQuotaReserveNothing(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.createReplicasWithQuota(4, 2)
	b.room(map[string]float64{"cluster1": 3, "cluster2": 0})
	b.reconcile()
	if got := b.check(); got.State != kueue.CheckStatePending {
		t.Errorf("room for three of four components: check %s %q", got.State, got.Message)
	}
	b.clock.add(timing.MaxJobQuotaWait)
	b.room(map[string]float64{"cluster1": 4, "cluster2": 0})
	b.reconcile()
	if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, []string{"cluster1"}) {
		t.Fatalf("nominated %v, want cluster1: %q", got, b.check().Message)
	}
	if got := b.engine.Ledger.DevicesByCluster()["cluster1"]; got != 4 {
		t.Errorf("%d devices are reserved, want 4 for the two components with quota", got)
	}
}

// No cluster is held for a job that lacks quota: it could not start there. The next workload of the same
// line gets the hold.
func TestNoHoldForComponentsWithoutQuota(t *testing.T) {
	b := newHoldBench(t, v1alpha1.HoldEnforce)
	b.clock.add(10 * time.Minute)
	b.createReplicasWithQuota(2, 1)
	b.reconcile()
	b.wakeUp()
	b.expectHolds()
	b.submit("next", 2, 0, 9*time.Minute)
	b.expectHolds("cluster1 team-a/next")
	b.key = types.NamespacedName{Namespace: "team-a", Name: "serve-1"}
	b.update(func(wl *kueue.Workload) { wl.Status = fixture.Replica(1).Status })
	b.selectReplica(0)
	b.reconcile()
	b.wakeUp()
	b.expectHolds("cluster1 team-a/serve-0")
}

// Kueue gives no quota to a component that a user deactivated or that is in no queue, so that the job
// starts without it. A component that pauses returns.
func TestComponentsThatCannotStart(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		counts bool
	}{
		{"waits for quota", func(*kueue.Workload) {}, true},
		{"deactivated by a user", fixture.Deactivated, false},
		{"without a queue", func(wl *kueue.Workload) { wl.Spec.QueueName = "" }, false},
		{"pauses", fixture.Pausing, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.createReplicasWithQuota(2, 1)
			b.selectReplica(1)
			b.update(tc.change)
			b.selectReplica(0)
			b.room(map[string]float64{"cluster1": 1, "cluster2": 0})
			b.reconcile()
			if got := b.check(); (got.State == kueue.CheckStatePending) != tc.counts {
				t.Errorf("room for one component, and the other one counts: %t; check %s %q", tc.counts, got.State, got.Message)
			}
		})
	}
}

// Kueue reserves quota for one component after the other. If component 0 were nominated at once, another
// job could take the devices of those that follow, and neither job could start as a whole. While one has no quota,
// MultiKueue deletes the job on its cluster, so that component 0 is not sent there again and again.
func TestPrimaryWaitsForTheQuotaOfItsJob(t *testing.T) {
	for _, tc := range []struct {
		name    string
		follows bool
		ahead   time.Duration // Kueue's clock
		devices int64
	}{
		{"the quota follows", true, 0, 4},
		{"the quota does not follow", false, 0, 2},
		{"the quota does not follow, and Kueue's clock is ahead", false, 50 * time.Second, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.createReplicasWithQuota(2, 1)
			b.update(func(wl *kueue.Workload) {
				wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(b.now().Add(tc.ahead))
			})
			b.room(map[string]float64{"cluster1": 2, "cluster2": 0})
			b.reconcile()
			if c := b.check(); c.State != kueue.CheckStatePending || c.Message != "" || len(b.workload().Status.NominatedClusterNames) > 0 {
				t.Fatalf("check %s %q, nominated %v, want Pending without a message", c.State, c.Message, b.workload().Status.NominatedClusterNames)
			}
			b.clock.add(timing.JobQuotaGrace)
			if tc.follows {
				b.clock.add(time.Second - timing.JobQuotaGrace)
				b.selectReplica(1)
				b.update(func(wl *kueue.Workload) { wl.Status = fixture.Replica(1).Status })
			}
			b.engine.Waiting.StartWakeUps() // the early wake-up
			for _, key := range b.refreshed {
				b.engine.Waiting.Refreshed(key, b.now())
			}
			b.selectReplica(0)
			if !slices.Contains(b.woken, b.key) {
				t.Fatalf("woke %v, want component 0", b.woken)
			}
			b.reconcile()
			if !tc.follows {
				const want = "there is room, but Workload serve-1 of the job has no quota, without which MultiKueue deletes the job on its cluster"
				if c := b.check(); c.Message != want || len(b.workload().Status.NominatedClusterNames) > 0 {
					t.Fatalf("check %s %q, nominated %v, want %q", c.State, c.Message, b.workload().Status.NominatedClusterNames, want)
				}
				b.clock.add(timing.MaxJobQuotaWait)
				b.reconcile()
			}
			if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, []string{"cluster1"}) {
				t.Errorf("nominated %v, want cluster1: %q", got, b.check().Message)
			}
			if got := b.engine.Ledger.DevicesByCluster()["cluster1"]; got != tc.devices {
				t.Errorf("%d devices are reserved, want %d", got, tc.devices)
			}
		})
	}
}
