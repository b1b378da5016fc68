//go:build !race

package driver

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/world"
	"plimsoll.dev/plimsoll/operator/internal/world/metrics"
)

const h100 = "NVIDIA-H100-80GB-HBM3"

// nodes are a cluster of equal nodes with H100 GPUs.
func nodes(name string, n int, devices int64) world.Cluster {
	return world.Cluster{Name: name, Pools: []world.Pool{{Nodes: n, Model: h100, Devices: devices}}}
}

// TestKnownFailures has a named world for each invariant that the gate is known to break. It fails when the
// gate no longer breaks it: then the invariant leaves knownFailures, and the world moves to TestNamedWorlds.
func TestKnownFailures(t *testing.T) {
	for _, tc := range []struct {
		invariant world.Invariant
		spec      world.Spec
		// text that the problem contains.
		text string
	}{
		{world.NoVainKill, preemptorFitsNowhere(), "which has not started 10m0s later"},
	} {
		t.Run(tc.spec.Name, func(t *testing.T) {
			w := Run(t, tc.spec, Options{Verbose: printLog()})
			isBroken := slices.ContainsFunc(w.Problems, func(p world.Problem) bool { return p.Invariant == tc.invariant && strings.Contains(p.Text, tc.text) })
			if !isBroken {
				t.Errorf("%s holds now, problems are %v", tc.invariant, w.Problems)
			}
			for _, p := range unknownProblems(w) {
				t.Error(p)
			}
		})
	}
}

// noPodStarts has a cluster whose scheduler is dead. Its devices stay free. No job that Kueue takes away from there
// after the timeout goes there again.
func noPodStarts() world.Spec {
	s := world.Spec{Name: "no pod starts", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 4, 8), nodes("cluster2", 1, 8)},
		Faults: []world.Fault{{Kind: world.SchedulerDead, Cluster: "cluster1"}}, Settings: world.Settings{Length: time.Hour}}
	s.Clusters[0].PodsReadyTimeout = 3 * time.Minute
	for i := range 8 {
		s.Jobs = append(s.Jobs, world.Job{Name: "job" + string(rune('a'+i)), At: time.Minute + time.Duration(i)*time.Second, Devices: 1, Duration: time.Minute})
	}
	return s
}

// TestDeletedJobsDidNotStart has a cluster whose scheduler is dead, and users who delete the jobs that hang there. A
// deleted job is no proof that the cluster starts any: those that wait then do not go there.
func TestDeletedJobsDidNotStart(t *testing.T) {
	s := world.Spec{Name: "users delete the jobs that hang", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 4, 8), nodes("cluster2", 2, 8)},
		Faults: []world.Fault{{Kind: world.SchedulerDead, Cluster: "cluster1"}}, Settings: world.Settings{Length: time.Hour}}
	for i := range 40 {
		at := time.Minute + time.Duration(i)*30*time.Second
		s.Jobs = append(s.Jobs, world.Job{Name: fmt.Sprintf("job%02d", i), At: at, Devices: 8, Duration: 3 * time.Minute})
	}
	for _, name := range []string{"job00", "job01", "job02", "job03", "job04", "job05"} {
		s.Faults = append(s.Faults, world.Fault{Kind: world.Deleted, Job: name, At: 8 * time.Minute})
	}
	w := Run(t, s, Options{Verbose: printLog()})
	for _, r := range w.Runs()[6:12] { // later ones are probes
		if slices.Contains(r.Nominated, "cluster1") {
			t.Errorf("%s was sent to cluster1", r.Name)
		}
	}
}

// preemptorFitsNowhere has a job of high priority that no node is large enough for. Kueue on the hub preempts
// running jobs for its quota before the gate decides.
func preemptorFitsNowhere() world.Spec {
	s := world.Spec{Name: "a preemptor fits nowhere", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 4, 4), nodes("cluster2", 4, 4)},
		Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 16}, WithinQueue: "LowerPriority"}}, Settings: world.Settings{Length: time.Hour}}
	for i := range 4 {
		s.Jobs = append(s.Jobs, world.Job{Name: "low" + string(rune('a'+i)), At: time.Minute, Devices: 4, Duration: 20 * time.Minute})
	}
	s.Jobs = append(s.Jobs, world.Job{Name: "high", At: 5 * time.Minute, Devices: 8, Priority: 10, Duration: time.Minute})
	return s
}

