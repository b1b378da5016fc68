package whatif

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// measured is a source in which each of two clusters has room for two pods of 8 devices.
func measured(_ context.Context, expr string, at time.Time) (result query.Result, err error) {
	value := 16.0
	switch {
	case strings.Contains(expr, "kueue"), strings.Contains(expr, "group by"):
		return result, nil
	case strings.Contains(expr, "plimsoll_sample_timestamp"):
		value = float64(at.Unix())
	case strings.Contains(expr, "/ 8"):
		value = 2
	}
	for _, c := range []string{"cluster1", "cluster2"} {
		result.Samples = append(result.Samples, query.Sample{Labels: map[string]string{"cluster": c}, Value: value})
	}
	return result, nil
}

func read[T client.Object](t *testing.T, text string, into T) T {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
	return into
}

// hub has a queue with checks of gate and MultiKueue, and one for another flavor.
func hub(t *testing.T) []client.Object {
	t.Helper()
	active := `status: {conditions: [{type: Active, status: "True", reason: Active, lastTransitionTime: "2026-03-01T11:00:00Z"}]}`
	return []client.Object{
		read(t, `{metadata: {name: gpu}, spec: {admissionChecksStrategy: {admissionChecks: [{name: plimsoll}, {name: multikueue}, {name: budget, onFlavors: [spot]}]},
		  resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 64}]}]}]}}`, &kueue.ClusterQueue{}),
		read(t, `{metadata: {name: gpu, namespace: team-a}, spec: {clusterQueue: gpu}}`, &kueue.LocalQueue{}),
		read(t, `{metadata: {name: h100}, spec: {nodeLabels: {nvidia.com/gpu.product: H100}}}`, &kueue.ResourceFlavor{}),
		read(t, `{metadata: {name: budget}, spec: {controllerName: example.com/budget}}`, &kueue.AdmissionCheck{}),
		read(t, `{metadata: {name: plimsoll}, spec: {controllerName: plimsoll.dev/placement, parameters: {apiGroup: plimsoll.dev, kind: PlacementGate, name: gpu}}}`, &kueue.AdmissionCheck{}),
		read(t, `{metadata: {name: multikueue}, spec: {controllerName: kueue.x-k8s.io/multikueue, parameters: {apiGroup: kueue.x-k8s.io, kind: MultiKueueConfig, name: workers}}}`, &kueue.AdmissionCheck{}),
		read(t, `{metadata: {name: workers}, spec: {clusters: [cluster1, cluster2]}}`, &kueue.MultiKueueConfig{}),
		read(t, `{metadata: {name: cluster1}, `+active+`}`, &kueue.MultiKueueCluster{}),
		read(t, `{metadata: {name: cluster2}, `+active+`}`, &kueue.MultiKueueCluster{}),
	}
}

// workloadWithQuota holds quota since a minute of the hour before noon.
func workloadWithQuota(t *testing.T, name string, minute, pods int) *kueue.Workload {
	t.Helper()
	at := noon.Add(time.Duration(minute-60) * time.Minute).Format(time.RFC3339)
	return read(t, fmt.Sprintf(`
metadata: {name: %[1]s, namespace: team-a, uid: uid-%[1]s, creationTimestamp: "%[2]s"}
spec: {queueName: gpu, podSets: [{name: main, count: %[3]d, template: {spec: {nodeSelector: {nvidia.com/gpu.product: H100}, containers: [{name: c, resources: {requests: {nvidia.com/gpu: 8}}}]}}}]}
status:
  admission: {clusterQueue: gpu, podSetAssignments: [{name: main, flavors: {nvidia.com/gpu: h100}, count: %[3]d}]}
  conditions: [{type: QuotaReserved, status: "True", reason: QuotaReserved, lastTransitionTime: "%[2]s"}]
  admissionChecks: [{name: plimsoll, state: Pending, lastTransitionTime: "%[2]s"}, {name: multikueue, state: Pending, lastTransitionTime: "%[2]s"}]
`, name, at, pods), &kueue.Workload{})
}

