//go:build !race

package driver

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/operator/internal/world/hub"
)

// measured has two clusters of two nodes, and a queue that borrows all its quota from a Cohort with the measured devices.
func measured(faults ...world.Fault) world.Spec {
	s := world.Spec{Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 2, 8), nodes("cluster2", 2, 8)}, Queues: []world.Queue{{Name: "gpu", Cohort: "fleet", Nominal: map[string]int64{}}}, Faults: faults}
	s.Settings.Capacity = world.CapacityPolicy("fleet", h100)
	s.Settings.Capacity.PeriodSeconds, s.Settings.Capacity.Advanced.LowerAfterSeconds = 30, ptr.To[int32](60)
	return s
}

// TestCapacity shows that the quota of the hub's Cohort follows the devices, and what it means for jobs.
func TestCapacity(t *testing.T) {
	nodeLost := world.Fault{Kind: world.NodeLost, Cluster: "cluster1", Amount: 1, At: 5 * time.Minute, Lasts: 15 * time.Minute}
	deviceLost := world.Fault{Kind: world.DeviceLost, Cluster: "cluster1", Amount: 1, At: 5 * time.Minute, Lasts: 15 * time.Minute}
	type step struct {
		after time.Duration
		// quota of the Cohort, and jobs that hold quota.
		quota int64
		jobs  int
	}
	for _, tc := range []struct {
		name string
		spec world.Spec
		jobs []world.Job
		want []step
	}{
		{"a node is lost: no job waits with quota for devices that do not exist", measured(nodeLost),
			[]world.Job{{Name: "jobs", At: 10 * time.Minute, Duration: time.Hour}}, []step{{4 * time.Minute, 32, 0}, {9 * time.Minute, 24, 0}, {12 * time.Minute, 24, 3}, {23 * time.Minute, 32, 4}}},
		{"a node is lost on which a job runs: its quota stays until a job ends", measured(nodeLost),
			[]world.Job{{Name: "jobs", At: 2 * time.Minute, Duration: 8 * time.Minute}}, []step{{4 * time.Minute, 32, 4}, {9 * time.Minute, 32, 4}, {14 * time.Minute, 24, 1}, {23 * time.Minute, 32, 0}}},
		{"a broken device lowers the quota at once", measured(deviceLost), nil, []step{{5*time.Minute - time.Second, 32, 0}, {6 * time.Minute, 31, 0}, {22 * time.Minute, 32, 0}}},
		{"a cluster without metrics keeps its quota", measured(world.Fault{Kind: world.MetricsLost, Cluster: "cluster1", At: 5 * time.Minute, Lasts: 5 * time.Minute}), nil, []step{{9 * time.Minute, 32, 0}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, j := range tc.jobs {
				for _, name := range []string{"a", "b", "c", "d"} {
					j.Name, j.Devices = name, 8
					tc.spec.Jobs = append(tc.spec.Jobs, j)
				}
			}
			w := Run(t, tc.spec, Options{Verbose: printLog(), Steps: func(d *Driver) {
				for _, s := range tc.want {
					d.Advance(s.after-d.Elapsed(), nil)
					jobs := 0
					for _, r := range d.Runs() {
						if state := d.StateOf(r.Name); state.HoldsQuota && !state.Finished {
							jobs++
						}
					}
					cohort := hub.Get[*kueue.Cohort](d.Hub, types.NamespacedName{Name: "fleet"})
					if quota := cohort.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota.Value(); quota != s.quota || jobs != s.jobs {
						t.Errorf("after %s, the Cohort has a quota of %d, and %d jobs hold quota; want %d and %d", s.after, quota, jobs, s.quota, s.jobs)
					}
				}
			}})
			for _, p := range w.Problems {
				t.Error(p)
			}
		})
	}
}