// componentWithoutQuota has a LeaderWorkerSet whose last component gets no quota for 20 minutes. MultiKueue deletes the
// set on the worker for that component as soon as another one is admitted there. The gate sends the others again every
// five minutes.
func componentWithoutQuota() world.Spec {
	return world.Spec{Name: "a component without quota", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 1, 8), nodes("cluster2", 1, 8)},
		Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 6}}},
		Jobs: []world.Job{{Name: "other", At: 30 * time.Second, Devices: 1, Duration: 20 * time.Minute},
			{Name: "set", Kind: world.KindSet, Components: 3, At: time.Minute, Devices: 2, Duration: 3 * time.Minute}}}
}

// TestComponentsWaitForTheQuotaOfTheirJob shows that a set of which one component has no quota is sent rarely, and runs
// when all have quota.
func TestComponentsWaitForTheQuotaOfTheirJob(t *testing.T) {
	w := Run(t, componentWithoutQuota(), Options{Verbose: printLog()})
	if sent := strings.Count(w.Log(), "set-0 is nominated to [cluster"); sent < 2 || sent > 6 {
		t.Errorf("component 0 is sent %d times in 20 minutes without the quota of its job", sent)
	}
	if !strings.Contains(w.Log(), "all components of set run") {
		t.Error("the set does not run")
	}
}

// lineOfEqualJobs has three equal jobs that wait. Only the first is decided while the reason stays: the messages of the
// others state nothing that changes.
func lineOfEqualJobs() world.Spec {
	return world.Spec{Name: "a line of equal jobs", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 1, 8)}, Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 32}}},
		Jobs: append(burst(1, 1), world.Job{Name: "a", At: 80 * time.Second, Devices: 8, Duration: 20 * time.Minute},
			world.Job{Name: "b", At: 90 * time.Second, Devices: 8, Duration: time.Minute}, world.Job{Name: "c", At: 100 * time.Second, Devices: 8, Duration: time.Minute})}
}

// noCPU has a cluster with free devices on nodes without free CPU. The jobs that hang there start elsewhere.
func noCPU() world.Spec {
	s := world.Spec{Name: "no CPU beside the free devices", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 2, 8), nodes("cluster2", 1, 8)}, Settings: world.Settings{Length: time.Hour}}
	s.Clusters[0].Pools[0].CPU = 2000
	for i := range 6 {
		s.Jobs = append(s.Jobs, world.Job{Name: "job" + string(rune('a'+i)), At: time.Minute + time.Duration(i)*time.Second, Devices: 1, CPU: 4000, Duration: 10 * time.Minute})
	}
	return s
}

// TestNamedWorlds are worlds in which a fault was found, and others that random worlds seldom meet.
func TestNamedWorlds(t *testing.T) {
	worlds := []world.Spec{
		{Name: "a worker is away for longer than MultiKueue waits", Clusters: []world.Cluster{nodes("cluster1", 1, 8), nodes("cluster2", 1, 8)},
			Jobs:   []world.Job{{Name: "a", At: time.Minute, Devices: 8, Duration: 30 * time.Minute}, {Name: "b", At: time.Minute, Devices: 8, Duration: 30 * time.Minute}},
			Faults: []world.Fault{{Kind: world.Unreachable, Cluster: "cluster1", At: 5 * time.Minute, Lasts: 20 * time.Minute}}},
		{Name: "the operator restarts while a burst is on its way", Clusters: []world.Cluster{nodes("cluster1", 2, 8), nodes("cluster2", 2, 8)},
			Jobs: burst(16, 2), Faults: []world.Fault{{Kind: world.OperatorDown, At: 62 * time.Second, Lasts: 5 * time.Second}, {Kind: world.OperatorDown, At: 70 * time.Second, Lasts: time.Second}}},
		{Name: "a large job waits behind small ones", Clusters: []world.Cluster{nodes("cluster1", 2, 8)}, Jobs: append(stream(60, 1), world.Job{Name: "large", At: 5 * time.Minute, Devices: 8, Duration: time.Minute})},
		{Name: "many writes fail", Clusters: []world.Cluster{nodes("cluster1", 2, 8), nodes("cluster2", 2, 8)}, Jobs: burst(20, 2),
			Faults: []world.Fault{{Kind: world.WritesFail, Amount: 400, At: time.Second, Lasts: 5 * time.Minute}}},
		{Name: "no metrics for ten minutes", Clusters: []world.Cluster{nodes("cluster1", 2, 8), nodes("cluster2", 2, 8)}, Jobs: stream(30, 2),
			Faults: []world.Fault{{Kind: world.PrometheusDown, At: 3 * time.Minute, Lasts: 10 * time.Minute}}},
		{Name: "an elastic job is resized before and after it runs", Clusters: []world.Cluster{nodes("cluster1", 1, 8), nodes("cluster2", 1, 8)},
			Jobs: append(burst(4, 4), world.Job{Name: "elastic", Elastic: true, At: 2 * time.Minute, Devices: 2, Duration: 10 * time.Minute}),
			Faults: []world.Fault{{Kind: world.Resized, Job: "elastic", Amount: 3, At: 2*time.Minute + time.Second}, {Kind: world.Resized, Job: "elastic", Amount: 1, At: 5 * time.Minute},
				{Kind: world.Resized, Job: "elastic", Amount: 4, At: 6 * time.Minute}, {Kind: world.OperatorDown, At: 6*time.Minute + time.Second, Lasts: 10 * time.Second}}},
		agedBehindPriority(), agedForWholeCluster(),
		noPodStarts(), noCPU(), lineOfEqualJobs(), componentWithoutQuota(),
		sidecars(),
		{Name: "LeaderWorkerSets fill the fleet", Clusters: []world.Cluster{nodes("cluster1", 1, 8), nodes("cluster2", 1, 8)}, Jobs: append(burst(6, 1), sets(6)...)},
	}
	for i := range worlds {
		t.Run(worlds[i].Name, func(t *testing.T) {
			worlds[i].Seed = 1
			worlds[i].Settings.Length = 2 * time.Hour
			worlds[i].Settings.Gate.Hold.AfterSeconds = 120
			w := Run(t, worlds[i], Options{Verbose: printLog()})
			for _, p := range w.Problems {
				t.Error(p)
			}
		})
	}
}

