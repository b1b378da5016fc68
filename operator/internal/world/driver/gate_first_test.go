//go:build !race

package driver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/world"
)

// TestGateFirst has jobs of high priority whose queue preempts low ones on the hub. The gate decides before they have
// quota.
func TestGateFirst(t *testing.T) {
	preempting := func(name string, quota int64, clusters []world.Cluster, jobs ...world.Job) world.Spec {
		return world.Spec{Name: name, Seed: 1, Clusters: clusters, Jobs: jobs, Settings: world.Settings{Length: 2 * time.Hour},
			Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: quota}, WithinQueue: "LowerPriority"}}}
	}
	low := func(name string, at time.Duration, devices int64) world.Job {
		return world.Job{Name: name, At: at, Devices: devices, Duration: time.Hour}
	}
	high := func(name string, at, duration time.Duration) world.Job {
		return world.Job{Name: name, At: at, Devices: 8, Priority: 10, Duration: duration}
	}
	for _, tc := range []struct {
		spec world.Spec
		// min and max are when the job "high" starts after its arrival; zero = it never starts.
		min, max time.Duration
	}{
		{preemptorFitsNowhere(), 0, 0},
		// The only node that is large enough is not free before the peer ends.
		{preempting("a preemptor waits for a node", 24, []world.Cluster{nodes("cluster1", 1, 8), nodes("cluster2", 4, 4)}, high("peer", time.Minute, 25*time.Minute), high("high", 5*time.Minute, time.Minute),
			low("lowa", 2*time.Minute, 4), low("lowb", 2*time.Minute, 4), low("lowc", 2*time.Minute, 4), low("lowd", 2*time.Minute, 4)), 20 * time.Minute, 25 * time.Minute},
		// Both find the room that is enough for one.
		{preempting("two preemptors for one node", 16, []world.Cluster{nodes("cluster1", 1, 8), nodes("cluster2", 2, 4)}, low("lowa", time.Minute, 8), low("lowb", 2*time.Minute, 4), low("lowc", 2*time.Minute, 4),
			high("high", 5*time.Minute, 30*time.Minute), high("next", 5*time.Minute, time.Minute)), 0, 2 * time.Minute},
	} {
		t.Run(tc.spec.Name, func(t *testing.T) {
			isVain := func(p world.Problem) bool { return p.Invariant == world.NoVainKill }
			if w := Run(t, tc.spec, Options{}); !slices.ContainsFunc(w.Problems, isVain) {
				t.Errorf("no job is killed in vain if the gate decides later: %v", w.Problems)
			}
			tc.spec.Settings.GateFirst = true
			w := Run(t, tc.spec, Options{Verbose: printLog()})
			if wait := max(0, waits(w)["high"]); wait < tc.min || wait > tc.max {
				t.Errorf("the job starts after %s, want %s to %s", wait, tc.min, tc.max)
			}
			for _, p := range w.Problems {
				t.Error(p)
			}
		})
	}
}

// TestGateFirstInRandomWorlds shows that Kueue on the hub kills no job in vain if the gate decides first. Kueue on a
// worker may give a victim its quota back, and preempt it again.
func TestGateFirstInRandomWorlds(t *testing.T) {
	for seed := *first; seed < *first+uint64(max(5, *seeds/4)); seed++ {
		spec := world.Random(seed)
		for i := range spec.Queues {
			spec.Queues[i].WithinQueue = "LowerPriority"
		}
		spec.Settings.GateFirst = true
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			for _, p := range Run(t, spec, Options{Workers: *workers, Verbose: printLog()}).Problems {
				if p.Invariant == world.NoVainKill && strings.Contains(p.Text, " by hub") || knownFailures[p.Invariant] == "" {
					t.Error(p)
				}
			}
		})
	}
}
