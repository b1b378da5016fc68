package workload

import (
	"strings"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
)

func shadowBench(t *testing.T, wl *kueue.Workload) *bench {
	t.Helper()
	b := newBench(t, v1alpha1.PlacementGateSpec{Mode: v1alpha1.ModeShadow})
	b.create(wl)
	return b
}

// A gate in mode Shadow reports a missing dispatcher, too: without one, no job starts.
func TestMissingDispatcherIsReportedInShadow(t *testing.T) {
	b := shadowBench(t, fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	b.engine.Nominates = false
	b.configure("cluster1")
	b.reconcile()
	if c := b.check(); c.State != kueue.CheckStateReady {
		t.Fatalf("check %s %q, want Ready", c.State, c.Message)
	}
	b.clock.add(time.Minute)
	b.reconcile()
	if got := b.engine.Registry.Conflict("gpu", b.now()); !strings.HasPrefix(got, "team-a/job has had no nominated cluster since ") {
		t.Errorf("conflict %q", got)
	}
	if events := strings.Join(b.events(), "\n"); strings.Count(events, "Warning NotNominated") != 1 {
		t.Errorf("events %q", events)
	}
}

// A gate in mode Shadow reports that another dispatcher nominates, as far as it saw that.
func TestConflictingDispatcherIsReportedInShadow(t *testing.T) {
	nominatedFirst := fixture.Nominated(fixture.PendingWorkload(fixture.Noon), "cluster1", "cluster2") // the write of the gate's record was a conflict
	nominatedBefore := nominatedFirst.DeepCopy()
	nominatedBefore.Status.AdmissionChecks[0].State = kueue.CheckStatePending
	for _, tc := range []struct {
		name string
		wl   *kueue.Workload
		then func(*bench)
		want string
	}{
		{"only the gate nominates", fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), func(*bench) {}, ""},
		{"the gate is new on the queue of a job that another dispatcher nominated", nominatedBefore, func(*bench) {}, ""},
		{"the other one nominates as soon as the check is Ready", nominatedFirst, func(*bench) {}, "team-a/job was nominated to cluster1, cluster2 by another dispatcher"},
		{"the other one adds a cluster", fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)), func(b *bench) {
			b.update(func(wl *kueue.Workload) {
				wl.Status.NominatedClusterNames = []string{"cluster1", "cluster2", "cluster3"}
			})
		}, "team-a/job was nominated to cluster3 by another dispatcher"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := shadowBench(t, tc.wl)
			b.room(map[string]float64{"cluster1": 4, "cluster2": 4})
			b.reconcile()
			tc.then(b)
			b.reconcile()
			b.clock.add(time.Minute)
			b.reconcile()
			if got := b.engine.Registry.Conflict("gpu", b.now()); got != tc.want {
				t.Errorf("conflict %q, want %q", got, tc.want)
			}
		})
	}
}

// Nothing more can be said of workloads that wait at a gate which is not in mode Shadow any more.
func TestPassagesEndWithTheMode(t *testing.T) {
	b := shadowBench(t, fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	b.room(map[string]float64{"cluster1": 4})
	for range 3 { // passes, is compared, and is followed
		b.reconcile()
	}
	if n := b.engine.Registry.Shadow.Open(); n != 1 {
		t.Fatalf("%d workloads have passed, want 1", n)
	}
	b.putGate(func(g *gatestate.Gate) { g.Spec.Mode = v1alpha1.ModeEnforce })
	b.reconcile()
	if n := b.engine.Registry.Shadow.Open(); n != 0 {
		t.Errorf("%d workloads are compared after the change of the mode", n)
	}
}