// agedBehindPriority has a large job behind small ones of a higher priority, which never leave a node empty. It starts
// because it ages, and because a cluster is held for it then.
func agedBehindPriority() world.Spec {
	s := world.Spec{Name: "a large job ages behind small ones of a higher priority", Clusters: []world.Cluster{nodes("cluster1", 2, 8)}, Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 64}}},
		Jobs: append(stream(130, 1), world.Job{Name: "large", At: 3 * time.Minute, Devices: 8, Duration: time.Minute})}
	s.Clusters[0].Spread = true
	for i := range 130 {
		s.Jobs[i].Priority = 1
	}
	s.Settings.Gate.Hold.AgingSeconds = 600
	return s
}

// agedForWholeCluster has a job that needs a whole cluster with all its quota. Between the end of another job there and
// the next sample, quota seems to be missing. The cluster stays held.
func agedForWholeCluster() world.Spec {
	s := world.Spec{Name: "a job ages that needs a whole cluster", Clusters: []world.Cluster{nodes("cluster1", 2, 8)}, Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 128}}},
		Jobs: []world.Job{{Name: "whole", At: 3 * time.Minute, Pods: 2, Devices: 8, Duration: time.Minute}}}
	for i := range 16 {
		s.Jobs = append(s.Jobs, world.Job{Name: "node" + string(rune('a'+i)), At: time.Minute + time.Duration(i)*100*time.Second, Devices: 8, Priority: 1, Duration: 3 * time.Minute})
	}
	s.Settings.Gate.Hold.AgingSeconds = 600
	return s
}

// TestLearnsLongStarts has a namespace whose pods take six minutes until they are ready. Once one of them was, the cluster
// is not doubted for the next ones.
func TestLearnsLongStarts(t *testing.T) {
	s := world.Spec{Name: "large images", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 4, 8)}, Settings: world.Settings{Length: time.Hour}}
	for i, at := range []time.Duration{time.Minute, 20 * time.Minute, 20 * time.Minute, 25*time.Minute + 30*time.Second} {
		s.Jobs = append(s.Jobs, world.Job{Name: "job" + string(rune('a'+i)), At: at, Devices: 1, Pull: 6 * time.Minute, Duration: time.Minute})
	}
	w := Run(t, s, Options{Verbose: printLog()})
	for _, p := range w.Problems {
		t.Error(p)
	}
	if log := w.Log(); !strings.Contains(log, "jobd is done") || strings.Contains(log, "is doubted") {
		t.Errorf("the cluster is doubted, or a job has not ended:\n%s", log)
	}
}

