package workload

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle"
	"plimsoll.dev/plimsoll/operator/internal/admission/lifecycle/fixture"
	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
	"plimsoll.dev/plimsoll/operator/internal/admission/waitqueue"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// A workload whose clusters are full must not stop workloads that may also go elsewhere.
func TestRestrictedWorkloadDoesNotStopOthers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
	}{
		{"annotation", permit("cluster1")},
		{"cluster of the job's other components", componentOf("a")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1alpha1.PlacementGateSpec{Hold: v1alpha1.GateHold{Mode: v1alpha1.HoldOff}})
			b.createPlacedComponents()
			b.room(map[string]float64{"cluster1": 0, "cluster2": 0})
			for i, name := range []string{"restricted", "free"} {
				wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon.Add(time.Duration(i-10) * time.Minute)))
				wl.Name, wl.UID = name, types.UID(name)
				if i == 0 {
					tc.change(wl)
				}
				b.create(wl)
				b.reconcile()
			}
			b.room(onlyCluster2)
			b.wakeUp()
			b.key.Name = "free"
			if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, []string{"cluster2"}) {
				t.Errorf("nominated %v, want cluster2; check %q", got, b.check().Message)
			}
		})
	}
}

// While a workload waits for its last copy, workloads of the same shape are decided.
func TestWaitForACopyDoesNotStopOthers(t *testing.T) {
	b := newBench(t, v1alpha1.PlacementGateSpec{})
	b.room(map[string]float64{"cluster1": 0, "cluster2": 0})
	b.create(fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon)))
	b.reconcile()
	other := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon.Add(time.Second)))
	other.Name, other.UID = "other", "other"
	b.create(other)
	b.reconcile()
	b.key.Name = "job"
	b.disconnect("cluster1")
	b.withLostQuota(false, "", fixture.Noon)
	b.reconcile() // the quota is reserved again
	b.room(onlyCluster2)
	b.wakeUp()
	b.key.Name = "job"
	if got := b.check().Message; !strings.Contains(got, "its last copy on cluster1") {
		t.Fatalf("check %q, want a wait for the last copy", got)
	}
	b.key.Name = "other"
	if got := b.workload().Status.NominatedClusterNames; !slices.Equal(got, []string{"cluster2"}) {
		t.Errorf("nominated %v, want cluster2; check %q", got, b.check().Message)
	}
}

// lineVariant is a change of the workload. Those that are alike never decide where it goes.
type lineVariant struct {
	name    string
	change  func(*kueue.Workload)
	isAlike bool
}

