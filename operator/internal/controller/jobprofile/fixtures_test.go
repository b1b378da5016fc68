package jobprofile

import (
	"context"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// ruleName matches the recording rule that a query reads.
var ruleName = regexp.MustCompile(`owner_model:[a-z_]+:[a-z0-9]+`)

// hub is a hub with the gate gpu and a source whose responses the test sets by rule.
type hub struct {
	client.Client
	t   *testing.T
	r   *Reconciler
	now time.Time
	// values by rule and model. Rules without values have no samples.
	values map[string]map[string]float64
	// failing is the error of every query; nil = none. partial makes responses partial.
	failing error
	partial bool
	// queries are the expressions that were sent, and times when they were evaluated.
	queries []string
	times   []time.Time
}

func newHub(t *testing.T, profiles *v1alpha1.GateProfiles) *hub {
	t.Helper()
	return newHubWith(t, profiles, interceptor.Funcs{})
}

// newHubWith is newHub with functions that intercept the calls of the client.
func newHubWith(t *testing.T, profiles *v1alpha1.GateProfiles, calls interceptor.Funcs) *hub {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, clusterv1.Install, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	gate := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.PlacementGateSpec{
		SourceRef: v1alpha1.LocalReference{Name: "thanos"}, Profiles: profiles}}
	h := &hub{t: t, now: noon.Add(time.Minute), values: map[string]map[string]float64{
		"owner_model:plimsoll_memory_used_bytes:max": {"h100": 40e9},
		"owner_model:plimsoll_utilization:avg":       {"h100": 0.9},
		"owner_model:plimsoll_tensor_active:avg":     {"h100": 0.5},
		"owner_model:plimsoll_power_watts:sum":       {"h100": 600e3}, // added up over the run
	}}
	h.Client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.JobProfile{}, &kueue.Workload{}).WithInterceptorFuncs(calls).WithObjects(
		gate, check("plimsoll", v1alpha1.ControllerName, v1alpha1.GroupVersion.Group, "PlacementGate"),
		check("multikueue", kueue.MultiKueueControllerName, kueue.SchemeGroupVersion.Group, "MultiKueueConfig"),
		managedCluster("c1"), managedCluster("c2"),
	).Build()
	sources := &query.Sources{}
	sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "site", Match: "Label", Key: "site"}, query.QuerierFunc(h.query))
	h.r = &Reconciler{client: trimming{h.Client}, live: h.Client, sources: sources, metrics: newMetrics(nil), now: func() time.Time { return h.now }}
	return h
}

// trimming is the operator's cache, which has no commands.
type trimming struct{ client.Client }

func (c trimming) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, obj, opts...)
	if wl, ok := obj.(*kueue.Workload); ok {
		kueuestate.Trim(wl)
	}
	return err
}

// managedCluster is a member of the hub whose series have the label site.
func managedCluster(name string) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"site": "site-" + name}}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
}

func check(name, controller, group, kind string) *kueue.AdmissionCheck {
	return &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{ControllerName: controller,
		Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: group, Kind: kind, Name: "gpu"}}}
}

// query responds with the values of the rule in the expression.
func (h *hub) query(_ context.Context, expr string, at time.Time) (query.Result, error) {
	h.queries, h.times = append(h.queries, expr), append(h.times, at)
	if h.failing != nil {
		return query.Result{}, h.failing
	}
	result := query.Result{Partial: h.partial}
	for model, value := range h.values[ruleName.FindString(expr)] {
		result.Samples = append(result.Samples, query.Sample{Labels: map[string]string{"site": "site-c1", "model": model}, Value: value})
	}
	return result, nil
}

// finished is a workload of Job train that ran on c1 for ten minutes, until noon.
func finished(name string, change ...func(*kueue.Workload)) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID("uid-" + name), OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job", Controller: new(true)}}}}
	wl.Labels = map[string]string{v1alpha1.ProfileLabel: "llama"}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "train:1", Command: []string{"train"}, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}},
	}}}}}}
	wl.Status.ClusterName = new("c1")
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStateReady}, {Name: "multikueue", State: kueue.CheckStateReady}, {Name: "deleted", State: kueue.CheckStateReady}}
	wl.Status.Conditions = []metav1.Condition{
		{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Admitted", LastTransitionTime: metav1.NewTime(noon.Add(-10 * time.Minute))},
		{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: kueue.WorkloadFinishedReasonSucceeded, LastTransitionTime: metav1.NewTime(noon)},
	}
	for _, f := range change {
		f(wl)
	}
	return wl
}

// endsAt moves the end of a run.
func endsAt(at time.Time) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Status.Conditions[1].LastTransitionTime = metav1.NewTime(at) }
}

// withLabel sets the label of the profile.
func withLabel(value string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Labels = map[string]string{v1alpha1.ProfileLabel: value} }
}

// add creates a workload and reconciles it.
func (h *hub) add(wl *kueue.Workload) reconcile.Result {
	h.t.Helper()
	status := wl.Status
	if err := h.Create(h.t.Context(), wl); err != nil {
		h.t.Fatal(err)
	}
	wl.Status = status
	if err := h.Status().Update(h.t.Context(), wl); err != nil {
		h.t.Fatal(err)
	}
	return h.reconcile(wl)
}

func (h *hub) reconcile(wl *kueue.Workload) reconcile.Result {
	h.t.Helper()
	result, err := h.r.Reconcile(h.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(wl)})
	if err != nil {
		h.t.Fatal(err)
	}
	return result
}

// profiles returns the JobProfiles of a namespace by name.
func (h *hub) profiles(namespace string) map[string]v1alpha1.JobProfileStatus {
	h.t.Helper()
	list := &v1alpha1.JobProfileList{}
	if err := h.List(h.t.Context(), list, client.InNamespace(namespace)); err != nil {
		h.t.Fatal(err)
	}
	byName := map[string]v1alpha1.JobProfileStatus{}
	for _, p := range list.Items {
		byName[p.Name] = p.Status
	}
	return byName
}
