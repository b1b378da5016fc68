package placementgate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func TestClusterUses(t *testing.T) {
	cluster := "cluster1"
	for _, tc := range []struct {
		name   string
		change func(*kueue.WorkloadStatus)
		want   []string
	}{
		{"no cluster", func(s *kueue.WorkloadStatus) { s.ClusterName, s.NominatedClusterNames = nil, nil }, nil},
		{"running and nominated", func(*kueue.WorkloadStatus) {},
			[]string{"multikueue/cluster2", "multikueue/cluster1", "plimsoll/cluster2", "plimsoll/cluster1"}},
		{"finished", func(s *kueue.WorkloadStatus) {
			s.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := &kueue.Workload{Status: kueue.WorkloadStatus{
				AdmissionChecks: []kueue.AdmissionCheckState{{Name: "multikueue"}, {Name: "plimsoll"}},
				ClusterName:     &cluster, NominatedClusterNames: []string{"cluster2"},
			}}
			tc.change(&wl.Status)
			if diff := cmp.Diff(tc.want, clusterUses(wl)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Kueue sets Active to False at its first failed attempt to connect, so a cluster that was never
// connected has that condition, too. It holds no copy, and its place is free for another cluster.
func TestMayHoldOrphanedCopies(t *testing.T) {
	const created, long = -time.Hour, -30 * time.Minute
	nominatedBefore := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "job", Annotations: map[string]string{
		v1alpha1.DispatchAnnotation: dispatch.Record{EverNominated: []string{"c0", "c1"}}.Encode()}}}
	nominatedBefore.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "multikueue"}}
	with := func(change func(*kueue.Workload)) *kueue.Workload {
		wl := nominatedBefore.DeepCopy()
		change(wl)
		return wl
	}
	for _, tc := range []struct {
		name     string
		active   metav1.ConditionStatus // empty = no condition
		since    time.Duration          // of the condition
		left     bool                   // the cluster has no ManagedCluster
		workload *kueue.Workload
		want     bool
	}{
		{"Kueue has not tried to connect", "", 0, false, nominatedBefore, false},
		{"connected for long", metav1.ConditionTrue, long, false, nil, false},
		{"connected just now", metav1.ConditionTrue, -time.Second, false, nil, true},
		{"disconnected", metav1.ConditionFalse, long, false, nil, true},
		{"disconnected, and left the hub", metav1.ConditionFalse, long, true, nil, false},
		{"never connected", metav1.ConditionFalse, created + time.Second, false, nil, false},
		{"never connected, after the attempt ended without a response", metav1.ConditionFalse, created + 35*time.Second, false, nil, false},
		{"disconnected early, but later than an attempt lasts", metav1.ConditionFalse, created + timing.FirstConnection + time.Second, false, nil, true},
		{"connected for seconds, and a workload was sent there", metav1.ConditionFalse, created + time.Second, false, nominatedBefore, true},
		{"a workload was sent there, and the cluster left the hub", metav1.ConditionFalse, created + time.Second, true, nominatedBefore, false},
		{"the workload has finished", metav1.ConditionFalse, created + time.Second, false, with(func(wl *kueue.Workload) {
			wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
		}), false},
		{"a workload of another configuration", metav1.ConditionFalse, created + time.Second, false, with(func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].Name = "other" }), false},
		{"a workload was sent elsewhere", metav1.ConditionFalse, created + time.Second, false, with(func(wl *kueue.Workload) {
			wl.Annotations[v1alpha1.DispatchAnnotation] = dispatch.Record{EverNominated: []string{"c0"}}.Encode()
		}), false},
		{"the record of a workload does not parse", metav1.ConditionFalse, created + time.Second, false, with(func(wl *kueue.Workload) {
			wl.Annotations[v1alpha1.DispatchAnnotation] = "{"
		}), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var objects []client.Object
			if !tc.left {
				objects = append(objects, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}})
			}
			if tc.workload != nil {
				objects = append(objects, tc.workload.DeepCopy())
			}
			clock := now
			r, _ := newReconciler(t, &clock, interceptor.Funcs{}, objects...)
			cluster := newForeignCluster("c1", "gpu")
			cluster.CreationTimestamp = metav1.NewTime(now.Add(created))
			if tc.active != "" {
				cluster.Status.Conditions = []metav1.Condition{{Type: kueue.MultiKueueClusterActive, Status: tc.active, LastTransitionTime: metav1.NewTime(now.Add(tc.since))}}
			}
			if got, err := r.mayHoldOrphanedCopies(t.Context(), cluster, []string{"multikueue"}); err != nil || got != tc.want {
				t.Errorf("got %t and %v, want %t", got, err, tc.want)
			}
		})
	}
}

// A MultiKueueConfig that someone deleted is created again with the clusters that run workloads, also
// if the Placement no longer decides them: Kueue evicts the workloads on other clusters.
func TestDeletedConfigKeepsClustersInUse(t *testing.T) {
	const onCluster, nominated = "c7", "c8"
	workload := func(name string, change func(*kueue.WorkloadStatus)) *kueue.Workload {
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "multikueue"}}
		change(&wl.Status)
		return wl
	}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "multikueue"}, Spec: kueue.AdmissionCheckSpec{ControllerName: kueue.MultiKueueControllerName,
		Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "MultiKueueConfig", Name: "plimsoll-gpu"}}}
	objects := append(healthyHub("c1"), check,
		workload("runs", func(s *kueue.WorkloadStatus) { s.ClusterName = ptr.To(onCluster) }),
		workload("sent", func(s *kueue.WorkloadStatus) { s.NominatedClusterNames = []string{nominated} }),
	)
	for _, name := range []string{"c1", onCluster, nominated, "unused"} {
		objects = append(objects, newForeignCluster(name, "gpu"))
	}
	clock := now
	r, hub := newReconciler(t, &clock, interceptor.Funcs{}, objects...)
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "gpu"}}); err != nil {
		t.Fatal(err)
	}
	config := &kueue.MultiKueueConfig{}
	if err := hub.Get(t.Context(), types.NamespacedName{Name: "plimsoll-gpu"}, config); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"c1", onCluster, nominated}, config.Spec.Clusters); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
}