func lineVariants() []lineVariant {
	pod := func(change func(*corev1.PodSpec)) func(*kueue.Workload) {
		return func(wl *kueue.Workload) { change(&wl.Spec.PodSets[0].Template.Spec) }
	}
	runsFor := func(seconds int32) func(*kueue.Workload) {
		return func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = ptr.To(seconds) }
	}
	return []lineVariant{
		{"unchanged", func(*kueue.Workload) {}, true},
		{"other labels", func(wl *kueue.Workload) { wl.Labels = map[string]string{"team": "b"} }, true},
		{"other image", pod(func(s *corev1.PodSpec) { s.Containers[0].Image = "train:2" }), true},
		{"other CPU", pod(func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2") }), false},
		{"cluster1 permitted", permit("cluster1"), false},
		{"cluster2 permitted", permit("cluster2"), false},
		{"no cluster permitted", permit(""), false},
		{"left cluster1", moved("cluster1"), false},
		{"left cluster2", moved("cluster2"), false},
		{"slice of a job with copies on cluster1", sliceOn("cluster1"), false},
		{"slice of a job with copies on cluster2", sliceOn("cluster2"), false},
		{"job on cluster1", componentOf("a"), false},
		{"job on cluster2", componentOf("b"), false},
		{"job on cluster2 that was placed with this component", func(wl *kueue.Workload) { componentOf("b")(wl); wl.UID = "counted" }, false},
		{"other MultiKueueConfig", func(wl *kueue.Workload) {
			if len(wl.Status.AdmissionChecks) > 1 {
				wl.Status.AdmissionChecks[1].Name = "multikueue-east"
			}
		}, false},
		{"two pods", func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 2 }, false},
		{"one device per pod", pod(func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Limits["nvidia.com/gpu"] = resource.MustParse("1")
		}), false},
		{"Secret", pod(func(s *corev1.PodSpec) {
			s.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "token"}}}}
		}), false},
		{"zone", pod(func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"zone": "b"} }), false},
		{"pods of cluster2 without devices", func(wl *kueue.Workload) {
			launcher := kueue.PodSet{Name: "launcher", Count: 1}
			launcher.Template.Spec.NodeSelector = map[string]string{"example.com/cluster": "cluster2"}
			wl.Spec.PodSets = append(wl.Spec.PodSets, launcher)
		}, false},
		{"queue with preemption", func(wl *kueue.Workload) { wl.Status.Admission.ClusterQueue = "urgent" }, false},
		{"the gate decides first, queue with preemption", func(wl *kueue.Workload) {
			wl.Status.Admission.ClusterQueue, wl.Annotations = "urgent", map[string]string{v1alpha1.GateFirst: "true"}
		}, false},
		{"urgent", urgent, false},
		{"urgent, queue with preemption", func(wl *kueue.Workload) { urgent(wl); wl.Status.Admission.ClusterQueue = "urgent" }, false},
		{"aged, queue with preemption", func(wl *kueue.Workload) { age(wl); wl.Status.Admission.ClusterQueue = "urgent" }, false},
		{"aged", age, false},
		{"runs for 10 minutes", runsFor(600), false},
		{"runs for an hour", runsFor(3600), false},
	}
}

// moved is a workload that left a cluster for another one a minute ago.
func moved(from string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		record := dispatch.Record{}.Reclaim("rebalance", "test", 0, fixture.Noon.Add(-time.Minute)).Woken().Avoid(from, fixture.Noon.Add(timing.MoveAvoidance), "was left for team-a/big")
		wl.Annotations = map[string]string{v1alpha1.DispatchAnnotation: record.Encode()}
	}
}

// sliceOn is a slice of an elastic job, evicted after it was sent to a cluster where its copy may be.
func sliceOn(cluster string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		record := dispatch.Record{}.Begin([]string{cluster}, fixture.Noon.Add(-time.Hour), "test", fixture.Noon.Add(-time.Hour))
		wl.Annotations = map[string]string{v1alpha1.DispatchAnnotation: record.Encode(), "kueue.x-k8s.io/elastic-job": "true",
			"kueue.x-k8s.io/workload-slice-replacement-for": wl.Namespace + "/slice-1"}
	}
}

func permit(clusters string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Annotations = map[string]string{kueuestate.ClusterNamesAnnotation: clusters}
	}
}

func urgent(wl *kueue.Workload) { wl.Spec.Priority = ptr.To[int32](1000) }

// age makes a workload wait for longer than hold.agingSeconds.
func age(wl *kueue.Workload) {
	wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(fixture.Noon.Add(-5 * time.Hour))
}

// componentOf makes a workload the second component of a job.
func componentOf(job types.UID) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Annotations = map[string]string{kueuestate.ComponentAnnotation: "1", "kueue.x-k8s.io/job-owner-gvk": "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet"}
		wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "leaderworkerset.x-k8s.io/v1", Kind: "LeaderWorkerSet", Name: string(job), UID: job}}
	}
}