// sets are LeaderWorkerSets of three components that arrive every 10 s.
func sets(n int) []world.Job {
	var jobs []world.Job
	for i := range n {
		jobs = append(jobs, world.Job{Name: "set" + string(rune('a'+i)), Kind: world.KindSet, Components: 3, At: time.Minute + time.Duration(i)*10*time.Second, Devices: 2, Duration: 3 * time.Minute})
	}
	return jobs
}

// sidecars has pods with a container of two devices and a sidecar of two. Two of them fill a node, and quota does not
// limit them.
func sidecars() world.Spec {
	s := world.Spec{Name: "sidecars request devices", Clusters: []world.Cluster{nodes("cluster1", 1, 8), nodes("cluster2", 1, 8)}, Jobs: burst(8, 4)}
	for i := range s.Jobs {
		s.Jobs[i].SidecarDevices = 2
	}
	plenty := map[string]int64{h100: 64}
	s.Queues = []world.Queue{{Name: "gpu", Nominal: plenty}}
	for i := range s.Clusters {
		s.Clusters[i].Quotas = map[string]map[string]int64{"gpu": plenty}
	}
	return s
}

// burst are jobs that arrive at once.
func burst(n int, devices int64) []world.Job {
	var jobs []world.Job
	for i := range n {
		jobs = append(jobs, world.Job{Name: "burst" + string(rune('a'+i)), At: time.Minute, Devices: devices, Duration: 2 * time.Minute})
	}
	return jobs
}

// stream are jobs that arrive every 15 s.
func stream(n int, devices int64) []world.Job {
	var jobs []world.Job
	for i := range n {
		jobs = append(jobs, world.Job{Name: "stream" + string(rune('a'+i%26)) + string(rune('a'+i/26)), At: time.Minute + time.Duration(i)*15*time.Second, Devices: devices, Duration: 3 * time.Minute})
	}
	return jobs
}

// TestPodsAreWhole has clusters with free devices on nodes without CPU or memory for them, or with a taint. No job is sent there, also in a
// burst, before samples show the CPU of the first jobs.
func TestPodsAreWhole(t *testing.T) {
	poor := func(cpu, memory int64) world.Cluster {
		c := nodes("cluster1", 4, 8)
		c.Pools[0].CPU, c.Pools[0].Memory = cpu, memory
		return c
	}
	rich := poor(64_000, 256<<10)
	rich.Name = "cluster2"
	spec := func(name string, first world.Cluster, between time.Duration) world.Spec {
		s := world.Spec{Name: name, Seed: 1, Clusters: []world.Cluster{first, rich}, Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 64}}},
			Settings: world.Settings{Length: 2 * time.Hour}}
		for i := range 40 {
			s.Jobs = append(s.Jobs, world.Job{Name: fmt.Sprint("job", i), At: time.Minute + time.Duration(i)*between, Devices: 1, CPU: 16_000, Memory: 8 << 10, Duration: 5 * time.Minute})
		}
		return s
	}
	full, dedicated := poor(64_000, 256<<10), poor(64_000, 256<<10)
	dedicated.Pools[0].Taint = world.DedicatedTaint
	tolerant := spec("a taint that the pods tolerate", dedicated, 0)
	for i := range tolerant.Jobs {
		tolerant.Jobs[i].Tolerates = world.DedicatedTaint
	}
	for _, tc := range []struct {
		spec world.Spec
		// room of cluster1 in jobs. That of cluster2 is 16.
		room int
	}{
		{spec("no CPU", poor(15_999, 256<<10), 20*time.Second), 0},
		{spec("no memory", poor(64_000, 8<<10-1), 20*time.Second), 0},
		{spec("a taint", dedicated, 20*time.Second), 0},
		{tolerant, 16},
		{spec("a burst on nodes with CPU for four pods", full, 0), 16},
	} {
		t.Run(tc.spec.Name, func(t *testing.T) {
			w := Run(t, tc.spec, Options{Verbose: printLog()})
			first, _, _ := strings.Cut(w.Log(), " finished on ")
			for cluster, room := range map[string]int{"cluster1": tc.room, "cluster2": 16} {
				if admitted := strings.Count(first, "is admitted on "+cluster); admitted > room || admitted < room*3/4 {
					t.Errorf("%s admitted %d jobs before the first one ended, and has room for %d", cluster, admitted, room)
				}
			}
			for _, p := range unknownProblems(w) {
				t.Error(p)
			}
		})
	}
}

