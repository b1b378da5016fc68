package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

// restart makes the next reconciliation rebuild the ledger.
func (b *bench) restart() {
	b.t.Helper()
	b.rebuilt = false
	if err := b.rebuildOnce(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func TestRebuiltLedger(t *testing.T) {
	ago := func(minutes int) time.Time { return fixture.Noon.Add(-time.Duration(minutes) * time.Minute) }
	sent := func(at, reserved time.Time) *kueue.Workload {
		return fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(reserved), "cluster1"), fixture.RecordOf(at, "cluster1"))
	}
	ofLostQuota := sent(ago(2), ago(1))
	record := fixture.RecordOf(ago(2), "cluster1")
	record.QuotaReservedAt = ago(3)
	fixture.WithRecord(ofLostQuota, record)
	ready := func(at time.Time) *kueue.Workload {
		return fixture.ReadyFor(fixture.PendingWorkload(ago(120)), "cluster1", at)
	}
	admitted := func(at time.Time) *kueue.Workload {
		wl := ready(at)
		fixture.SetCondition(wl, kueue.WorkloadAdmitted, at)
		return wl
	}
	reset := ready(ago(1))
	reset.Status.AdmissionChecks[0].State = kueue.CheckStatePending
	for _, tc := range []struct {
		name string
		wl   *kueue.Workload
		want int64
	}{
		{"nominated", sent(ago(1), ago(2)), 2},
		{"nominated for quota that it has lost", ofLostQuota, 0},
		{"nominated while Kueue's clock is ahead", sent(ago(2), ago(1)), 2},
		{"nominated too long ago", sent(ago(61), ago(62)), 0},
		{"Ready without MultiKueue", ready(ago(1)), 2},
		{"Ready too long ago", ready(ago(61)), 0},
		{"Ready before the check was reset", reset, 0},
		{"admitted", admitted(ago(1)), 2},
		{"admitted so long ago that samples show it", admitted(ago(61)), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.create(tc.wl)
			b.restart()
			if got := b.engine.Ledger.DevicesByCluster()["cluster1"]; got != tc.want {
				t.Errorf("%d devices reserved on cluster1, want %d", got, tc.want)
			}
		})
	}
}

// A workload that has lost its quota may have copies on workers, which the record names. Kueue resets a Ready check when
// an eviction begins.
func TestRebuiltCopies(t *testing.T) {
	ago := func(seconds int) time.Time { return fixture.Noon.Add(-time.Duration(seconds) * time.Second) }
	// lost is a workload that was nominated to cluster1 for as long as a minute, and was evicted.
	lost := func(at int, wasAdmitted bool, change func(*kueue.Workload, *dispatch.Record)) *kueue.Workload {
		wl := fixture.WithMultiKueue(fixture.PendingWorkload(ago(at + 60)))
		record := fixture.RecordOf(ago(at+60), "cluster1")
		record.QuotaReservedAt = ago(at + 60)
		wl.Status.Admission, wl.Status.Conditions[0].Status, wl.Status.Conditions[0].LastTransitionTime = nil, metav1.ConditionFalse, metav1.NewTime(ago(at))
		fixture.SetCondition(wl, kueue.WorkloadEvicted, ago(at))
		wl.Status.AdmissionChecks[0].LastTransitionTime = metav1.NewTime(ago(at))
		if wasAdmitted {
			wl.Status.AdmissionChecks[1].LastTransitionTime = metav1.NewTime(ago(at))
		}
		if change != nil {
			change(wl, &record)
		}
		return fixture.WithRecord(wl, record)
	}
	for _, tc := range []struct {
		name string
		wl   *kueue.Workload
		// devices that are debited on cluster1, and whether the workload waits for its copy there.
		devices int64
		waits   bool
	}{
		{"it ran", lost(5, true, nil), 2, true},
		{"it was nominated, and no admission was recorded", lost(5, false, nil), 2, false},
		{"so long ago that the ledger has no entry, and its copy is removed", lost(7200, true, nil), 0, false},
		{"the worker ended it", lost(5, true, func(wl *kueue.Workload, _ *dispatch.Record) {
			wl.Status.AdmissionChecks[1].RetryCount = ptr.To[int32](1)
		}), 0, false},
		{"it had quota since, and was sent nowhere", lost(5, true, func(wl *kueue.Workload, r *dispatch.Record) {
			wl.Status.AdmissionChecks[0].LastTransitionTime = metav1.NewTime(ago(600))
			r.NominatedAt, r.QuotaReservedAt = ago(700), ago(700)
			*r = r.Yielded(ago(500), ago(5))
		}), 0, false},
		{"a repair nominated the cluster", lost(5, true, func(_ *kueue.Workload, r *dispatch.Record) { r.Repair = true }), 0, false},
		{"it was never sent", lost(5, false, func(_ *kueue.Workload, r *dispatch.Record) { *r = dispatch.Record{} }), 0, false},
		{"the record names a cluster that is no member", lost(5, true, func(_ *kueue.Workload, r *dispatch.Record) { r.Nominated = []string{"cluster9"} }), 0, false},
		{"it has finished", lost(5, true, func(wl *kueue.Workload, _ *dispatch.Record) { fixture.SetCondition(wl, kueue.WorkloadFinished, ago(5)) }), 0, false},
	} {
		for _, again := range []string{"after the restart", "before the restart"} {
			t.Run(tc.name+", quota again "+again, func(t *testing.T) {
				b := newBench(t, v1alpha1.PlacementGateSpec{})
				b.room(map[string]float64{"cluster2": 9})
				b.create(tc.wl.DeepCopy())
				reserve := func() {
					b.update(func(wl *kueue.Workload) {
						wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpu"}
						wl.Status.Conditions[0].Status, wl.Status.Conditions[0].LastTransitionTime = metav1.ConditionTrue, metav1.NewTime(fixture.Noon)
						wl.Status.Conditions[1].Status = metav1.ConditionFalse
					})
				}
				if again == "before the restart" {
					reserve()
				}
				b.restart()
				if got := b.engine.Ledger.DevicesByCluster(); got["cluster1"] != tc.devices || got["cluster9"] != 0 {
					t.Errorf("devices reserved are %v, want %d on cluster1", got, tc.devices)
				}
				if again == "after the restart" {
					reserve()
				}
				b.reconcile()
				if waits := strings.Contains(b.check().Message, "for its last copy on cluster1"); waits != tc.waits {
					t.Errorf("check %s %q", b.check().State, b.check().Message)
				}
			})
		}
	}
}