// createPlacedComponents stores the first components of job a, on cluster1, and of job b, on cluster2.
// Devices that no other workload requests are reserved on cluster2 for the component with the UID counted.
func (b *bench) createPlacedComponents() {
	b.t.Helper()
	for job, cluster := range map[types.UID]string{"a": "cluster1", "b": "cluster2"} {
		wl := fixture.WithMultiKueue(fixture.PendingWorkload(fixture.Noon))
		componentOf(job)(wl)
		wl.Name, wl.UID, wl.Annotations[kueuestate.ComponentAnnotation] = "placed-"+string(job), "placed-"+job, "0"
		wl.Status.ClusterName = &cluster
		b.create(wl)
	}
	b.engine.Ledger.Debit(ledger.Entry{UID: "counted", Cluster: "cluster2", DecidedBy: "placed-b", DebitedAt: fixture.Noon,
		PodSets: []shape.PodSet{{Resource: "amd.com/gpu", DevicesPerPod: 1, Pods: 1}}})
}

// lineSituation is a state of the fleet. Clusters have room for one pod of any shape.
type lineSituation struct {
	name string
	spec v1alpha1.PlacementGateSpec
	room map[string]float64
	// isLocal: MultiKueue does not copy the workload.
	isLocal bool
	prepare func(*bench)
	// secretOn is the only cluster with the Secret; zoneOn that with nodes in zone b; cpuOn that with two CPU
	// on a node; emptyOn that whose nodes would have room if they were empty, if set; quota is the quota of the
	// worker queues.
	secretOn, zoneOn, cpuOn, emptyOn string
	quota                            *float64
}

func lineSituations() []lineSituation {
	none := func(*bench) {}
	one := []shape.PodSet{{Resource: "nvidia.com/gpu", DevicesPerPod: 2, Pods: 1}}
	heldFor := func(d time.Duration) func(*bench) {
		return func(b *bench) {
			hold := &ledger.Hold{Gate: "gpu", UID: "big", Workload: "team-a/big", Cluster: "cluster2", PodSets: one,
				Rank: ledger.Rank{Since: fixture.Noon.Add(-time.Hour), Name: "team-a/big"}, Since: fixture.Noon, StartsBy: fixture.Noon.Add(d)}
			if !b.engine.Ledger.Commit(b.engine.Ledger.View(), hold.UID, nil, nil, hold) {
				b.t.Fatal("the ledger has changed")
			}
		}
	}
	running := func(priority int32) func(*bench) {
		return func(b *bench) {
			b.engine.Ledger.PutRunning(ledger.Running{UID: "victim", Cluster: "cluster2", Queue: ledger.Queue{Cluster: "urgent"}, Priority: priority, PodSets: one, Since: fixture.Noon.Add(-time.Hour)})
		}
	}
	oneOn := func(cluster string) map[string]float64 {
		return map[string]float64{"cluster1": 0, "cluster2": 0, cluster: 1}
	}
	secrets := v1alpha1.PlacementGateSpec{Prerequisites: []v1alpha1.GatePrerequisite{{Kind: v1alpha1.PrerequisiteSecret}}}
	zones := v1alpha1.PlacementGateSpec{Queries: v1alpha1.GateQueries{Fit: `floor(my_fit{zone="$node_selector_zone"})`}}
	pinned := v1alpha1.PlacementGateSpec{PodSetUpdates: &v1alpha1.GatePodSetUpdates{NodeSelector: map[string]string{"example.com/cluster": "{cluster}"}}}
	return []lineSituation{
		{name: "room on cluster1", room: oneOn("cluster1"), prepare: none},
		{name: "room on cluster2", room: oneOn("cluster2"), prepare: none},
		{name: "cluster2 is held for half an hour", room: oneOn("cluster2"), prepare: heldFor(30 * time.Minute)},
		{name: "cluster2 is held for two hours", room: oneOn("cluster2"), prepare: heldFor(2 * time.Hour)},
		{name: "preemption on cluster2", room: oneOn(""), prepare: running(5), quota: ptr.To(0.0), emptyOn: "cluster2"},
		{name: "preemption of a lower priority than the default on cluster2", room: oneOn(""), prepare: running(-5), quota: ptr.To(0.0), emptyOn: "cluster2"},
		{name: "Secret on cluster1", spec: secrets, room: oneOn("cluster2"), prepare: none, secretOn: "cluster1"},
		{name: "zone on cluster1", spec: zones, room: oneOn("cluster2"), prepare: none, zoneOn: "cluster1"},
		{name: "two CPU on cluster1", room: oneOn("cluster2"), prepare: none, cpuOn: "cluster1"},
		{name: "pinned pods, room on cluster1", spec: pinned, isLocal: true, room: oneOn("cluster1"), prepare: none},
		{name: "quota for one device", room: oneOn("cluster2"), prepare: none, quota: ptr.To(1.0)},
	}
}