// job is one of pods with 8 devices each.
func job(t *testing.T, name string, pods int) *kueue.Workload {
	t.Helper()
	manifest := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {name: %s, labels: {kueue.x-k8s.io/queue-name: gpu}}, spec: {parallelism: %d, template: {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}}]}}}}`, name, pods)
	if err := yaml.Unmarshal([]byte(text), &manifest.Object); err != nil {
		t.Fatal(err)
	}
	wl, err := WorkloadOf(manifest, "team-a")
	if err != nil {
		t.Fatal(err)
	}
	return wl
}

func question(t *testing.T, objects ...client.Object) Question {
	t.Helper()
	g := read(t, `{metadata: {name: gpu}, spec: {placementRef: {namespace: fleet, name: gpu}, sourceRef: {name: thanos}, modelFrom: [nvidia.com/gpu.product]}}`, &v1alpha1.PlacementGate{})
	return Question{Gate: g, Clusters: []gatestate.Cluster{{Name: "cluster1"}, {Name: "cluster2"}}, Hub: append(hub(t), objects...),
		Source: query.SourceInfo{ClusterLabel: "cluster", Match: string(v1alpha1.MatchName)}, Querier: query.QuerierFunc(measured), Now: func() time.Time { return noon }}
}

func newFleet(t *testing.T, objects ...client.Object) *Fleet {
	t.Helper()
	f, err := New(t.Context(), question(t, objects...))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Fleet) want(t *testing.T, wl *kueue.Workload, want Outcome) *Answer {
	t.Helper()
	answer, err := f.Ask(t.Context(), wl)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Outcome != want {
		t.Errorf("%s: got %s (%s), want %s", wl.Name, answer.Outcome, answer.Decision.Message, want)
	}
	return answer
}

// Waiting workloads are decided before a job that ranks behind them, each once, and in their order.
func TestWaitingWorkloadsComeFirst(t *testing.T) {
	first, second, third := workloadWithQuota(t, "first", 10, 2), workloadWithQuota(t, "second", 11, 1), workloadWithQuota(t, "third", 12, 1)
	f := newFleet(t, third, second, first)
	f.want(t, job(t, "new", 1), Later)
	for _, wl := range []*kueue.Workload{third, first, second, first} {
		f.want(t, wl, Now)
	}
	f = newFleet(t, first, second)
	f.want(t, job(t, "new", 1), Now)
	f.want(t, job(t, "new", 1), Later)
}

// sentTo is a workload of one pod that was sent to clusters, and that none has admitted.
func sentTo(t *testing.T, clusters ...string) *kueue.Workload {
	t.Helper()
	sent := workloadWithQuota(t, "sent-to-"+clusters[0], 59, 1)
	sent.Status.NominatedClusterNames = clusters
	sent.Status.AdmissionChecks[0].State = kueue.CheckStateReady
	record := dispatch.Record{}.Begin(clusters, noon.Add(-time.Minute), "there is room", noon.Add(-10*time.Second))
	sent.Annotations = map[string]string{v1alpha1.DispatchAnnotation: record.Encode()}
	return sent
}

// A job that was sent has its own devices.
func TestOwnDevicesAreFree(t *testing.T) {
	sent := sentTo(t, "cluster1", "cluster2")
	sent.Spec.PodSets[0].Count = 2
	sent.Status.Admission.PodSetAssignments[0].Count = new(int32(2))
	f := newFleet(t, sent)
	f.want(t, job(t, "new", 2), Later)
	f.want(t, sent, Now)
}

// A check for another flavor is not assumed.
func TestChecksOfTheAssignedFlavor(t *testing.T) {
	answer := newFleet(t).want(t, job(t, "new", 1), Now)
	if slices.ContainsFunc(answer.Assumed, func(text string) bool { return strings.Contains(text, "budget") }) || answer.Flavors["main"]["nvidia.com/gpu"] != "h100" {
		t.Errorf("got flavors %v, and assumed %q", answer.Flavors, answer.Assumed)
	}
}

// A cluster that is named twice is one candidate.
func TestClusterNamedTwice(t *testing.T) {
	g := read(t, `{metadata: {name: gpu}, spec: {placementRef: {namespace: fleet, name: gpu}, sourceRef: {name: thanos}}}`, &v1alpha1.PlacementGate{})
	f, err := New(t.Context(), Question{Gate: g, Clusters: []gatestate.Cluster{{Name: "cluster1"}, {Name: "cluster1"}},
		Source: query.SourceInfo{ClusterLabel: "cluster", Match: string(v1alpha1.MatchName)}, Querier: query.QuerierFunc(measured), Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	if answer := f.want(t, job(t, "new", 1), Now); len(answer.Clusters) != 1 {
		t.Errorf("got %d candidates, want 1", len(answer.Clusters))
	}
}

// A Workload whose ClusterQueue is gone is answered.
func TestQueueThatIsGone(t *testing.T) {
	wl := workloadWithQuota(t, "old", 10, 1)
	wl.Status.Admission.ClusterQueue = "gone"
	if answer := newFleet(t, wl).want(t, wl, Now); !slices.ContainsFunc(answer.Assumed, func(text string) bool { return strings.Contains(text, "gone, which does not exist") }) {
		t.Errorf("assumed %q", answer.Assumed)
	}
}

// A job that names a class of priority ranks as it does, and one without a class as the default class does.
func TestPriorityOfAJob(t *testing.T) {
	classes := []client.Object{
		read(t, `{metadata: {name: urgent}, value: 100}`, &kueue.WorkloadPriorityClass{}),
		read(t, `{metadata: {name: high}, value: 50}`, &schedulingv1.PriorityClass{}),
		read(t, `{metadata: {name: normal}, value: 7, globalDefault: true}`, &schedulingv1.PriorityClass{}),
	}
	for _, tc := range []struct {
		name, label, podClass string
		want                  int32
		problem               string
	}{
		{"none", "", "", 7, ""},
		{"of its pods", "", "high", 50, ""},
		{"of its label, and of its pods", "urgent", "high", 100, ""},
		{"that does not exist", "gone", "", 0, "job/new: WorkloadPriorityClass gone does not exist on the hub"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			manifest := &unstructured.Unstructured{}
			text := fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {name: new, labels: {kueue.x-k8s.io/queue-name: gpu, kueue.x-k8s.io/priority-class: %q}}, spec: {template: {spec: {priorityClassName: %q, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}}]}}}}`, tc.label, tc.podClass)
			if err := yaml.Unmarshal([]byte(text), &manifest.Object); err != nil {
				t.Fatal(err)
			}
			wl, err := WorkloadOf(manifest, "team-a")
			if err != nil {
				t.Fatal(err)
			}
			answer, err := newFleet(t, classes...).Ask(t.Context(), wl)
			switch {
			case tc.problem != "":
				if err == nil || err.Error() != tc.problem {
					t.Errorf("error %v, want %s", err, tc.problem)
				}
			case err != nil:
				t.Fatal(err)
			case answer.Rank.Priority != tc.want:
				t.Errorf("priority %d, want %d", answer.Rank.Priority, tc.want)
			}
		})
	}
}

