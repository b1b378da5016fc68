//go:build !race

package driver

import (
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/world"
)

// yielding is a world whose gate yields at once, without holds.
func yielding(s world.Spec) world.Spec {
	s.Seed, s.Settings.Length = 1, 3*time.Hour
	s.Settings.Gate.WhenUnplaceable = v1alpha1.WhenUnplaceable{Mode: v1alpha1.UnplaceableYield, YieldAfterSeconds: 60}
	s.Settings.Gate.Hold.Mode = v1alpha1.HoldOff
	return s
}

// waits are the times from the arrival of each job until all its pods run.
func waits(w *world.World) map[string]time.Duration {
	waits := map[string]time.Duration{}
	for _, r := range w.Runs() {
		waits[r.Name] = r.Started.Sub(r.Submitted)
	}
	return waits
}

// TestYieldAfterPodsReadyTimeout has a job whose pods were not ready in time, and then finds no room. It returns its
// quota to a job that has room.
func TestYieldAfterPodsReadyTimeout(t *testing.T) {
	spec := yielding(world.Spec{Name: "a job yields after a PodsReady timeout", Clusters: []world.Cluster{nodes("cluster1", 1, 8), nodes("cluster2", 1, 1)},
		Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 16}}},
		Jobs: []world.Job{{Name: "late", At: time.Minute, Devices: 8, Duration: time.Minute}, {Name: "runs", At: 3 * time.Minute, Devices: 8, Duration: 40 * time.Minute},
			{Name: "small", At: 8 * time.Minute, Devices: 1, Duration: time.Minute}},
		Faults: []world.Fault{{Kind: world.StartsFail, Cluster: "cluster1", At: 0, Lasts: 210 * time.Second}}})
	spec.Settings.HubPodsReadyTimeout = 2 * time.Minute
	w := Run(t, spec, Options{Verbose: printLog()})
	if wait := waits(w)["small"]; wait < 0 || wait > 3*time.Minute {
		t.Errorf("the small job starts after %s", wait)
	}
	for _, p := range unknownProblems(w) {
		t.Error(p)
	}
}

// TestYieldOfAPreemptor has a job whose queue preempts lower priorities on the hub, and that finds no room. Each return
// to the queue would preempt them again.
func TestYieldOfAPreemptor(t *testing.T) {
	spec := func(name string, more ...world.Job) world.Spec {
		s := yielding(world.Spec{Name: name, Clusters: []world.Cluster{nodes("cluster1", 1, 8), nodes("cluster2", 4, 4)},
			Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 20}, WithinQueue: "LowerPriority"}},
			Jobs: append([]world.Job{{Name: "peer", At: time.Minute, Devices: 8, Priority: 10, Duration: 25 * time.Minute},
				{Name: "high", At: 3 * time.Minute, Devices: 8, Priority: 10, Duration: time.Minute}}, more...)})
		for i := range s.Clusters { // nothing is preempted there
			s.Clusters[i].Quotas = map[string]map[string]int64{"gpu": {h100: 64}}
		}
		return s
	}
	low := func(name string, at time.Duration) world.Job {
		return world.Job{Name: name, At: at, Devices: 4, Duration: time.Hour}
	}
	for _, tc := range []struct {
		spec world.Spec
		// yields: the job returns its quota, so that another one starts. kills are the jobs preempted for it.
		yields bool
		kills  int
	}{
		{spec("only those wait that it would preempt", low("lowa", 70*time.Second), low("lowb", 71*time.Second)), false, 1},
		{spec("another one waits, too", low("lowb", 250*time.Second), world.Job{Name: "same", At: 75 * time.Second, Devices: 4, Priority: 10, Duration: 9 * time.Minute},
			world.Job{Name: "equal", At: 4 * time.Minute, Devices: 4, Priority: 10, Duration: time.Hour}), true, 0},
	} {
		t.Run(tc.spec.Name, func(t *testing.T) {
			w := Run(t, tc.spec, Options{Verbose: printLog()})
			if n := strings.Count(w.Log(), "for job-high"); n != tc.kills {
				t.Errorf("%d jobs are preempted for it, want %d", n, tc.kills)
			}
			wait := waits(w)
			if yields := strings.Contains(w.Log(), "event Yield on job-high"); yields != tc.yields {
				t.Errorf("yields: %t, want %t", yields, tc.yields)
			}
			if wait["high"] < 20*time.Minute || wait["high"] > 25*time.Minute || wait["equal"] > 5*time.Minute {
				t.Errorf("the jobs start after %v", wait)
			}
			for _, p := range unknownProblems(w) {
				t.Error(p)
			}
		})
	}
}
