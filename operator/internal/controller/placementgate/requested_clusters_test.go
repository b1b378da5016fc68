package placementgate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
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
	if !slices.Contains(members, "c21") || !slices.Contains(members, "c19") || slices.Contains(members, "c18") || len(members) != 20 || !slices.Equal(leaving, []string{"c18"}) {
		t.Errorf("members %v, leaving %v, want c21 in place of c18, to which no workload may be sent meanwhile", members, leaving)
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

// Jobs on c19 are evicted one after the other, so that an eviction is in progress for 10 of every 20
// seconds. They keep their own member only: another one makes place for the requested cluster.
func TestRequestedClusterJoinsDuringEvictionsElsewhere(t *testing.T) {
	clock := now
	var names []string
	for i := range 22 {
		names = append(names, fmt.Sprintf("c%02d", i))
	}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "multikueue"}, Spec: kueue.AdmissionCheckSpec{ControllerName: kueue.MultiKueueControllerName,
		Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "MultiKueueConfig", Name: "plimsoll-gpu"}}}
	evicted := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "evicted", Annotations: map[string]string{
		v1alpha1.DispatchAnnotation: dispatch.Record{}.Begin([]string{"c19"}, now, "", now).Encode()}}}
	evicted.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "multikueue"}}
	setEvicted(&evicted.Status)
	r, hub := newReconciler(t, &clock, interceptor.Funcs{}, append(healthyHub(names...), check)...)
	run := func() []string {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpu"}}); err != nil {
			t.Fatal(err)
		}
		config := &kueue.MultiKueueConfig{}
		if err := hub.Get(t.Context(), client.ObjectKey{Name: "plimsoll-gpu"}, config); err != nil {
			t.Fatal(err)
		}
		return config.Spec.Clusters
	}
	members := run()
	for range 3 {
		wl := evicted.DeepCopy()
		for _, change := range []func() error{
			func() error { return hub.Create(t.Context(), wl) },
			func() error { return hub.Delete(t.Context(), wl) },
		} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			r.opts.Registry.RequestCluster("gpu", "c21", clock)
			members = run()
			clock = clock.Add(10 * time.Second)
		}
	}
	if !slices.Contains(members, "c21") || !slices.Contains(members, "c19") || slices.Contains(members, "c18") {
		t.Errorf("members %v after a minute, want c21 in place of c18", members)
	}
}

// A member that may hold copies that no workload names stays, although another cluster is
// requested: Kueue deletes such copies only on members.
func TestMemberWithOrphanedCopiesStays(t *testing.T) {
	var names []string
	for i := range 21 {
		names = append(names, fmt.Sprintf("c%02d", i))
	}
	for _, tc := range []struct {
		name   string
		period int32
		status metav1.ConditionStatus
		since  time.Duration // of the status of c19, before the exit is due
		left   bool          // the hub
		rounds []time.Duration
		want   string // the member that leaves
	}{
		{"connected for long", 15, metav1.ConditionTrue, time.Hour, false, []time.Duration{30 * time.Second}, "c19"},
		{"disconnected", 15, metav1.ConditionFalse, time.Hour, false, []time.Duration{30 * time.Second, 30 * time.Second}, "c18"},
		{"disconnected, and gone from the hub", 15, metav1.ConditionFalse, time.Hour, true, []time.Duration{30 * time.Second}, "c19"},
		{"back for five seconds when the exit could begin", 15, metav1.ConditionTrue, 5 * time.Second, false, []time.Duration{30 * time.Second}, "c18"},
		{"short periods: Kueue has no time to remove copies", 1, metav1.ConditionTrue, time.Hour, false, []time.Duration{5 * time.Second}, ""},
		{"short periods: it has", 1, metav1.ConditionTrue, time.Hour, false, []time.Duration{5 * time.Second, 11 * time.Second}, "c19"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock := now
			var objects []client.Object
			for _, name := range names {
				since, status := time.Hour, metav1.ConditionTrue
				if name == "c19" {
					since, status = tc.since, tc.status
				}
				cluster := newForeignCluster(name, "gpu")
				cluster.Status.Conditions = []metav1.Condition{{Type: kueue.MultiKueueClusterActive, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-since))}}
				objects = append(objects, cluster)
				if name != "c19" || !tc.left {
					objects = append(objects, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
				}
			}
			check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "multikueue"}, Spec: kueue.AdmissionCheckSpec{ControllerName: kueue.MultiKueueControllerName,
				Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "MultiKueueConfig", Name: "plimsoll-gpu"}}}
			r, hub := newReconciler(t, &clock, interceptor.Funcs{}, append(append(healthyHub(names...), check, newConfig("plimsoll-gpu", "gpu", names[:20]...)), objects...)...)
			g := newGate()
			if err := hub.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
				t.Fatal(err)
			}
			g.Spec.PeriodSeconds = tc.period
			if err := hub.Update(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			r.opts.Registry.Put(gatestate.Gate{Name: "gpu"})
			for _, wait := range append([]time.Duration{0}, tc.rounds...) {
				clock = clock.Add(wait)
				r.opts.Registry.RequestCluster("gpu", "c20", clock)
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpu"}}); err != nil {
					t.Fatal(err)
				}
			}
			config := &kueue.MultiKueueConfig{}
			if err := hub.Get(t.Context(), client.ObjectKey{Name: "plimsoll-gpu"}, config); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, name := range names[:20] {
				if !slices.Contains(config.Spec.Clusters, name) {
					got += name
				}
			}
			if got != tc.want {
				t.Errorf("%q left, want %q", got, tc.want)
			}
		})
	}
}
