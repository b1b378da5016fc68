package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// clock is a time that a test sets.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

var start = time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1alpha1.AddToScheme, kueue.AddToScheme, clusterv1.Install, clusterv1beta1.Install, clusterv1alpha1.Install,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// fixture is a server with a client and the events that it emitted.
type fixture struct {
	*testing.T
	clock  *clock
	server *Server
	client client.Client
	events []Event
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, clock: &clock{start}}
	f.server = NewServer(newScheme(t), f.clock.now)
	f.client = f.server.Client("tester")
	f.server.OnChange(func(e Event) { f.events = append(f.events, e) })
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// create creates an object with its status.
func (f *fixture) create(obj client.Object) {
	f.Helper()
	status := obj.DeepCopyObject().(client.Object)
	f.must(f.client.Create(f.Context(), obj))
	status.SetResourceVersion(obj.GetResourceVersion())
	if err := f.client.Status().Update(f.Context(), status); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) workload() *kueue.Workload {
	f.Helper()
	wl := &kueue.Workload{}
	f.must(f.client.Get(f.Context(), client.ObjectKeyFromObject(newWorkload("job")), wl))
	return wl
}

// takeEvents returns the events since the last call, as "Added job".
func (f *fixture) takeEvents() []string {
	var texts []string
	for _, e := range f.events {
		texts = append(texts, string(e.Type)+" "+e.Key.Name)
	}
	f.events = nil
	return texts
}

func newWorkload(name string) *kueue.Workload {
	active := true
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{"app": name}},
		Spec: kueue.WorkloadSpec{QueueName: "gpu", Active: &active, PodSets: []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/job"}}}}}}},
		Status: kueue.WorkloadStatus{
			Conditions: []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved", LastTransitionTime: metav1.NewTime(start)}},
			Admission:  &kueue.Admission{ClusterQueue: "gpu", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main"}}},
			AdmissionChecks: []kueue.AdmissionCheckState{
				{Name: "multikueue", State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(start)},
				{Name: "plimsoll", State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(start)},
			},
		},
	}
}

// workloadApply is an apply configuration for the workload "job".
func workloadApply(t *testing.T, status string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"status": parseJSON(t, status)}}
	u.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	u.SetNamespace("team")
	u.SetName("job")
	return u
}

func parseJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u.Object
}

// ownedBy returns the FieldsV1 of a managedFields entry, empty if there is none.
func ownedBy(obj client.Object, manager string, operation metav1.ManagedFieldsOperationType, subresource string) string {
	for _, m := range obj.GetManagedFields() {
		if m.Manager == manager && m.Operation == operation && m.Subresource == subresource {
			return m.FieldsV1.GetRawString()
		}
	}
	return ""
}

// loop runs scheduled functions in virtual time.
type loop struct {
	clock *clock
	queue []scheduled
	count int
}

type scheduled struct {
	at    time.Time
	order int
	do    func()
}

func (l *loop) schedule(delay time.Duration, do func()) {
	l.count++
	l.queue = append(l.queue, scheduled{l.clock.Add(delay), l.count, do})
}

// run runs what is due until a duration has passed.
func (l *loop) run(duration time.Duration) {
	end := l.clock.Add(duration)
	for {
		slices.SortFunc(l.queue, func(a, b scheduled) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.order, b.order)) })
		if len(l.queue) == 0 || l.queue[0].at.After(end) {
			break
		}
		next := l.queue[0]
		l.queue = l.queue[1:]
		l.clock.Time = next.at
		next.do()
	}
	l.clock.Time = end
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "team", Name: name}
}

var background = context.Background()
