package workload

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// Changes of a primary component.
func withoutQuota(wl *kueue.Workload) {
	wl.Status.Admission, wl.Status.Conditions = nil, nil
}

func deactivated(wl *kueue.Workload) {
	active := false
	wl.Spec.Active = &active
	withoutQuota(wl)
}

func rejectedCheck(wl *kueue.Workload) {
	wl.Status.AdmissionChecks[0].State = kueue.CheckStateRejected
}

// deactivatedByCheck is what Kueue leaves of a workload with a Rejected check.
func deactivatedByCheck(wl *kueue.Workload) {
	deactivated(wl)
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "DeactivatedDueToAdmissionCheck"}}
}

func pausing(wl *kueue.Workload) {
	deactivated(wl)
	wl.Annotations[v1alpha1.DispatchAnnotation] = dispatch.Record{}.Yielded(noon, noon).Encode()
}

// activatedAgain is a workload whose pause ended before the operator looked at it.
func activatedAgain(wl *kueue.Workload) {
	pausing(wl)
	active := true
	wl.Spec.Active = &active
}

// Without component 0 the other components of a job cannot start. If it has lost its quota, they return
// theirs under the gate's rules.
func TestComponentFollowsItsPrimaryOutOfTheQuota(t *testing.T) {
	hour := int32(3600)
	both := v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, GiveUpAfterSeconds: &hour}
	for _, tc := range []struct {
		name    string
		primary func(*kueue.Workload)
		rule    v1alpha1.WhenUnplaceable
		waited  time.Duration
		others  bool
		want    gate.State
		message string
	}{
		{"holds quota", func(*kueue.Workload) {}, both, time.Hour, true, gate.Pending, "waits until Kueue has placed component 0 of the job, Workload serve-0"},
		{"yielded", pausing, both, time.Second, true, gate.Retry, "returns its quota for other workloads: component 0 of the job, Workload serve-0, has none"},
		{"yielded, and no other workload waits for quota", pausing, both, time.Hour, false, gate.Pending, ""},
		{"pauses at a gate that does not yield", pausing, v1alpha1.WhenUnplaceable{}, time.Hour, true, gate.Pending, ""},
		{"was activated again, and waits for quota", activatedAgain, both, time.Second, true, gate.Pending, ""},
		{"waits for quota", withoutQuota, both, 5 * time.Minute, true, gate.Retry, ""},
		{"waits for quota for a shorter time", withoutQuota, both, 299 * time.Second, true, gate.Pending, ""},
		{"waits for quota, and no other workload does", withoutQuota, both, time.Hour, false, gate.Pending, ""},
		{"rejected", rejectedCheck, both, time.Second, false, gate.Rejected, "gave up: an admission check rejected component 0 of the job, Workload serve-0"},
		{"rejected, and Kueue has deactivated it", deactivatedByCheck, both, time.Second, false, gate.Rejected, ""},
		{"rejected at a gate that does not give up", deactivatedByCheck, v1alpha1.WhenUnplaceable{}, time.Hour, true, gate.Pending, ""},
		{"deactivated by a user", deactivated, both, time.Second, true, gate.Pending, ""},
		{"deactivated by a user for long", deactivated, both, time.Hour, true, gate.Retry, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := observationWith(func(o *observation) {
				secondComponent(o)
				tc.primary(o.component.primary)
				o.gate.Spec.WhenUnplaceable, o.now, o.othersPending = tc.rule, noon.Add(tc.waited), tc.others
			})
			s := next(o)
			if o.phase != PhaseAwaitingPrimary || s.decision.State != tc.want || tc.message != "" && s.decision.Message != tc.message {
				t.Fatalf("%s: %s %q, want %s %q", o.phase, s.decision.State, s.decision.Message, tc.want, tc.message)
			}
			isDeactivated := len(s.writes) == 1 && s.writes[0].record != nil && s.writes[0].record.active != nil && !*s.writes[0].record.active
			if isDeactivated != (tc.want == gate.Retry) || (s.wait != nil) != (tc.want == gate.Pending) {
				t.Errorf("deactivated: %t, waits: %t", isDeactivated, s.wait != nil)
			}
			if to := s.leadsTo(o.phase); !isDocumented(o.phase, to) {
				t.Errorf("leads to %s, which is not documented", to)
			}
		})
	}
}

// While the gate is at fault, a component concludes nothing from the state of its primary.
func TestComponentWaitsWhileTheGateIsAtFault(t *testing.T) {
	hour := int32(3600)
	o := observationWith(func(o *observation) {
		secondComponent(o)
		deactivatedByCheck(o.component.primary)
		o.gate.Spec.WhenUnplaceable, o.gate.Problem = v1alpha1.WhenUnplaceable{GiveUpAfterSeconds: &hour}, "no Placement"
	})
	if d := next(o).decision; d.State != gate.Pending {
		t.Errorf("%s %q", d.State, d.Message)
	}
}

