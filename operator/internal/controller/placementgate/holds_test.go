package placementgate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/ledger"
)

// The status of a gate lists its holds, and no longer lists one that has ended.
func TestStatusListsHolds(t *testing.T) {
	clock := now
	r, hub := newReconciler(t, &clock, interceptor.Funcs{}, healthyHub("c1", "c2")...)
	status := func() []v1alpha1.HeldCluster {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpu"}}); err != nil {
			t.Fatal(err)
		}
		g := newGate()
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
			t.Fatal(err)
		}
		return g.Status.Holds
	}
	for uid, h := range map[string]*ledger.Hold{
		"big":   {Gate: "gpu", Workload: "team-a/big", Cluster: "c1", Since: now.Add(-time.Minute), StartsBy: now.Add(time.Hour)},
		"other": {Gate: "batch", Workload: "team-b/other", Cluster: "c2", Since: now},
	} {
		h.UID = uid
		r.opts.Ledger.Commit(r.opts.Ledger.View(), uid, nil, nil, h)
	}
	startsBy := metav1.NewTime(now.Add(time.Hour))
	want := []v1alpha1.HeldCluster{{Workload: "team-a/big", Cluster: "c1", Since: metav1.NewTime(now.Add(-time.Minute)), StartsBy: &startsBy}}
	if diff := cmp.Diff(want, status()); diff != "" {
		t.Errorf("holds (-want +got):\n%s", diff)
	}
	r.opts.Ledger.ReleaseHold("big")
	if got := status(); len(got) > 0 {
		t.Errorf("holds after the end: %v", got)
	}
}
