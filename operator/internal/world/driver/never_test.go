//go:build !race

package driver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/world"
)

// impossible is a world in which jobs of 9 GPUs for each pod arrive, and nodes have 8. The quota suffices for all of them,
// and then for nothing else.
func impossible(jobs int, faults ...world.Fault) world.Spec {
	s := world.Spec{Name: "jobs that no node could hold", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 1, 8), nodes("cluster2", 2, 8)},
		Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: int64(9 * jobs)}}}, Faults: faults, Settings: world.Settings{Length: time.Hour}}
	for i := range jobs {
		s.Jobs = append(s.Jobs, world.Job{Name: fmt.Sprintf("large%02d", i), At: time.Minute + time.Duration(i)*time.Second, Devices: 9, Duration: time.Minute})
	}
	s.Jobs = append(s.Jobs, world.Job{Name: "small", At: 2 * time.Minute, Devices: 8, Duration: time.Minute})
	return s
}

// TestImpossibleJobsReturnTheirQuota has 25 jobs that no node could hold. They keep the quota of the fleet for the
// documented time only. Those of a gate that lets them wait keep it.
func TestImpossibleJobsReturnTheirQuota(t *testing.T) {
	for _, tc := range []struct {
		never   v1alpha1.WhenNever
		starts  time.Duration // of the small job; negative = never
		message string
		jobs    int
	}{
		{v1alpha1.WhenNever{}, 10 * time.Minute, "event Parked", 25},
		{v1alpha1.WhenNever{AfterSeconds: 60}, time.Minute, "event Parked", 25},
		{v1alpha1.WhenNever{Mode: v1alpha1.NeverReject, AfterSeconds: 60}, time.Minute, ": Rejected \"gave up: can never start here", 25},
		{v1alpha1.WhenNever{Mode: v1alpha1.NeverWait}, -1, "event Parked", 0},
	} {
		t.Run(string(tc.never.Mode), func(t *testing.T) {
			spec := impossible(25)
			spec.Settings.Gate.WhenUnplaceable.Never = tc.never
			w := Run(t, spec, Options{Verbose: printLog()})
			if n := strings.Count(w.Log(), tc.message); n != tc.jobs {
				t.Errorf("%q is %d times in the log, want %d", tc.message, n, tc.jobs)
			}
			if wait := waits(w)["small"]; tc.starts < 0 && wait > 0 || tc.starts > 0 && (wait < tc.starts-time.Minute || wait > tc.starts+2*time.Minute) {
				t.Errorf("the small job starts after %s, want about %s", wait, tc.starts)
			}
			for _, p := range unknownProblems(w) {
				if tc.starts > 0 || p.Job != "small" {
					t.Error(p)
				}
			}
		})
	}
}

// TestParkedJobsReturn has a node that could hold the parked jobs, 30 minutes later, and an operator that restarts before.
func TestParkedJobsReturn(t *testing.T) {
	spec := impossible(6, world.Fault{Kind: world.OperatorDown, At: 20 * time.Minute, Lasts: time.Minute}, world.Fault{Kind: world.PrometheusDown, At: 25 * time.Minute, Lasts: 3 * time.Minute},
		world.Fault{Kind: world.NodeAdded, Cluster: "cluster2", Amount: 16, At: 30 * time.Minute})
	w := Run(t, spec, Options{Verbose: printLog()})
	for _, event := range []string{"event Never", "event Parked"} { // neither the restart nor the outage of metrics returns them
		if n := strings.Count(w.Log(), event); n != 6 {
			t.Errorf("%d times %q, want 6", n, event)
		}
	}
	for _, r := range w.Runs() {
		if r.Name != "small" && (r.Started.Sub(r.Submitted) < 28*time.Minute || r.Done.IsZero()) {
			t.Errorf("%s started after %s, and is done: %t", r.Name, r.Started.Sub(r.Submitted), !r.Done.IsZero())
		}
	}
	for _, p := range unknownProblems(w) {
		t.Error(p)
	}
}

// TestQuotaThatNeverSuffices has a worker's queue that can never have the quota of a job.
func TestQuotaThatNeverSuffices(t *testing.T) {
	spec := world.Spec{Name: "a queue of a worker that is too small", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 4, 8)}, Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 64}}},
		Jobs: []world.Job{{Name: "large", At: time.Minute, Pods: 2, Devices: 8, Duration: time.Minute}, {Name: "other", At: time.Minute, Devices: 1, Duration: 20 * time.Minute}}, Settings: world.Settings{Length: time.Hour}}
	spec.Clusters[0].Quotas = map[string]map[string]int64{"gpu": {h100: 15}}
	w := Run(t, spec, Options{Verbose: printLog()})
	if want := "event Parked on job-large: can never start here: the queue on cluster1 can have quota for at most 15 of 16 devices"; !strings.Contains(w.Log(), want) {
		t.Errorf("no %q in the log", want)
	}
	for _, p := range unknownProblems(w) {
		t.Error(p)
	}
}

// TestImpossibleSetReturnsItsQuota has a LeaderWorkerSet that is larger than each cluster. All its components return their
// quota, and queue again when a cluster could start the whole set.
func TestImpossibleSetReturnsItsQuota(t *testing.T) {
	spec := world.Spec{Name: "a set that no cluster could hold", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 1, 8), nodes("cluster2", 2, 8)}, Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 24}}},
		Jobs: []world.Job{{Name: "set", Kind: world.KindSet, Components: 3, At: time.Minute, Devices: 8, Duration: time.Minute},
			{Name: "small", At: 2 * time.Minute, Devices: 8, Duration: time.Minute}},
		Faults:   []world.Fault{{Kind: world.OperatorDown, At: 20 * time.Minute, Lasts: time.Minute}, {Kind: world.NodeAdded, Cluster: "cluster2", Amount: 8, At: 30 * time.Minute}},
		Settings: world.Settings{Length: time.Hour}}
	spec.Clusters[1].Quotas = map[string]map[string]int64{"gpu": {h100: 24}}
	w := Run(t, spec, Options{Verbose: printLog()})
	if n := strings.Count(w.Log(), "event Parked"); n != 3 {
		t.Errorf("%d components are parked, want 3", n)
	}
	for _, r := range w.Runs() {
		switch wait := r.Started.Sub(r.Submitted); {
		case r.Done.IsZero():
			t.Errorf("%s is not done", r.Name)
		case r.Name == "small" && wait > 12*time.Minute:
			t.Errorf("the small job starts after %s, want about 10 minutes", wait)
		case r.Name != "small" && wait < 28*time.Minute:
			t.Errorf("%s starts after %s, before a cluster could hold the set", r.Name, wait)
		}
	}
	for _, p := range unknownProblems(w) {
		t.Error(p)
	}
}
