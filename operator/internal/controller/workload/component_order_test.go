package workload

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
)

const heldForBig = "Pending no cluster is eligible; cluster1 is held for team-a/big, cluster2 does not run the job's other components, which are on cluster1"

// placeJob lets cluster1 admit the selected component, ten seconds after its decision.
func (b *bench) placeJob() {
	b.t.Helper()
	b.clock.add(10 * time.Second)
	b.update(func(wl *kueue.Workload) {
		fixture.AdmitBy(wl, "cluster1")
		kueuestate.FindCheck(wl, "multikueue").LastTransitionTime = metav1.NewTime(b.now())
	})
	b.reconcile()
}

// decideWithoutSamples decides the second replica while the source has no samples.
func (b *bench) decideWithoutSamples() {
	b.t.Helper()
	b.room(nil)
	b.cache = b.newCache()
	b.selectReplica(1)
	b.reconcile()
	if c := b.check(); c.State != kueue.CheckStatePending {
		b.t.Fatalf("decided without samples: check %s %q", c.State, c.Message)
	}
	b.clock.add(time.Minute)
}

// restartWithoutLedger is a restart, which loses reservations and histories, but for the holds, which the
// first decision of a held workload makes again.
func (b *bench) restartWithoutLedger() {
	b.t.Helper()
	former := b.engine.Ledger.View().HoldsOf("gpu")
	b.startEngine(b.engine.Registry, ledger.New(b.engine.Ledger.Settle, b.engine.Ledger.TTL))
	b.cache = b.newCache()
	b.restart()
	for _, hold := range former {
		if !b.engine.Ledger.Commit(b.engine.Ledger.View(), hold.UID, nil, nil, &hold) {
			b.t.Fatal("the ledger changed")
		}
	}
}

// A component passes a hold on the cluster of its job only if the decision that placed the job counted
// it. Otherwise every replica that an autoscaler adds, and every workload with a forged annotation,
// would pass workloads that rank before it.
func TestComponentsAndHolds(t *testing.T) {
	for _, tc := range []struct {
		name string
		// placed are the components that exist when the job is placed on cluster1.
		placed int
		// change leads to the workload serve-1, which is decided while cluster1 is held for big.
		change func(*bench)
		want   string
	}{
		{"placed with the job", 2, func(*bench) {}, "Ready cluster1 has room for 2 such pods"},
		{"decided once without samples", 2, (*bench).decideWithoutSamples, "Ready cluster1 has room for 2 such pods"},
		{"still waiting after the TTL of the ledger", 2, func(b *bench) {
			b.clock.add(b.engine.Ledger.TTL + time.Minute)
			b.engine.Ledger.Expire(nil, b.now())
		}, "Ready cluster1 has room for 2 such pods"},
		{"after a restart", 2, (*bench).restartWithoutLedger, "Ready cluster1 has room for 2 such pods"},
		{"added to the job later, and decided without samples", 1, func(b *bench) {
			b.create(fixture.Replica(1))
			b.decideWithoutSamples()
		}, heldForBig},
		{"with quota from after the placement, after a restart", 1, func(b *bench) {
			wl := fixture.Replica(1)
			wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(b.now())
			b.create(wl)
			b.restartWithoutLedger()
		}, heldForBig},
		{"after a restart, of a job whose component 0 has finished", 2, func(b *bench) {
			b.selectReplica(0)
			b.update(func(wl *kueue.Workload) { fixture.SetCondition(wl, kueue.WorkloadFinished, b.now()) })
			b.restartWithoutLedger()
		}, heldForBig},
		{"added to the job later", 1, func(b *bench) { b.create(fixture.Replica(1)) }, heldForBig},
		{"annotated after the job was placed", 1, func(b *bench) {
			wl := fixture.Replica(1)
			wl.Annotations, wl.OwnerReferences = nil, nil
			b.create(wl)
			b.reconcile()
			b.update(func(wl *kueue.Workload) {
				wl.Annotations, wl.OwnerReferences = fixture.Replica(1).Annotations, fixture.Replica(1).OwnerReferences
			})
		}, heldForBig},
		{"annotated as a component of a finished job of another kind", 1, func(b *bench) {
			b.selectReplica(0)
			b.update(func(wl *kueue.Workload) { fixture.SetCondition(wl, kueue.WorkloadFinished, b.now()) })
			b.reconcile()
			wl := fixture.Replica(1)
			wl.Annotations["kueue.x-k8s.io/job-owner-gvk"] = "/v1, Kind=ConfigMap"
			wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "train", Controller: new(true)},
				{APIVersion: "v1", Kind: "ConfigMap", Name: "any", UID: "job"}}
			b.create(wl)
		}, heldForBig},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newHoldBench(t, v1alpha1.HoldEnforce)
			b.room(map[string]float64{"cluster1": float64(tc.placed), "cluster2": 0})
			b.createReplicas(tc.placed)
			b.reconcile()
			b.placeJob()
			b.submit("big", 3, 1000, 10*time.Minute)
			b.expectHolds("cluster1 team-a/big")
			tc.change(b)
			b.room(map[string]float64{"cluster1": 2, "cluster2": 0})
			b.cache = b.newCache()
			b.selectReplica(1)
			b.reconcile()
			if got := checkTexts(b.workload())["plimsoll"]; !strings.HasPrefix(got, tc.want) {
				t.Errorf("check %q\nwant  %q", got, tc.want)
			}
		})
	}
}

// A component that the placement of its job did not count waits for its turn, as any other workload.
func TestAddedComponentWaitsForItsTurn(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.createPlacedComponents()
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
	componentOf("a")(wl)
	b.create(wl)
	urgent := waitqueue.Entry{Workload: types.NamespacedName{Namespace: "team-b", Name: "urgent"}, Key: gatestate.QueryKey{Gate: "gpu", Facts: "eight devices"},
		Rank: ledger.Rank{Priority: 1000, Since: fixture.Noon, Name: "team-b/urgent"}, PodSets: b.look().Request.Facts.PodSets}
	b.engine.Waiting.Add(urgent)
	b.reconcile()
	if c := b.check(); c.State != kueue.CheckStatePending || c.Message != "" {
		t.Errorf("check %s %q, want Pending without a message", c.State, c.Message)
	}
	b.engine.Waiting.Remove(urgent.Workload)
	b.clock.add(time.Second)
	b.reconcile()
	if c := b.check(); c.State != kueue.CheckStateReady {
		t.Errorf("check %s %q after the urgent workload left, want Ready", c.State, c.Message)
	}
}

// A job of several workloads passes a hold if all of its components end before the held workload starts.
func TestRunTimeOfAJobIsThatOfItsLongestComponent(t *testing.T) {
	for _, tc := range []struct {
		name  string
		other *int32
		want  time.Duration
	}{
		{"shorter", ptr.To[int32](60), 10 * time.Minute},
		{"longer", ptr.To[int32](7200), 2 * time.Hour},
		{"unknown", nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			for i, limit := range []*int32{ptr.To[int32](600), tc.other} {
				wl := fixture.Replica(i)
				wl.Spec.MaximumExecutionTimeSeconds = limit
				b.create(wl)
			}
			b.selectReplica(0)
			if got := b.look().Rules().RunsFor; got < tc.want || got > tc.want+tc.want/8 {
				t.Errorf("component 0 is decided as if the job ran for %s, want %s", got, tc.want)
			}
		})
	}
}
