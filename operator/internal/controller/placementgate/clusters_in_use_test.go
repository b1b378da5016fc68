package placementgate

import (
	"fmt"
	"slices"
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
	"plimsoll.dev/plimsoll/operator/internal/admission/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/admission/kueuestate"
	"plimsoll.dev/plimsoll/operator/internal/timing"
)

func TestClusterUses(t *testing.T) {
	cluster := "cluster1"
	current := dispatch.Record{}.Begin([]string{"cluster3", "cluster4"}, now, "", now)
	var many []string
	for i := range dispatch.MaxNominated + 1 {
		many = append(many, fmt.Sprint("c", i))
	}
	anyMember := []string{"multikueue/", "plimsoll/"}
	for _, tc := range []struct {
		name   string
		change func(*kueue.WorkloadStatus)
		record string
		want   []string
	}{
		{"no cluster", func(s *kueue.WorkloadStatus) { s.ClusterName, s.NominatedClusterNames = nil, nil }, "", nil},
		{"running and nominated", func(*kueue.WorkloadStatus) {}, "",
			[]string{"multikueue/cluster2", "multikueue/cluster1", "plimsoll/cluster2", "plimsoll/cluster1"}},
		{"finished", func(s *kueue.WorkloadStatus) {
			s.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
		}, "", nil},
		{"an eviction has begun", setEvicted, "", anyMember},
		{"an eviction of a workload with a record", setEvicted, current.Encode(),
			[]string{"multikueue/cluster3", "multikueue/cluster4", "plimsoll/cluster3", "plimsoll/cluster4"}},
		{"with a record of other quota", setEvicted, current.Begin([]string{"cluster3"}, now.Add(-time.Hour), "", now).Encode(), anyMember},
		{"with the record of a repair", setEvicted, current.BeginRepair([]string{"cluster3"}, now, "", now).Encode(), anyMember},
		{"with a record without clusters", setEvicted, current.Begin(nil, now, "", now).Encode(), anyMember},
		{"with more clusters than the operator nominates", setEvicted, current.Begin(many, now, "", now).Encode(), anyMember},
		{"with a record that does not parse", setEvicted, "{", anyMember},
		{"an eviction that a nomination completes", func(s *kueue.WorkloadStatus) { setEvicted(s); s.NominatedClusterNames = []string{"cluster3"} }, current.Encode(),
			[]string{"multikueue/cluster3", "multikueue/cluster4", "plimsoll/cluster3", "plimsoll/cluster4"}},
		{"an eviction is complete", func(s *kueue.WorkloadStatus) { setEvicted(s); s.Admission, s.Conditions = nil, s.Conditions[:1] }, current.Encode(), nil},
		{"a stuck eviction, which the gate repairs", func(s *kueue.WorkloadStatus) { setEvicted(s); s.NominatedClusterNames = []string{"cluster2"} }, "",
			[]string{"multikueue/cluster2", "multikueue/", "plimsoll/cluster2", "plimsoll/"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := &kueue.Workload{Status: kueue.WorkloadStatus{
				AdmissionChecks: []kueue.AdmissionCheckState{{Name: "multikueue"}, {Name: "plimsoll"}},
				ClusterName:     &cluster, NominatedClusterNames: []string{"cluster2"},
			}}
			tc.change(&wl.Status)
			if tc.record != "" {
				wl.Annotations = map[string]string{v1alpha1.DispatchAnnotation: tc.record}
			}
			if diff := cmp.Diff(tc.want, clusterUses(true)(wl)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if builtin := clusterUses(false)(wl); kueuestate.IsBeingEvicted(wl) && !slices.Contains(builtin, "multikueue/") {
				t.Errorf("Kueue's dispatcher writes no record, but only %v are in use", builtin)
			}
		})
	}
}

// setEvicted lets Kueue evict a workload: it clears the clusters, and the quota stays until the job on
// the hub is inactive.
func setEvicted(s *kueue.WorkloadStatus) {
	s.ClusterName, s.NominatedClusterNames = nil, nil
	s.Admission = &kueue.Admission{ClusterQueue: "q"}
	s.Conditions = []metav1.Condition{
		{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: kueue.WorkloadEvictedByPreemption},
		{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)},
	}
}