// The first reconciliation of a workload may come before the gate is known, and another one only at its end.
func TestRebuiltEntryHasReadyPods(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon.Add(-3 * time.Minute)))
	fixture.AdmitBy(wl, "cluster1")
	readyAt := fixture.Noon.Add(-30 * time.Second)
	kueuestate.FindCheck(wl, "multikueue").LastTransitionTime = metav1.NewTime(readyAt.Add(-time.Second))
	fixture.SetCondition(wl, kueue.WorkloadPodsReady, readyAt)
	b.create(wl)
	b.restart()
	for sampledAfter, want := range map[time.Duration]int{0: 1, 2 * time.Second: 0} {
		if entries := b.engine.Ledger.View().Entries("cluster1", readyAt.Add(sampledAfter)); len(entries) != want {
			t.Errorf("samples of %s after the pods were ready lack %v, want %d entries", sampledAfter, entries, want)
		}
	}
}

// A component that waits keeps what the placement of its job reserved for it. The hub does not show which
// components the placement counted.
func TestRebuiltReservationsOfAJob(t *testing.T) {
	ago := func(minutes int) time.Time { return fixture.Noon.Add(-time.Duration(minutes) * time.Minute) }
	admit := func(wl *kueue.Workload, at time.Time) {
		fixture.AdmitBy(wl, "cluster1")
		kueuestate.FindCheck(wl, "multikueue").LastTransitionTime = metav1.NewTime(at)
	}
	quotaAt := func(wl *kueue.Workload, at time.Time) {
		wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(at)
	}
	for _, tc := range []struct {
		name   string
		change func(first, second *kueue.Workload)
		want   int64
	}{
		{"no component has a cluster", func(_, _ *kueue.Workload) {}, 0},
		{"component 0 is nominated", func(first, _ *kueue.Workload) {
			first.Status.NominatedClusterNames = []string{"cluster1"}
			record := fixture.RecordOf(ago(1), "cluster1")
			record.QuotaReservedAt = ago(70).UTC()
			first.Annotations[v1alpha1.DispatchAnnotation] = record.Encode()
		}, 4},
		{"component 0 is sent to a cluster that has not admitted it", func(first, _ *kueue.Workload) {
			first.Status.ClusterName = ptr.To("cluster1")
			quotaAt(first, ago(2))
		}, 2},
		{"component 0 is admitted", func(first, _ *kueue.Workload) { admit(first, ago(1)) }, 4},
		{"component 0 is admitted so long ago that samples show it", func(first, _ *kueue.Workload) { admit(first, ago(61)) }, 2},
		{"both are admitted so long ago that samples show them", func(first, second *kueue.Workload) {
			admit(first, ago(61))
			admit(second, ago(61))
		}, 0},
		{"the quota is from after the admission of component 0", func(first, second *kueue.Workload) {
			admit(first, ago(2))
			quotaAt(second, ago(1))
		}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			first, second := fixture.Replica(0), fixture.Replica(1)
			quotaAt(first, ago(70))
			quotaAt(second, ago(70))
			tc.change(first, second)
			b.create(first)
			b.create(second)
			b.restart()
			if got := b.engine.Ledger.DevicesByCluster()["cluster1"]; got != tc.want {
				t.Errorf("%d devices reserved on cluster1, want %d", got, tc.want)
			}
		})
	}
}

