package reclaimpolicy

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// hub is a hub with the policy idle-gpus of the ClusterQueue research, for which the workload waits has
// waited for an hour, and the cluster c1. The source reports c1 as fresh and the devices of idle, which the test sets.
type hub struct {
	client.Client
	t        *testing.T
	r        *Reconciler
	now      time.Time
	recorder *events.FakeRecorder
	// idle are the seconds for which the devices of each job have been idle. age is that of c1's
	// samples; NaN = no sample. change is what the source does to the samples of devices; nil = nothing.
	idle   map[string][]float64
	age    float64
	change func([]query.Sample) []query.Sample
	// failing is the error of every query; nil = none. partial makes responses partial.
	failing error
	partial bool
	// devicesPartial makes the response about free devices partial.
	devicesPartial bool
	// queries are the expressions that were sent.
	queries []string
}

func newHub(t *testing.T, spec func(*v1alpha1.ReclaimPolicySpec), objects ...client.Object) *hub {
	t.Helper()
	return newHubWith(t, interceptor.Funcs{}, spec, objects...)
}

// newHubWith is newHub with functions that intercept the calls of the client.
func newHubWith(t *testing.T, calls interceptor.Funcs, spec func(*v1alpha1.ReclaimPolicySpec), objects ...client.Object) *hub {
	t.Helper()
	policy := &v1alpha1.ReclaimPolicy{ObjectMeta: metav1.ObjectMeta{Name: "idle-gpus", Generation: 1}, Spec: v1alpha1.ReclaimPolicySpec{
		SourceRef: v1alpha1.LocalReference{Name: "thanos"}, ClusterQueues: []string{"research"}, Mode: v1alpha1.ModeEnforce}}
	if spec != nil {
		spec(&policy.Spec)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, clusterv1.Install, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	h := &hub{t: t, now: noon, recorder: events.NewFakeRecorder(100), idle: map[string][]float64{}, age: 10}
	objects = append(objects, policy, clusterQueue("research", ""), localQueue("research"), waiting("waits"), managedCluster("c1"),
		check("plimsoll", v1alpha1.ControllerName, v1alpha1.GroupVersion.Group, "PlacementGate"),
		check("multikueue", kueue.MultiKueueControllerName, kueue.SchemeGroupVersion.Group, "MultiKueueConfig"),
		&kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"c1"}}},
		multiKueueCluster("c1", metav1.ConditionTrue))
	h.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(policy).WithInterceptorFuncs(calls).Build()
	sources := &query.Sources{}
	sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "site", Match: "Name"}, query.QuerierFunc(h.query))
	h.r = &Reconciler{client: h.Client, recorder: h.recorder, sources: sources, nominates: true, metrics: newMetrics(nil), now: func() time.Time { return h.now }}
	return h
}

func managedCluster(name string) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	apimeta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue, Reason: "Test"})
	return c
}

func multiKueueCluster(name string, active metav1.ConditionStatus) *kueue.MultiKueueCluster {
	c := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	apimeta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: kueue.MultiKueueClusterActive, Status: active, Reason: "Test", Message: "connection refused"})
	return c
}

func check(name, controller, group, kind string) *kueue.AdmissionCheck {
	return &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{ControllerName: controller,
		Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: group, Kind: kind, Name: "gpu"}}}
}

func clusterQueue(name, cohort string) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{CohortName: kueue.CohortReference(cohort)}}
}

// localQueue is the LocalQueue of a ClusterQueue, with its name.
func localQueue(name string) *kueue.LocalQueue {
	return &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)}}
}

// waiting is a workload of a Job with this name that has waited for quota for an hour.
func waiting(name string, change ...func(*kueue.Workload)) *kueue.Workload {
	return running(name, append([]func(*kueue.Workload){func(wl *kueue.Workload) {
		wl.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
		wl.Status = kueue.WorkloadStatus{}
	}}, change...)...)
}