// A cluster that the operator holds is kept free for the workload that it is held for.
func TestHeldClusterIsKeptFree(t *testing.T) {
	waits := workloadWithQuota(t, "waits", 10, 2) // fits nowhere as long as each cluster has a job
	for held, want := range map[string]string{"cluster1": "cluster2", "cluster2": "cluster1"} {
		q := question(t, waits.DeepCopy(), sentTo(t, "cluster1"), sentTo(t, "cluster2"))
		q.Held = map[string]string{"team-a/waits": held, "team-a/gone": "cluster1"}
		f, err := New(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if answer := f.want(t, job(t, "new", 1), Now); answer.Decision.Order[0] != want {
			t.Errorf("goes to %s, although %s is held", answer.Decision.Order[0], held)
		}
	}
}

// A queue may have a gate for each flavor. Each gate answers for its own.
func TestGateOfEachFlavor(t *testing.T) {
	objects := slices.DeleteFunc(hub(t), func(o client.Object) bool { return o.GetName() == "gpu" && o.GetNamespace() == "" })
	objects = append(objects,
		read(t, `{metadata: {name: gpu}, spec: {admissionChecksStrategy: {admissionChecks: [{name: plimsoll, onFlavors: [h100]}, {name: other, onFlavors: [a100]}, {name: multikueue}]},
		  resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 64}]}, {name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 64}]}]}]}}`, &kueue.ClusterQueue{}),
		read(t, `{metadata: {name: a100}, spec: {nodeLabels: {nvidia.com/gpu.product: A100}}}`, &kueue.ResourceFlavor{}),
		read(t, `{metadata: {name: other}, spec: {controllerName: plimsoll.dev/placement, parameters: {apiGroup: plimsoll.dev, kind: PlacementGate, name: other}}}`, &kueue.AdmissionCheck{}))
	q := question(t)
	q.Hub = objects
	f, err := New(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if answer := f.want(t, job(t, "new", 1), Now); answer.Flavors["main"]["nvidia.com/gpu"] != "h100" {
		t.Errorf("flavors %v, want that of the gate", answer.Flavors)
	}
	onA100 := job(t, "a100", 1)
	onA100.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.product": "A100"}
	if _, err := f.Ask(t.Context(), onA100); !errors.Is(err, ErrOtherGate) {
		t.Errorf("error %v, want that another gate decides", err)
	}
}
