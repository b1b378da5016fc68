//go:build !race

package driver

import (
	"context"
	"fmt"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/world"
)

// shadowed is a fleet in which the nodes of cluster1 have free devices and no CPU for them. The gate is in mode Shadow,
// so that a job goes to the first cluster whose queue has quota.
func shadowed() world.Spec {
	s := world.Spec{Name: "a gate in mode Shadow", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 2, 8), nodes("cluster2", 2, 8), nodes("cluster3", 1, 8)},
		Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 256}}}, Settings: world.Settings{Length: 2 * time.Hour}}
	s.Clusters[0].Pools[0].CPU = 2000
	s.Clusters[0].PodsReadyTimeout = 20 * time.Minute
	s.Settings.Gate.Mode = v1alpha1.ModeShadow
	for i := range 100 {
		s.Jobs = append(s.Jobs, world.Job{Name: fmt.Sprintf("job%03d", i), At: time.Minute + time.Duration(i)*15*time.Second, Devices: 1 + int64(i%4), CPU: 4000, Duration: 5 * time.Minute})
	}
	return s
}

func gateOf(t *testing.T, w *world.World) *v1alpha1.PlacementGate {
	t.Helper()
	list := &v1alpha1.PlacementGateList{}
	if err := w.Hub.Client("test").List(t.Context(), list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d gates, error %v", len(list.Items), err)
	}
	return &list.Items[0]
}

// TestShadow puts a gate in mode Shadow before a fleet with a cluster that starts nothing. Its report has every job, and
// names those that hung and where they would have gone.
func TestShadow(t *testing.T) {
	w := Run(t, shadowed(), Options{Verbose: printLog()})
	for _, p := range w.Problems {
		t.Error(p)
	}
	report := gateOf(t, w).Status.Shadow
	if report == nil {
		t.Fatal("no report")
	}
	passed, hung, isReported := int64(0), int64(0), map[string]bool{}
	for _, o := range report.Outcomes {
		passed, hung = passed+o.Workloads, hung+o.Hung
		if o.Outcome == v1alpha1.OutcomeSameCluster && o.Hung > 0 || o.Outcome == v1alpha1.OutcomeUndecided {
			t.Errorf("outcome %+v", o)
		}
	}
	for _, row := range report.Workloads {
		isReported[row.Workload] = true
		if row.HungSeconds > 0 && row.Cluster != "cluster1" || row.Would == "cluster1" {
			t.Errorf("%+v", row)
		}
		if isWaiting := row.WaitSeconds > 0; isWaiting != (row.Outcome == v1alpha1.OutcomeWait) || isWaiting == (row.Message == "") {
			t.Errorf("%+v", row)
		}
	}
	if passed < 100 || hung < 7 {
		t.Errorf("%d passed, %d hung: %+v", passed, hung, report.Outcomes)
	}
	for _, job := range w.Runs()[:7] {
		if job.Nominated == nil || !isReported[job.Key.String()] {
			t.Errorf("%s, which hung, was nominated to %v and is reported: %t", job.Key, job.Nominated, isReported[job.Key.String()])
		}
	}
}

// TestModeOfGateChanges has jobs that wait without room while the gate's mode changes, and an operator that restarts.
func TestModeOfGateChanges(t *testing.T) {
	spec := shadowed()
	spec.Settings.Gate.Mode = v1alpha1.ModeEnforce
	spec.Faults = []world.Fault{{Kind: world.OperatorDown, At: 40 * time.Minute, Lasts: 30 * time.Second}}
	var before, shadow, after, restarted *v1alpha1.GateShadow
	w := Run(t, spec, Options{Verbose: printLog(), Steps: func(d *Driver) {
		setMode := func(mode v1alpha1.Mode) {
			if err := d.UpdateGate(func(g *v1alpha1.PlacementGateSpec) { g.Mode = mode }); err != nil {
				t.Fatal(err)
			}
		}
		d.Advance(15*time.Minute, nil)
		before = gateOf(t, d.World).Status.Shadow
		if n := pendingChecks(d.World); n == 0 {
			t.Error("no job waits in mode Enforce")
		}
		setMode(v1alpha1.ModeShadow)
		d.Advance(time.Minute, nil)
		if n := pendingChecks(d.World); n > 0 {
			t.Errorf("%d jobs wait in mode Shadow", n)
		}
		d.Advance(23*time.Minute, nil)
		shadow = gateOf(t, d.World).Status.Shadow
		d.Advance(5*time.Minute, nil)
		restarted = gateOf(t, d.World).Status.Shadow
		setMode(v1alpha1.ModeEnforce)
		d.Advance(2*time.Minute, nil)
		after = gateOf(t, d.World).Status.Shadow
		d.finish()
	}})
	for _, p := range unknownProblems(w) {
		t.Error(p)
	}
	if before != nil || shadow == nil || len(shadow.Outcomes) == 0 || !after.Since.Equal(&shadow.Since) {
		t.Errorf("reports %+v, %+v, %+v", before, shadow, after)
	}
	for i, o := range shadow.Outcomes {
		if restarted.Outcomes[i].Workloads < o.Workloads {
			t.Errorf("after the restart %+v, before %+v", restarted.Outcomes[i], o)
		}
	}
}

// pendingChecks is the number of jobs with quota whose check is Pending.
func pendingChecks(w *world.World) (n int) {
	list := &kueue.WorkloadList{}
	if err := w.Hub.Client("test").List(context.Background(), list); err != nil {
		panic(err)
	}
	for i := range list.Items {
		if wl := &list.Items[i]; kueuestate.AcceptsCheckUpdate(wl) && wl.Status.AdmissionChecks[0].State == kueue.CheckStatePending {
			n++
		}
	}
	return n
}