// running is a workload of a Job with this name that agreed to be reclaimed. It has run on c1 with 2
// GPUs for three hours.
func running(name string, change ...func(*kueue.Workload)) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "job-" + name, UID: types.UID("uid-" + name), OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: "job", Controller: new(true)}}}}
	set := kueue.PodSet{Name: "main", Count: 1}
	set.Template.Labels = map[string]string{v1alpha1.ReclaimableLabel: "true"}
	set.Template.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}}
	wl.Spec.PodSets, wl.Spec.QueueName = []kueue.PodSet{set}, "research"
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "research"}
	wl.Status.ClusterName = new("c1")
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStateReady}, {Name: "multikueue", State: kueue.CheckStateReady}}
	for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.NewTime(noon.Add(-3 * time.Hour))})
	}
	for _, f := range change {
		f(wl)
	}
	return wl
}

// query responds like the source with the default queries.
func (h *hub) query(_ context.Context, expr string, _ time.Time) (query.Result, error) {
	h.queries = append(h.queries, expr)
	if h.failing != nil {
		return query.Result{}, h.failing
	}
	result := query.Result{Partial: h.partial}
	switch {
	case strings.Contains(expr, "plimsoll_free_devices"):
		result.Partial = result.Partial || h.devicesPartial
		result.Samples = []query.Sample{{Labels: map[string]string{"site": "c1", "node": "n1", "model": "H100", "resource": "nvidia.com/gpu"}, Value: 6}}
	case strings.Contains(expr, "plimsoll_allocation"):
		result.Samples = []query.Sample{{Value: 2, Labels: map[string]string{
			"site": "c1", "node": "n1", "model": "H100", "namespace": "team-a", "owner_kind": "Job", "owner_name": "small"}}}
	case strings.Contains(expr, "device_sample_timestamp"):
		if !math.IsNaN(h.age) {
			result.Samples = []query.Sample{{Labels: map[string]string{"site": "c1"}, Value: h.age}}
		}
	case strings.Contains(expr, "idle_since"):
		for name, devices := range h.idle {
			for i, seconds := range devices {
				result.Samples = append(result.Samples, query.Sample{Value: seconds, Labels: map[string]string{
					"site": "c1", "namespace": "team-a", "owner_kind": "Job", "owner_name": name, "node": "n1", "uuid": fmt.Sprint(name, i)}})
			}
		}
		if h.change != nil {
			result.Samples = h.change(result.Samples)
		}
	}
	return result, nil
}

// round runs a round, a minute after the last one, and returns the policy.
func (h *hub) round() *v1alpha1.ReclaimPolicy {
	h.t.Helper()
	h.now = h.now.Add(time.Minute)
	if _, err := h.r.Reconcile(h.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "idle-gpus"}}); err != nil {
		h.t.Fatal(err)
	}
	return h.policy()
}

func (h *hub) policy() *v1alpha1.ReclaimPolicy {
	h.t.Helper()
	policy := &v1alpha1.ReclaimPolicy{}
	if err := h.Get(h.t.Context(), client.ObjectKey{Name: "idle-gpus"}, policy); err != nil {
		h.t.Fatal(err)
	}
	return policy
}

// isActive returns whether a job's workload is active, and its record.
func (h *hub) isActive(job string) (bool, dispatch.Record) {
	h.t.Helper()
	wl := &kueue.Workload{}
	if err := h.Get(h.t.Context(), client.ObjectKey{Namespace: "team-a", Name: "job-" + job}, wl); err != nil {
		h.t.Fatal(err)
	}
	record, err := dispatch.Decode(wl.Annotations)
	if err != nil {
		h.t.Fatal(err)
	}
	return wl.Spec.Active == nil || *wl.Spec.Active, record
}

// requireUntouched fails if a job's workload was written to.
func (h *hub) requireUntouched(jobs ...string) {
	h.t.Helper()
	for _, job := range jobs {
		if active, record := h.isActive(job); !active || record.Reclaimed != nil {
			h.t.Errorf("%s: active %t, record %+v", job, active, record)
		}
	}
}

// events returns the events so far.
func (h *hub) events() []string {
	var all []string
	for {
		select {
		case e := <-h.recorder.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// conditionOf returns a condition as "status reason: message".
func conditionOf(policy *v1alpha1.ReclaimPolicy, kind string) string {
	c := apimeta.FindStatusCondition(policy.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}