// lineDecision is the entry of a workload in the wait queue, and the clusters that it fits on.
type lineDecision struct {
	entry waitqueue.Entry
	fits  []string
}

func (d lineDecision) isInLineOf(other lineDecision) bool {
	a, b := d.entry, other.entry
	return a.Key == b.Key && a.Limits == b.Limits && a.Parked == b.Parked
}

func decideInSituation(t *testing.T, s lineSituation, change func(*kueue.Workload)) lineDecision {
	t.Helper()
	b := newBench(t, s.spec)
	b.room(s.room)
	b.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, situationSource{b.source, s})
	b.createPlacedComponents()
	queue := clusterQueue("urgent", "")
	queue.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	east := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "east"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"cluster1"}}}
	check := admissionCheck("multikueue-east", kueue.MultiKueueControllerName, kueue.SchemeGroupVersion.Group, "MultiKueueConfig")
	check.Spec.Parameters.Name = east.Name
	for _, create := range []func() error{
		func() error { return b.hub.Create(t.Context(), &queue) },
		func() error { return b.hub.Create(t.Context(), east) },
		func() error { return b.hub.Create(t.Context(), check) },
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
	s.prepare(b)
	wl := fixture.PendingWorkload(fixture.Noon.Add(-time.Minute))
	if !s.isLocal {
		wl = fixture.WithMultiKueue(wl)
	}
	change(wl)
	b.create(wl)
	o := b.look()
	d, _, _ := lifecycle.Decide(o)
	decided := lineDecision{entry: o.WaitEntry(o.Room.Key)}
	if d.State == gate.Ready {
		decided.fits = slices.Sorted(slices.Values(d.Order))
	}
	return decided
}

// situationSource adds Secrets, zones and quota to a fakeSource.
type situationSource struct {
	*fakeSource
	situation lineSituation
}

func (s situationSource) Query(ctx context.Context, expr string, at time.Time) (query.Result, error) {
	sample := func(cluster string, value float64) query.Sample {
		return query.Sample{Labels: map[string]string{"cluster": cluster, "secret": "token"}, Value: value}
	}
	switch {
	case strings.Contains(expr, "kube_secret_info") && strings.Contains(expr, "count by"):
		return query.Result{Samples: []query.Sample{sample("cluster1", 1), sample("cluster2", 1)}}, nil
	case strings.Contains(expr, "kube_secret_info"):
		return query.Result{Samples: []query.Sample{sample(s.situation.secretOn, 1)}}, nil
	case strings.Contains(expr, `zone="b"`):
		return query.Result{Samples: []query.Sample{sample(s.situation.zoneOn, 1)}}, nil
	case strings.Contains(expr, `{resource="cpu"} / 2`) && s.situation.cpuOn != "":
		return query.Result{Samples: []query.Sample{sample(s.situation.cpuOn, 1)}}, nil
	case strings.Contains(expr, "plimsoll_devices:placeable") && s.situation.emptyOn != "":
		return query.Result{Samples: []query.Sample{sample(s.situation.emptyOn, 1)}}, nil
	case strings.Contains(expr, "kueue_unreserved_quota") && s.situation.quota != nil:
		var result query.Result
		for _, queue := range []string{"gpu", "urgent"} {
			for _, cluster := range []string{"cluster1", "cluster2"} {
				result.Samples = append(result.Samples, query.Sample{Labels: map[string]string{"cluster": cluster, "cluster_queue": queue}, Value: *s.situation.quota})
			}
		}
		return result, nil
	}
	return s.fakeSource.Query(ctx, expr, at)
}
