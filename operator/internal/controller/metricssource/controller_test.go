package metricssource

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

// The liveness probe restarts the operator if a reconciliation lasts 5 minutes. A check must end before,
// whatever it waits for, and report in the status that the source did not respond.
func TestCheckEndsBeforeTheLivenessProbeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, clusterv1.Install} {
			if err := add(scheme); err != nil {
				t.Fatal(err)
			}
		}
		src := &v1alpha1.MetricsSource{ObjectMeta: metav1.ObjectMeta{Name: "thanos"}, Spec: v1alpha1.MetricsSourceSpec{
			Type: v1alpha1.SourceThanos, URLTemplate: "https://{cluster}.example.com",
		}}
		src.Spec.Advanced.TimeoutSeconds = 300
		blocked := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*clusterv1.ManagedClusterList); ok {
				<-ctx.Done()
				return ctx.Err()
			}
			return c.List(ctx, list, opts...)
		}}
		hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(src).WithStatusSubresource(src).WithInterceptorFuncs(blocked).Build()
		r := &Reconciler{Options: Options{Sources: &query.Sources{}}, client: hub, recorder: events.NewFakeRecorder(10), clients: map[string]*cachedClient{}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: "thanos"}})
		if took := time.Since(start); took != timing.MaxRound || err != nil || result.RequeueAfter != failedPeriod {
			t.Errorf("after %v: %+v, %v; want the next check %v after a check of %v", took, result, err, failedPeriod, timing.MaxRound)
		}
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(src), src); err != nil {
			t.Fatal(err)
		}
		if !meta.IsStatusConditionFalse(src.Status.Conditions, v1alpha1.ConditionReachable) {
			t.Errorf("conditions %+v", src.Status.Conditions)
		}
	})
}
