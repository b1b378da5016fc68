package placementgate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// A Placement decides 22 clusters. The one that a job needs replaces an unused member, to which
// no workload may be sent from the moment on in which its exit is planned.
func TestRequestedClusterJoinsTheConfiguration(t *testing.T) {
	clock := now
	var names []string
	for i := range 22 {
		names = append(names, fmt.Sprintf("c%02d", i))
	}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "multikueue"}, Spec: kueue.AdmissionCheckSpec{ControllerName: kueue.MultiKueueControllerName,
		Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "MultiKueueConfig", Name: "plimsoll-gpu"}}}
	running := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "running"}}
	running.Status.ClusterName, running.Status.AdmissionChecks = &names[19], []kueue.AdmissionCheckState{{Name: "multikueue"}}
	r, hub := newReconciler(t, &clock, interceptor.Funcs{}, append(healthyHub(names...), check, running)...)
	run := func() (members, leaving []string) {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpu"}}); err != nil {
			t.Fatal(err)
		}
		config := &kueue.MultiKueueConfig{}
		if err := hub.Get(t.Context(), client.ObjectKey{Name: "plimsoll-gpu"}, config); err != nil {
			t.Fatal(err)
		}
		g, _ := r.opts.Registry.Get("gpu")
		for _, c := range g.Clusters {
			if c.Leaving {
				leaving = append(leaving, c.Name)
			}
		}
		return config.Spec.Clusters, leaving
	}
	if members, leaving := run(); !slices.Equal(members, names[:20]) || len(leaving) > 0 {
		t.Fatalf("members %v, leaving %v", members, leaving)
	}
	r.opts.Registry.RequestCluster("gpu", "c21", clock)
	if members, leaving := run(); !slices.Equal(members, names[:20]) || !slices.Equal(leaving, []string{"c18"}) {
		t.Errorf("members %v, leaving %v, want the last one without a workload to leave", members, leaving)
	}
	clock = clock.Add(30 * time.Second)
	members, leaving := run()
	if !slices.Contains(members, "c21") || !slices.Contains(members, "c19") || slices.Contains(members, "c18") || len(members) != 20 || len(leaving) > 0 {
		t.Errorf("members %v, leaving %v, want c21 in place of c18", members, leaving)
	}
	if err := hub.Get(t.Context(), client.ObjectKey{Name: "c21"}, &kueue.MultiKueueCluster{}); err != nil {
		t.Errorf("the new member has no MultiKueueCluster: %v", err)
	}
	g := newGate()
	if err := hub.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
		t.Fatal(err)
	}
	for _, c := range g.Status.Conditions {
		if c.Type == v1alpha1.ConditionConfigured && c.Reason != v1alpha1.ReasonClustersTruncated {
			t.Errorf("Configured is %s %s", c.Status, c.Reason)
		}
	}
}
