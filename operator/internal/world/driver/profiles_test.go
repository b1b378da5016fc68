//go:build !race

package driver

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

// longRuns has a gate that sends jobs to clusters with a device for each 12 s that they run. cluster1 has more
// free devices than cluster2, half of which another job holds, but too few for jobs of five minutes.
func longRuns() world.Spec {
	s := world.Spec{Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 3, 8), nodes("cluster2", 4, 8)}}
	s.Jobs = []world.Job{{Name: "other", At: 30 * time.Second, Pods: 4, Devices: 4, Duration: 40 * time.Minute}, {Name: "first", At: 2 * time.Minute}, {Name: "again", At: 10 * time.Minute}, {Name: "unknown", At: 10 * time.Minute, Devices: 2}}
	for i := 1; i < len(s.Jobs); i++ {
		s.Jobs[i].Devices, s.Jobs[i].Duration = max(1, s.Jobs[i].Devices), 5*time.Minute
	}
	s.Settings.Gate.Profiles = &v1alpha1.GateProfiles{}
	s.Settings.Gate.Requirements = []v1alpha1.GateRequirement{{Name: "long",
		Query: `sum by ($cluster_label) (cluster_resource_model:plimsoll_devices:sum{resource="$resource",model="$model"}) * 12 >= $profile_duration`}}
	return s
}

// TestProfiles shows that a finished job makes a profile, and that a requirement reads it for the next one of its kind.
func TestProfiles(t *testing.T) {
	rules, err := metrics.LoadRules(filepath.Join("..", "..", "..", "..", "rules"))
	if err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]world.Spec{"closed form": longRuns(), "rules": longRuns()} {
		t.Run(name, func(t *testing.T) {
			spec.Settings.Rules = name == "rules"
			w := Run(t, spec, Options{Verbose: printLog(), Rules: rules})
			for job, want := range map[string]string{"first": "cluster1", "again": "cluster2", "unknown": "cluster1"} {
				i := slices.IndexFunc(w.Runs(), func(r *world.Run) bool { return r.Name == job })
				if got := w.Runs()[i].Nominated; !slices.Equal(got, []string{want}) {
					t.Errorf("%s was nominated to %v, want %s", job, got, want)
				}
			}
			if message := `requirement long does not apply`; !strings.Contains(w.Log(), message) {
				t.Errorf("the log does not have %q", message)
			}
			list := &v1alpha1.JobProfileList{}
			if err := w.Hub.Client("test").List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			runs := map[int64]int{}
			for _, p := range list.Items {
				m := p.Status.Models[0]
				runs[m.Runs]++
				if m.Runs == 2 && (*m.DurationP50Seconds < 290 || *m.DurationP50Seconds > 320 || *m.UtilizationP50Percent < 80) {
					t.Errorf("the profile of two runs of 5 minutes has %d s, %d %%", *m.DurationP50Seconds, *m.UtilizationP50Percent)
				}
			}
			// The Workload of the last job is deleted at its end, before it is measured.
			if runs[1] != 1 || runs[2] != 1 || len(list.Items) != 2 {
				t.Errorf("numbers of profiles by their runs are %v, want one with one run and one with two", runs)
			}
			for _, p := range w.Problems {
				t.Error(p)
			}
		})
	}
}
