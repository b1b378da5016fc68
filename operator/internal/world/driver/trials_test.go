//go:build !race

package driver

import (
	"slices"
	"strings"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/world"
)

const l4 = "NVIDIA-L4"

// tried has a cluster with many L4 GPUs and one with fewer H100 GPUs, on which a step takes a third of the time. A job
// may run on both models, and the gate prefers the one on which it was fastest.
func tried(job world.Job, faults ...world.Fault) world.Spec {
	model := func(name string) v1alpha1.TrialModel {
		return v1alpha1.TrialModel{Name: name, NodeSelector: map[string]string{"nvidia.com/gpu.product": name}}
	}
	job.Name, job.At, job.Devices, job.Tried = "newcomer", time.Minute, 8, true
	s := world.Spec{Seed: 1, Clusters: []world.Cluster{{Name: "cluster1", Pools: []world.Pool{{Nodes: 4, Model: l4, Devices: 8}}}, nodes("cluster2", 2, 8)},
		Queues: []world.Queue{{Name: "gpu", AnyModel: true}, {Name: "trials", Nominal: map[string]int64{h100: 8, l4: 8}}}, Jobs: []world.Job{job}, Faults: faults}
	s.Settings.Trial = &v1alpha1.TrialPolicySpec{QueueName: "trials", RunSeconds: 60, WaitSeconds: 300, ThroughputQuery: world.StepsQuery, Models: []v1alpha1.TrialModel{model(l4), model(h100)}}
	s.Settings.Gate.Profiles = &v1alpha1.GateProfiles{}
	s.Settings.Gate.Queries.Preference = `sum by ($cluster_label) (floor(node_resource_model:plimsoll_free_devices:placeable{resource="$resource", model="$profile_best_model"} / $devices_per_pod)) >= bool $pods`
	return s
}

// TestTrials shows that a job waits while its copies run, and where it goes then.
func TestTrials(t *testing.T) {
	for _, tc := range []struct {
		name string
		spec world.Spec
		// cluster that the job goes to, after a time; message of its check for trials.
		cluster, message string
		least, most      time.Duration
	}{
		{"the job goes to the faster model", tried(world.Job{Duration: 10 * time.Minute}), "cluster2", "the trial has ended: the profile of the job knows " + l4 + " (throughput 1.107), " + h100 + " (throughput 3.385)", 75 * time.Second, 2 * time.Minute},
		{"copies fail and say nothing", tried(world.Job{Duration: 20 * time.Second, Behavior: world.Fails}), "cluster1", "the trial measured nothing", 30 * time.Second, 2 * time.Minute},
		{"one measured model is no comparison", tried(world.Job{Duration: 10 * time.Minute}, world.Fault{Kind: world.SchedulerDead, Cluster: "cluster1", At: time.Second, Lasts: 3 * time.Minute}), "cluster1", "the trial has ended: the profile of the job knows " + h100 + " (throughput 3.385)", 75 * time.Second, 5 * time.Minute},
		{"no metrics", tried(world.Job{Duration: 10 * time.Minute}, world.Fault{Kind: world.PrometheusDown, At: 90 * time.Second, Lasts: 6 * time.Minute}), "cluster1", "the trial did not end within 300 s, the limit of TrialPolicy trial", 5 * time.Minute, 8 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := Run(t, tc.spec, Options{Verbose: printLog(), Steps: func(d *Driver) {
				d.Advance(20*time.Minute, func() bool { return len(d.StateOf("newcomer").Running) > 0 })
				wl := d.Workloads()[slices.IndexFunc(d.Workloads(), func(wl *kueue.Workload) bool { return wl.Name == "job-newcomer" })]
				if check := kueuestate.FindCheck(wl, "trial"); check.State != "Ready" || check.Message != tc.message {
					t.Errorf("the check for trials is %s %q, want %q", check.State, check.Message, tc.message)
				}
				d.Advance(10*time.Second, nil)
				if n := len(d.Workloads()); n != 1 {
					t.Errorf("%d Workloads, want none of the copies any more", n-1)
				}
			}})
			r := w.Runs()[0]
			if !slices.Equal(r.Nominated, []string{tc.cluster}) {
				t.Errorf("newcomer was nominated to %v, want %s", r.Nominated, tc.cluster)
			}
			if waited := r.Started.Sub(r.Submitted); waited < tc.least || waited > tc.most {
				t.Errorf("newcomer started after %s, want %s to %s", waited, tc.least, tc.most)
			}
			if n := strings.Count(w.Log(), "submit trial-"); n != 2 {
				t.Errorf("%d copies", n)
			}
			for _, p := range w.Problems {
				t.Error(p)
			}
		})
	}
}