// Kueue stops the copy of an evicted workload only on a member. Scenario:
//  1. Kueue preempts a job that runs on c2, which the Placement no longer decides, and clears its
//     cluster at once. The job's pods take minutes to end.
//  2. c2 leaves: its copy runs on, and the job starts a second time elsewhere.
func TestMemberStaysUntilEvictionsAreComplete(t *testing.T) {
	clock := now
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "multikueue"}, Spec: kueue.AdmissionCheckSpec{ControllerName: kueue.MultiKueueControllerName,
		Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "MultiKueueConfig", Name: "plimsoll-gpu"}}}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "rayjob"}}
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "multikueue", State: kueue.CheckStatePending}}
	setEvicted(&wl.Status)
	r, hub := newReconciler(t, &clock, interceptor.Funcs{}, append(healthyHub("c1"), check, wl, newConfig("plimsoll-gpu", "gpu", "c1", "c2"))...)
	members := func(after time.Duration) []string {
		t.Helper()
		clock = now.Add(after)
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gpu"}}); err != nil {
			t.Fatal(err)
		}
		config := &kueue.MultiKueueConfig{}
		if err := hub.Get(t.Context(), client.ObjectKey{Name: "plimsoll-gpu"}, config); err != nil {
			t.Fatal(err)
		}
		return config.Spec.Clusters
	}
	for _, after := range []time.Duration{0, 15 * time.Second, 30 * time.Second, 45 * time.Second} {
		if diff := cmp.Diff([]string{"c1", "c2"}, members(after)); diff != "" {
			t.Errorf("after %s, while the eviction is in progress (-want +got):\n%s", after, diff)
		}
	}
	wl.Status.Admission, wl.Status.Conditions[1].Status = nil, metav1.ConditionFalse
	if err := hub.Update(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"c1", "c2"}, members(time.Minute)); diff != "" {
		t.Errorf("the eviction is complete, and Kueue removes the copy (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c1"}, members(90*time.Second)); diff != "" {
		t.Errorf("two rounds after the eviction (-want +got):\n%s", diff)
	}
}

