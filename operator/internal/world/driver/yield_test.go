//go:build !race

package driver

import (
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
