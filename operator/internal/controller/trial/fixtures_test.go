package trial

import (
	"context"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/policies/trial"
)

var (
	noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	key  = types.NamespacedName{Namespace: "team-a", Name: "job-train"}
)

// hub is a hub with the opted-in Job train, whose Workload got quota at noon, and a TrialPolicy with
// the models l4 and h100.
type hub struct {
	client.Client
	t       *testing.T
	r       *Reconciler
	sources *query.Sources
	now     time.Time
	// failing is the error of every query; nil = none.
	failing error
	// silent sources have no samples.
	silent bool
	// limit is the time that the last query had.
	limit time.Duration
	// refuse returns the error of a request; nil = none fails.
	refuse func(verb string, obj client.Object) error
}

func newHub(t *testing.T) *hub {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, clusterv1.Install, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	h := &hub{t: t, now: noon.Add(time.Second), sources: &query.Sources{}}
	model := func(name string) v1alpha1.TrialModel {
		return v1alpha1.TrialModel{Name: name, NodeSelector: map[string]string{"model": name}}
	}
	h.Client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&kueue.Workload{}, &batchv1.Job{}, &v1alpha1.JobProfile{}, &v1alpha1.TrialPolicy{}).
		WithInterceptorFuncs(h.requests()).WithObjects(
		&v1alpha1.TrialPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.TrialPolicySpec{SourceRef: v1alpha1.LocalReference{Name: "thanos"},
			QueueName: "trials", PriorityClassName: "trial", Models: []v1alpha1.TrialModel{model("l4"), model("h100")}, RunSeconds: 120, WaitSeconds: 600, MaxCopiesPerDay: 3}},
		&kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "trial"}, Spec: kueue.AdmissionCheckSpec{ControllerName: v1alpha1.TrialControllerName,
			Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "TrialPolicy", Name: "gpu"}}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "trials"}},
		&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}},
		trainJob(),
	).Build()
	h.registerSource()
	h.start()
	h.addWorkload(trainWorkload())
	return h
}

// requests gives new objects the UIDs that an API server would, and fails as refuse says.
func (h *hub) requests() interceptor.Funcs {
	refused := func(verb string, obj client.Object) error {
		if h.refuse == nil {
			return nil
		}
		return h.refuse(verb, obj)
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if obj.GetUID() == "" {
				obj.SetUID(types.UID("uid-" + obj.GetName()))
			}
			if err := refused("create", obj); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := refused("delete", obj); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := refused("get", obj); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*batchv1.JobList); ok {
				if err := refused("list", &batchv1.Job{}); err != nil {
					return err
				}
			}
			return c.List(ctx, list, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := refused("patch", obj); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	}
}

// start starts the operator, which remembers nothing.
func (h *hub) start() {
	h.r = &Reconciler{client: trimming{h.Client}, live: h.Client, sources: h.sources, enabled: true, metrics: newMetrics(nil), now: func() time.Time { return h.now }}
}

// createSource creates the MetricsSource, which is registered in any case.
func (h *hub) createSource() *v1alpha1.MetricsSource {
	h.t.Helper()
	source := &v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: "thanos"}}
	if err := h.Create(h.t.Context(), source); err != nil {
		h.t.Fatal(err)
	}
	return source
}

func (h *hub) registerSource() {
	h.sources.Set(query.SourceInfo{Name: "thanos", ClusterLabel: "cluster"}, query.QuerierFunc(func(ctx context.Context, expr string, _ time.Time) (query.Result, error) {
		if deadline, ok := ctx.Deadline(); ok {
			h.limit = time.Until(deadline)
		}
		if h.failing != nil || h.silent {
			return query.Result{}, h.failing
		}
		model := "l4"
		if strings.Contains(expr, trial.CopyName("uid", "h100")) {
			model = "h100"
		}
		value := 0.5
		if strings.Contains(expr, "memory_used_bytes") {
			value = 30e9
		}
		return query.Result{Samples: []query.Sample{{Labels: map[string]string{"cluster": "c1", "model": model}, Value: value}}}, nil
	}))
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

// template of the pods of Job train: 8 devices, opted in.
func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.TrialLabel: "true", v1alpha1.ProfileLabel: "llama"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "train:1", Command: []string{"train"},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}}}}}
}

func trainJob() *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "train", UID: "job"},
		Spec: batchv1.JobSpec{Parallelism: new(int32(4)), Completions: new(int32(4)), Template: template()}}
}