// A new leader does not know the order in which its reconciliations begin. A small job that comes
// first must not pass the larger one that ranks before it, nor take the place of its hold.
func TestRebuiltOrder(t *testing.T) {
	for _, isRead := range []bool{true, false} {
		t.Run(fmt.Sprintf("gate read %t", isRead), func(t *testing.T) {
			b := newHoldBench(t, v1alpha1.HoldEnforce)
			gate := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: b.gate.Spec}
			if err := b.hub.Create(t.Context(), gate); err != nil {
				t.Fatal(err)
			}
			big, small := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon.Add(-10*time.Minute))), fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
			big.Name, big.UID, big.Spec.PodSets[0].Count = "big", "big", 3
			small.Name, small.UID = "small", "small"
			b.create(big)
			b.create(small)
			b.room(map[string]float64{"cluster1": 1, "cluster2": 0})
			b.rebuilt = false
			if !isRead {
				b.engine.Registry.Delete("gpu")
			}
			b.reconcile() // small comes first
			if !isRead {
				b.key.Name = "big"
				b.reconcile()
				b.engine.Registry.Put(b.gate)
				b.key.Name = "small"
				b.reconcile()
			}
			if got := b.workload().Status.NominatedClusterNames; len(got) > 0 {
				t.Fatalf("small was sent to %v before the larger job was decided", got)
			}
			b.wakeUp()
			b.expectHolds("cluster1 team-a/big")
		})
	}
}

// If the operator nominates, it decides again when its turn comes. With Kueue's dispatcher,
// the Ready check is what a new process knows of the reservation.
func TestRebuiltLedgerOfReadyMultiKueueWorkloads(t *testing.T) {
	for _, tc := range []struct {
		name      string
		nominates bool
		want      map[string]int64
	}{
		{"the operator nominates", true, map[string]int64{}},
		{"Kueue nominates", false, map[string]int64{"cluster1": 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.engine.Nominates = tc.nominates
			b.create(fixture.Nominated(fixture.ReadyFor(fixture.PendingWorkload(fixture.Noon), "cluster1", fixture.Noon)))
			b.restart()
			if diff := cmp.Diff(tc.want, b.engine.Ledger.DevicesByCluster()); diff != "" {
				t.Errorf("reserved devices (-want +got):\n%s", diff)
			}
		})
	}
}

// A late attempt that the former process counted is not counted again.
func TestRebuiltHistoryKeepsTheLateAttempt(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.WithRecord(fixture.Nominated(fixture.PendingWorkload(fixture.Noon.Add(-time.Minute)), "cluster1"), fixture.RecordOf(fixture.Noon.Add(-40*time.Second), "cluster1")))
	b.restart()
	if got := b.engine.History("uid").LateAttempt; got != 1 {
		t.Errorf("late attempt %d, want 1", got)
	}
}

// A decision on half a ledger would overcommit clusters: nothing is decided until the
// ledger is complete.
func TestFailedRebuildDecidesNothing(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.create(fixture.PendingWorkload(fixture.Noon))
	b.rebuilt = false
	b.client = interceptor.NewClient(b.hub, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if _, isQueue := obj.(*kueue.ClusterQueue); isQueue {
			return errors.New("the cache did not sync")
		}
		return c.Get(ctx, key, obj, opts...)
	}})
	if _, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.key}); err == nil || b.rebuilt {
		t.Errorf("want an error and no rebuilt ledger, got %v, rebuilt %t", err, b.rebuilt)
	}
	if state := b.check().State; state != kueue.CheckStatePending {
		t.Errorf("the check is %s", state)
	}
	b.client = b.hub
	b.reconcile()
	if state := b.check().State; state != kueue.CheckStateReady || !b.rebuilt {
		t.Errorf("after the error ended the check is %s", state)
	}
}