// TestFewJobsHang has clusters that start no pod, and devices that stay free there.
func TestFewJobsHang(t *testing.T) {
	spec := func(name string, between time.Duration) world.Spec {
		s := world.Spec{Name: name, Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 4, 8), nodes("cluster2", 1, 8)}, Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 64}}},
			Faults: []world.Fault{{Kind: world.SchedulerDead, Cluster: "cluster1"}}, Settings: world.Settings{Length: 4 * time.Hour}}
		for i := range 40 {
			s.Jobs = append(s.Jobs, world.Job{Name: fmt.Sprint("job", i), At: time.Minute + time.Duration(i)*between, Devices: 1, Duration: 6 * time.Minute, Namespace: []string{"team-a", "team-b"}[i%2]})
		}
		return s
	}
	repaired := spec("the scheduler comes back", time.Minute)
	repaired.Faults[0].Lasts = 20 * time.Minute
	for _, tc := range []struct {
		spec world.Spec
		// most jobs that the cluster admits, and at least.
		most, least int
	}{
		{spec("a job every two minutes", 2*time.Minute), 5, 1},
		{spec("more jobs than the other cluster has room for", 30*time.Second), 8, 1},
		{repaired, 40, 10},
	} {
		t.Run(tc.spec.Name, func(t *testing.T) {
			w := Run(t, tc.spec, Options{Verbose: printLog()})
			admitted := strings.Count(w.Log(), "is admitted on cluster1")
			if admitted > tc.most || admitted < tc.least {
				t.Errorf("cluster1 admitted %d jobs, want %d to %d", admitted, tc.least, tc.most)
			}
			for _, p := range unknownProblems(w) {
				t.Error(p)
			}
		})
	}
}

// TestBlackHoleOfIdleDevices has a cluster with idle devices on nodes without CPU, one whose ResourceQuota admits no pod, and one
// good node. The metrics show the CPU: no job goes to the first. Nothing shows the ResourceQuota: the jobs that hang are
// two, and a probe each 15 minutes.
func TestBlackHoleOfIdleDevices(t *testing.T) {
	spec := func(name string) world.Spec {
		s := world.Spec{Name: name, Seed: 1, Clusters: []world.Cluster{nodes("hole", 2, 8), nodes("good", 1, 8)}, Queues: []world.Queue{{Name: "gpu", Nominal: map[string]int64{h100: 64}}},
			Settings: world.Settings{Length: 3 * time.Hour}}
		for i := range 18 {
			s.Jobs = append(s.Jobs, world.Job{Name: fmt.Sprintf("job%02d", i), At: time.Minute + time.Duration(i)*2*time.Minute, Devices: 4, CPU: 8000, Duration: 5 * time.Minute})
		}
		return s
	}
	noCPU, quota := spec("no CPU"), spec("ResourceQuota")
	noCPU.Clusters[0].Pools[0].CPU = 4000
	quota.Clusters[0].ResourceQuota = 1
	for _, tc := range []struct {
		spec world.Spec
		most int
	}{{noCPU, 0}, {quota, 4}} {
		t.Run(tc.spec.Name, func(t *testing.T) {
			w := Run(t, tc.spec, Options{Verbose: printLog()})
			if admitted := strings.Count(w.Log(), "is admitted on hole"); admitted > tc.most {
				t.Errorf("%d jobs hang, want at most %d", admitted, tc.most)
			}
			for _, r := range w.Runs() {
				if r.Done.IsZero() {
					t.Errorf("%s has not ended", r.Name)
				}
			}
			for _, p := range unknownProblems(w) {
				t.Error(p)
			}
		})
	}
}

// forgedExporter has a cluster with one node, which is full and claims a million free devices. The quota there does not
// limit the jobs, and the other cluster, which joins later, has room for all.
func forgedExporter() world.Spec {
	s := world.Spec{Name: "a forged exporter", Seed: 1, Clusters: []world.Cluster{nodes("forged", 1, 8), nodes("honest", 8, 8)},
		Settings: world.Settings{Length: time.Hour}, Jobs: []world.Job{{Name: "full", At: 30 * time.Second, Devices: 8, Duration: 15 * time.Minute}},
		Faults: []world.Fault{{Kind: world.Leaves, Cluster: "honest", At: time.Second, Lasts: time.Minute}, {Kind: world.Lies, Cluster: "forged", Amount: 1_000_000, At: time.Minute, Lasts: 15 * time.Minute}}}
	s.Clusters[0].Quotas = map[string]map[string]int64{"gpu": {h100: 64}}
	for i := range 8 {
		s.Jobs = append(s.Jobs, world.Job{Name: "job" + string(rune('a'+i)), At: 2 * time.Minute, Devices: 8, Duration: 5 * time.Minute})
	}
	return s
}