func trainWorkload() *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "job-train", UID: "uid",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job", Controller: new(true)}}}}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 4, Template: template()}}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpu"}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, Reason: "QuotaReserved", LastTransitionTime: metav1.NewTime(noon)}}
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "trial", State: kueue.CheckStatePending}}
	return wl
}

func (h *hub) addWorkload(wl *kueue.Workload) {
	h.t.Helper()
	status := wl.Status
	if err := h.Create(h.t.Context(), wl); err != nil {
		h.t.Fatal(err)
	}
	wl.Status = status
	if err := h.Status().Update(h.t.Context(), wl); err != nil {
		h.t.Fatal(err)
	}
}

// change changes the Workload and its status.
func (h *hub) change(change func(*kueue.Workload)) {
	h.t.Helper()
	wl := &kueue.Workload{}
	if err := h.Get(h.t.Context(), key, wl); err != nil {
		h.t.Fatal(err)
	}
	change(wl)
	status := wl.Status
	if err := h.Update(h.t.Context(), wl); err != nil {
		h.t.Fatal(err)
	}
	wl.Status = status
	if err := h.Status().Update(h.t.Context(), wl); err != nil {
		h.t.Fatal(err)
	}
}

// settle reconciles until the operator waits for a time of more than a second, or for nothing.
func (h *hub) settle() {
	h.t.Helper()
	for range 20 {
		result, err := h.r.Reconcile(h.t.Context(), reconcile.Request{NamespacedName: key})
		if err != nil {
			h.t.Fatal(err)
		}
		if result.RequeueAfter != rereadDelay {
			return
		}
	}
	h.t.Fatal("the operator does not settle")
}

// after moves the clock and settles.
func (h *hub) after(d time.Duration) {
	h.t.Helper()
	h.now = h.now.Add(d)
	h.settle()
}

// changeJob changes the Job of the Workload.
func (h *hub) changeJob(change func(*batchv1.Job)) {
	h.t.Helper()
	job := &batchv1.Job{}
	if err := h.Get(h.t.Context(), client.ObjectKey{Namespace: "team-a", Name: "train"}, job); err != nil {
		h.t.Fatal(err)
	}
	change(job)
	if err := h.Update(h.t.Context(), job); err != nil {
		h.t.Fatal(err)
	}
}

// queue creates the Workloads of all copies, as Kueue does, with a status.
func (h *hub) queue(status kueue.WorkloadStatus) {
	h.t.Helper()
	for _, job := range h.copies() {
		h.addWorkload(&kueue.Workload{Status: *status.DeepCopy(), ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "copy-" + job.Name, Labels: map[string]string{jobUIDLabel: string(job.UID)}}})
	}
}

// run simulates the run of all copies on c1: from now on for a time.
func (h *hub) run(d time.Duration) {
	h.t.Helper()
	h.queue(kueue.WorkloadStatus{ClusterName: new("c1"), Conditions: []metav1.Condition{
		{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Admitted", LastTransitionTime: metav1.NewTime(h.now)},
		{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: "Failed", LastTransitionTime: metav1.NewTime(h.now.Add(d))},
	}})
	h.now = h.now.Add(d)
}

func (h *hub) copies() []batchv1.Job {
	h.t.Helper()
	list := &batchv1.JobList{}
	if err := h.List(h.t.Context(), list, client.HasLabels{v1alpha1.TrialOfLabel}); err != nil {
		h.t.Fatal(err)
	}
	return list.Items
}

func (h *hub) check() kueue.AdmissionCheckState {
	h.t.Helper()
	wl := &kueue.Workload{}
	if err := h.Get(h.t.Context(), key, wl); err != nil {
		h.t.Fatal(err)
	}
	return wl.Status.AdmissionChecks[0]
}

func (h *hub) policy() *v1alpha1.TrialPolicy {
	h.t.Helper()
	p := &v1alpha1.TrialPolicy{}
	if err := h.Get(h.t.Context(), client.ObjectKey{Name: "gpu"}, p); err != nil {
		h.t.Fatal(err)
	}
	return p
}

// wantPassed fails unless the check is Ready with a message, and nothing of the trial is left.
func (h *hub) wantPassed(message string) {
	h.t.Helper()
	if c := h.check(); c.State != kueue.CheckStateReady || !strings.Contains(c.Message, message) {
		h.t.Errorf("check %s: %q, want Ready: %q", c.State, c.Message, message)
	}
	if copies := h.copies(); len(copies) > 0 {
		h.t.Errorf("%d copies are left", len(copies))
	}
	if trials := h.policy().Status.Trials; len(trials) > 0 {
		h.t.Errorf("the status has trials: %+v", trials)
	}
}
