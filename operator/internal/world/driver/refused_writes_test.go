//go:build !race

package driver

import (
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/world"
)

// TestRefusedWrites has a job whose Workload has no room for the annotation of the gate. Another job gets the devices,
// and the first one starts when its user has removed what fills it.
func TestRefusedWrites(t *testing.T) {
	w := Run(t, world.Spec{Name: "a write is refused", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 1, 8)},
		Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 16}}},
		Jobs:   []world.Job{{Name: "filled", At: time.Minute, Devices: 8, Duration: time.Minute}, {Name: "other", At: 2 * time.Minute, Devices: 8, Duration: time.Minute}},
		Faults: []world.Fault{{Kind: world.Filled, Job: "filled", At: time.Minute + time.Millisecond, Lasts: 20 * time.Minute}}}, Options{Verbose: printLog()})
	starts := map[string]time.Duration{}
	for _, r := range w.Runs() {
		starts[r.Name] = r.Started.Sub(r.Submitted)
	}
	if after := starts["other"]; after < 0 || after > 2*time.Minute {
		t.Errorf("the other job starts after %s", after)
	}
	if after := starts["filled"]; after < 20*time.Minute || after > 22*time.Minute {
		t.Errorf("the filled job starts after %s, want at most 2 min after it is no longer filled", after)
	}
	if n := strings.Count(w.Log(), "event WriteRefused on job-filled: "); n != 2 { // after each other reason to wait
		t.Errorf("%d events WriteRefused, want 2", n)
	}
	for _, p := range w.Problems {
		t.Error(p)
	}
}