// TestForgedExporterDrawsOneJob shows that an exporter which claims a million free devices draws no more jobs than its
// node could hold, with the shipped rules and with their closed form.
func TestForgedExporterDrawsOneJob(t *testing.T) {
	rules, err := metrics.LoadRules(filepath.Join("..", "..", "..", "..", "rules"))
	if err != nil {
		t.Fatal(err)
	}
	for name, withRules := range map[string]bool{"rules": true, "closed form": false} {
		t.Run(name, func(t *testing.T) {
			spec := forgedExporter()
			spec.Settings.Rules = withRules
			w := Run(t, spec, Options{Verbose: printLog(), Rules: rules})
			if !strings.Contains(w.Log(), "full is admitted on forged") {
				t.Fatal("no job fills the node of the forged exporter")
			}
			if drawn := strings.Count(w.Log(), "is admitted on forged") - 1; drawn > 1 {
				t.Errorf("the cluster with the forged exporter admits %d of 8 jobs beside the one that fills it", drawn)
			}
			for _, p := range unknownProblems(w) {
				t.Error(p)
			}
		})
	}
}

// TestRulesAndClosedFormTakeTheSameCourse runs worlds with the shipped rules in Prometheus's engine.
func TestRulesAndClosedFormTakeTheSameCourse(t *testing.T) {
	rules, err := metrics.LoadRules(filepath.Join("..", "..", "..", "..", "rules"))
	if err != nil {
		t.Fatal(err)
	}
	spec := world.Random(1)
	spec.Jobs, spec.Faults = spec.Jobs[:12], nil
	closed := Run(t, spec, Options{})
	spec.Settings.Rules = true
	engine := Run(t, spec, Options{Rules: rules})
	want, got := strings.Split(closed.Log(), "\n"), strings.Split(engine.Log(), "\n")
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Fatalf("line %d is\n%s\nwith the rules, and\n%s\nwithout", i, got[i], want[i])
		}
	}
}

// TestReclaims shows that the ReclaimPolicy of a world returns an idle job and moves a busy one.
func TestReclaims(t *testing.T) {
	policy := &v1alpha1.ReclaimPolicySpec{Mode: v1alpha1.ModeEnforce, IdleSeconds: 60, MinRunSeconds: ptr.To[int32](60), MaxPerHour: 20, PeriodSeconds: 10,
		Rebalance: &v1alpha1.Rebalance{Mode: v1alpha1.ModeEnforce}}
	idle := world.Spec{Name: "an idle job returns to its queue", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 1, 8)},
		Jobs: []world.Job{{Name: "idle", At: time.Minute, Devices: 8, Reclaimable: true, Idle: true, Duration: 30 * time.Minute}, {Name: "other", At: 2 * time.Minute, Devices: 8, Duration: time.Minute}}}
	moves := world.Spec{Name: "a busy job moves", Seed: 1, Clusters: []world.Cluster{nodes("cluster1", 1, 8), nodes("cluster2", 1, 6)},
		Jobs: []world.Job{{Name: "first", At: 30 * time.Second, Devices: 6, Duration: 150 * time.Second, Reclaimable: true}, {Name: "small", At: time.Minute, Devices: 2, Reclaimable: true, Duration: 30 * time.Minute},
			{Name: "second", At: 50 * time.Second, Devices: 6, Duration: 4 * time.Minute}, {Name: "large", At: 3 * time.Minute, Devices: 8, Priority: 10, Duration: time.Minute}}}
	for _, tc := range []struct {
		spec world.Spec
		want string
	}{{idle, "the policy returns idle to its queue: its 8 devices on cluster1 have been idle"}, {moves, "to its queue: team-a/job-large waits for devices on cluster1"}} {
		t.Run(tc.spec.Name, func(t *testing.T) {
			tc.spec.Settings.Reclaim, tc.spec.Settings.Gate.Hold.AfterSeconds = policy, 60
			w := Run(t, tc.spec, Options{Verbose: printLog()})
			if !strings.Contains(w.Log(), tc.want) {
				t.Errorf("the log does not have %q", tc.want)
			}
			for _, p := range w.Problems {
				t.Error(p)
			}
		})
	}
}