// Kueue sets Active to False at its first failed attempt to connect, so a cluster that was never
// connected has that condition, too. It holds no copy, and its place is free for another cluster.
func TestMayHoldOrphanedCopies(t *testing.T) {
	const created, long = -time.Hour, -30 * time.Minute
	nominatedBefore := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "job", Annotations: map[string]string{
		v1alpha1.DispatchAnnotation: dispatch.Record{Preferences: []dispatch.Preference{{Cluster: "c0"}, {Cluster: "c1"}}}.Encode()}}}
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
			wl.Annotations[v1alpha1.DispatchAnnotation] = dispatch.Record{Preferences: []dispatch.Preference{{Cluster: "c0"}}}.Encode()
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
// if the Placement no longer decides them: Kueue evicts the workloads on other clusters. Their
// MultiKueueClusters are created again, too. Without one, Kueue neither sees that the workloads end nor
// gives the cluster up.
func TestDeletedObjectsOfClustersInUse(t *testing.T) {
	const onCluster, nominated, evictedFrom, foreign = "c7", "c8", "c6", "c5"
	workload := func(name, check string, change func(*kueue.WorkloadStatus)) *kueue.Workload {
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: kueue.AdmissionCheckReference(check)}}
		change(&wl.Status)
		return wl
	}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "multikueue"}, Spec: kueue.AdmissionCheckSpec{ControllerName: kueue.MultiKueueControllerName,
		Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "MultiKueueConfig", Name: "plimsoll-gpu"}}}
	for _, tc := range []struct {
		name        string
		credentials v1alpha1.CredentialsType
		config      []string // nil = deleted
		existing    []string // MultiKueueClusters
		members     []string
		created     []string
	}{
		{"the configuration", "", nil, []string{"c1", onCluster, nominated, "unused"}, []string{"c1", onCluster, nominated}, nil},
		{"the configuration, during an eviction", "", nil, []string{"c1", evictedFrom, onCluster, nominated, "unused"}, []string{"c1", evictedFrom, onCluster, nominated}, nil},
		{"a MultiKueueCluster", "", []string{"c1", onCluster, nominated}, []string{"c1", nominated}, []string{"c1", onCluster, nominated}, []string{onCluster}},
		{"the MultiKueueCluster of a decided member", "", []string{"c1", onCluster, nominated}, []string{onCluster, nominated}, []string{"c1", onCluster, nominated}, []string{"c1"}},
		{"that of a member that is about to leave", "", []string{"c1", onCluster, nominated, "unused"}, []string{"c1", onCluster, nominated}, []string{"c1", onCluster, nominated, "unused"}, nil},
		{"the configuration and a MultiKueueCluster", "", nil, []string{"c1", nominated}, []string{"c1", onCluster, nominated}, []string{onCluster}},
		{"all of them", "", nil, nil, []string{"c1", onCluster, nominated}, []string{"c1", onCluster, nominated}},
		{"all of them, which another component writes", v1alpha1.CredentialsExisting, nil, nil, []string{"c1", onCluster, nominated}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := append(healthyHub("c1"), check.DeepCopy(),
				workload("runs", "multikueue", func(s *kueue.WorkloadStatus) { s.ClusterName = ptr.To(onCluster) }),
				workload("sent", "multikueue", func(s *kueue.WorkloadStatus) { s.NominatedClusterNames = []string{nominated} }),
				workload("of-another-configuration", "other", func(s *kueue.WorkloadStatus) { s.ClusterName = ptr.To("c9") }),
				workload("done", "multikueue", func(s *kueue.WorkloadStatus) {
					s.ClusterName, s.Conditions = ptr.To("c9"), []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
				}),
			)
			objects[0].(*v1alpha1.PlacementGate).Spec.MultiKueue.Credentials.Type = tc.credentials
			if tc.config != nil {
				objects = append(objects, newConfig("plimsoll-gpu", "gpu", tc.config...))
			} else { // with a configuration, no member leaves during an eviction
				evicted := workload("being-evicted", "multikueue", setEvicted)
				evicted.Annotations = map[string]string{v1alpha1.DispatchAnnotation: dispatch.Record{Nominated: []string{evictedFrom, "forged", foreign}}.Encode()}
				unreadable := workload("being-evicted-too", "multikueue", setEvicted)
				unreadable.Annotations = map[string]string{v1alpha1.DispatchAnnotation: "{"}
				objects = append(objects, evicted, unreadable, newForeignCluster(foreign, "another-gate"))
			}
			for _, name := range tc.existing {
				objects = append(objects, newForeignCluster(name, map[string]string{evictedFrom: "gpu"}[name]))
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
			if diff := cmp.Diff(tc.members, config.Spec.Clusters); diff != "" {
				t.Errorf("clusters (-want +got):\n%s", diff)
			}
			list := &kueue.MultiKueueClusterList{}
			if err := hub.List(t.Context(), list, client.MatchingLabels{v1alpha1.ManagedByLabel: "gpu"}); err != nil {
				t.Fatal(err)
			}
			var created []string
			for _, c := range list.Items {
				if !slices.Contains(tc.existing, c.Name) {
					created = append(created, c.Name)
				}
			}
			if diff := cmp.Diff(tc.created, created); diff != "" {
				t.Errorf("created (-want +got):\n%s", diff)
			}
		})
	}
}

// A cluster in use stays a member although its MultiKueueCluster can't be created: Kueue starts the
// workloads of a cluster that is no member elsewhere.
func TestClusterInUseIsMemberBeforeItIsCreated(t *testing.T) {
	in := newInput("c1")
	in.inUse = map[string]bool{"c7": true}
	if diff := cmp.Diff([]string{"c7"}, withoutNewMember(in, []string{"c1", "c7"}, "c1")); diff != "" {
		t.Errorf("c1 can't be created (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c1", "c7"}, withoutNewMember(in, []string{"c1", "c7"}, "c7")); diff != "" {
		t.Errorf("c7 can't be created (-want +got):\n%s", diff)
	}
}
