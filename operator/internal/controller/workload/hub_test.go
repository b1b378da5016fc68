package workload

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/registry"
	"plimsoll.dev/plimsoll/operator/internal/waitqueue"
)

// holder of quota since then: a workload of the bench's shape under the gate's check.
func (b *bench) holder(since time.Time) *kueue.Workload {
	two := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: b.facts.Namespace, Name: b.facts.Name, UID: types.UID(b.facts.UID)}}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: two, Requests: two}}}}}}}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpu"}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(since)}}
	return wl
}

// dispatched by the operator as the annotation says.
func dispatched(wl *kueue.Workload, d dispatch.Record) *kueue.Workload {
	wl.Annotations = map[string]string{v1alpha1.DispatchAnnotation: d.Encode()}
	return wl
}

// nominating puts MultiKueue's check beside the gate's, which is Ready.
func nominating(wl *kueue.Workload, clusters ...string) *kueue.Workload {
	wl.Status.AdmissionChecks[0].State, wl.Status.NominatedClusterNames = kueue.CheckStateReady, clusters
	wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: "multikueue", State: kueue.CheckStatePending})
	return wl
}

// applied is an apply that tells what it made, as the apiserver's does.
func applied(ctx context.Context, c client.Client, subresource string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	if err := c.SubResource(subresource).Apply(ctx, obj, opts...); err != nil {
		return err
	}
	u, made := obj.(client.Object), &kueue.Workload{}
	err := c.Get(ctx, client.ObjectKeyFromObject(u), made)
	u.SetResourceVersion(made.ResourceVersion)
	return err
}

// operator of the bench's gate, on a hub with a workload.
func (b *bench) operator(t *testing.T, wl *kueue.Workload) (*Reconciler, *subject) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kueue.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	check := func(name, controller, group, kind string) *kueue.AdmissionCheck {
		return &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{ControllerName: controller,
			Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: group, Kind: kind, Name: "gpu"}}}
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(wl).WithObjects(wl.DeepCopy(),
		check("plimsoll", v1alpha1.ControllerName, v1alpha1.GroupVersion.Group, "PlacementGate"),
		check("multikueue", kueue.MultiKueueControllerName, kueue.SchemeGroupVersion.Group, "MultiKueueConfig")).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceApply: applied}).Build()
	board := registry.New()
	board.Put(b.gate)
	r := &Reconciler{client: hub, live: hub, recorder: &events.FakeRecorder{}, board: board, ledger: b.Ledger, nominate: true, now: b.clock.now,
		ask: b.asker, waiting: waitqueue.New(board, b.clock.now), tracks: newTracks(), metrics: newMetrics(nil, b.Ledger, board, b.clock.now)}
	live := &kueue.Workload{}
	if err := hub.Get(t.Context(), client.ObjectKeyFromObject(wl), live); err != nil {
		t.Fatal(err)
	}
	s, err := r.gather(t.Context(), live)
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}