// A job of two components fits nowhere, and another workload waits for quota. Both return theirs.
func TestJobYieldsAsAWhole(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{WhenUnplaceable: v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield}})
	b.room(nil)
	queue, local, small := clusterQueue("gpu", ""), localQueue("gpu", "gpu"), queuedWorkload("small", "gpu", "")
	for _, create := range []func() error{
		func() error { return b.hub.Create(t.Context(), &queue) },
		func() error { return b.hub.Create(t.Context(), &local) },
		func() error { return b.hub.Create(t.Context(), &small) },
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
	b.createReplicas(2)
	isActive := func(index int) bool {
		b.selectReplica(index)
		b.reconcile()
		active := b.workload().Spec.Active
		return active == nil || *active
	}
	b.clock.add(time.Minute)
	if !isActive(0) || !isActive(1) {
		t.Fatal("a component yields before yieldAfterSeconds")
	}
	b.clock.add(time.Hour)
	if isActive(0) {
		t.Fatal("component 0 does not yield")
	}
	if isActive(1) {
		t.Error("component 1 keeps its quota")
	}
}

// The steps of the other components depend on the cluster of a component, and on the quota of the
// primary one.
func TestEventsThatConcernComponents(t *testing.T) {
	with := func(index int, changes ...func(*kueue.Workload)) *kueue.Workload {
		wl := replica(index)
		for _, change := range changes {
			change(wl)
		}
		return wl
	}
	onCluster := func(wl *kueue.Workload) { admitBy(wl, "cluster1") }
	for _, tc := range []struct {
		name     string
		from, to *kueue.Workload
		want     bool
	}{
		{"a component gets a cluster", with(1), with(1, onCluster), true},
		{"a component loses its cluster", with(1, onCluster), with(1), true},
		{"the primary component yields", with(0), with(0, pausing), true},
		{"the primary component loses its quota", with(0), with(0, withoutQuota), true},
		{"the primary component is rejected", with(0), with(0, rejectedCheck), true},
		{"the primary component gets quota", with(0, withoutQuota), with(0), false},
		{"another component loses its quota", with(1), with(1, withoutQuota), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := concernsComponents.Update(event.UpdateEvent{ObjectOld: tc.from, ObjectNew: tc.to}); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// If one component of a job loses its quota, MultiKueue deletes the job on the worker, with the
// components that run there. A component without room waits.
func TestComponentOfAPlacedJobKeepsItsQuota(t *testing.T) {
	hour := int32(3600)
	for index, name := range []string{"primary component", "second component"} {
		t.Run(name, func(t *testing.T) {
			o := observationWith(func(o *observation) {
				jobOnCluster1(o)
				withRecord(o.wl, dispatch.Record{UnplacedSeconds: 7200})
				o.wl.Annotations[kueuestate.ComponentAnnotation] = fmt.Sprint(index)
				noRoom(o)
				o.gate.Spec.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, GiveUpAfterSeconds: &hour}
				o.now, o.othersPending = noon.Add(2*time.Hour), true
				o.candidates[0].SampledAt = o.now
			})
			s := next(o)
			if o.phase != PhaseWaiting || s.decision.State != gate.Pending || s.decision.Reason != gate.ReasonNoRoom {
				t.Fatalf("%s: %s %s %q", o.phase, s.decision.State, s.decision.Reason, s.decision.Message)
			}
			for _, w := range s.writes {
				if w.record != nil {
					t.Errorf("writes the record %+v", w.record)
				}
			}
			if o.mayYield() || s.requeueAfter != 0 {
				t.Errorf("may yield: %t, looks again after %s", o.mayYield(), s.requeueAfter)
			}
		})
	}
}

// Component 0 reserves devices for the whole job. When it loses its quota, only its own stay reserved:
// its copies may still run.
func TestReservationsOfAJobEndWithItsPrimary(t *testing.T) {
	onlyOwn := map[string]int64{"cluster1": 2}
	for _, tc := range []struct {
		name   string
		change func(b *bench)
		want   map[string]int64
	}{
		{"loses its quota", func(b *bench) { b.update(withoutQuota) }, onlyOwn},
		{"is decided again without room", func(b *bench) {
			b.update(func(wl *kueue.Workload) { wl.Status.NominatedClusterNames = nil }) // as if the write had failed
			b.room(nil)
			b.clock.add(time.Minute)
		}, map[string]int64{}},
		{"is nominated", func(*bench) {}, map[string]int64{"cluster1": 6}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{})
			b.createReplicas(3)
			b.room(map[string]float64{"cluster1": 3})
			b.reconcile()
			if got := b.ledger.DevicesByCluster()["cluster1"]; got != 6 {
				t.Fatalf("%d devices are reserved, want 6", got)
			}
			tc.change(b)
			b.reconcile()
			requireDevices(t, b.ledger, tc.want)
		})
	}
}

func requireDevices(t *testing.T, l *ledger.Ledger, want map[string]int64) {
	t.Helper()
	got := l.DevicesByCluster()
	for _, cluster := range []string{"cluster1", "cluster2"} {
		if got[cluster] != want[cluster] {
			t.Errorf("%d devices are reserved on %s, want %d", got[cluster], cluster, want[cluster])
		}
	}
}
