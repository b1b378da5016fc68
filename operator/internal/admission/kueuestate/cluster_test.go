package kueuestate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func TestSentAndPlacedCluster(t *testing.T) {
	own := []string{"plimsoll"}
	noUpdates := func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].PodSetUpdates = nil }
	for _, tc := range []struct {
		name         string
		change       func(*kueue.Workload)
		own          []string
		multiKueue   string
		sent, placed string
	}{
		{"Ready check with the annotation", func(*kueue.Workload) {}, own, "", "cluster1", ""},
		{"admitted by Kueue", setCondition(kueue.WorkloadAdmitted), own, "", "cluster1", "cluster1"},
		{"annotation on the second pod set only", func(wl *kueue.Workload) {
			wl.Status.AdmissionChecks[0].PodSetUpdates = append([]kueue.PodSetUpdate{{Name: "driver"}}, wl.Status.AdmissionChecks[0].PodSetUpdates...)
		}, own, "", "cluster1", ""},
		{"check is Pending", func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStatePending }, own, "", "", ""},
		{"no podSetUpdates, whatever the message says", func(wl *kueue.Workload) {
			noUpdates(wl)
			wl.Status.AdmissionChecks[0].Message = "cluster1 can take it: room for 1 such pod there"
		}, own, "", "", ""},
		{"another annotation", func(wl *kueue.Workload) {
			wl.Status.AdmissionChecks[0].PodSetUpdates[0].Annotations = map[string]string{"example.com/cluster": "cluster1"}
		}, own, "", "", ""},
		{"MultiKueue decides", setCondition(kueue.WorkloadAdmitted), own, "multikueue", "cluster1", ""},
		{"no check of a gate", func(*kueue.Workload) {}, nil, "", "", ""},
		{"check is missing", func(wl *kueue.Workload) { wl.Status.AdmissionChecks = nil }, own, "", "", ""},
		{"MultiKueue reports the cluster", clusterName("cluster2"), own, "multikueue", "cluster1", "cluster2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wl := reserved()
			wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
			wl.Status.AdmissionChecks[0].PodSetUpdates = []kueue.PodSetUpdate{{Name: "main", Annotations: map[string]string{v1alpha1.ClusterAnnotation: "cluster1"}}}
			tc.change(wl)
			checks := Checks{Own: tc.own, MultiKueue: tc.multiKueue}
			if got := checks.SentCluster(wl); got != tc.sent {
				t.Errorf("SentCluster: got %q, want %q", got, tc.sent)
			}
			if got := checks.PlacedCluster(wl); got != tc.placed {
				t.Errorf("PlacedCluster: got %q, want %q", got, tc.placed)
			}
		})
	}
}

func TestDisconnectedReason(t *testing.T) {
	config := &kueue.MultiKueueConfig{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"cluster1"}}}
	active := func(status metav1.ConditionStatus) *kueue.MultiKueueCluster {
		return &kueue.MultiKueueCluster{Status: kueue.MultiKueueClusterStatus{Conditions: []metav1.Condition{
			{Type: kueue.MultiKueueClusterActive, Status: status, Message: "connection refused"}}}}
	}
	for _, tc := range []struct {
		name, cluster string
		object        *kueue.MultiKueueCluster
		want          string
	}{
		{"connected", "cluster1", active(metav1.ConditionTrue), ""},
		{"connection failed", "cluster1", active(metav1.ConditionFalse), "is not connected by Kueue: connection refused"},
		{"no status yet", "cluster1", &kueue.MultiKueueCluster{}, "is not yet connected by Kueue"},
		{"no MultiKueueCluster", "cluster1", nil, "has no MultiKueueCluster"},
		{"not in the configuration", "cluster2", active(metav1.ConditionTrue), "is not in MultiKueueConfig gpu"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := DisconnectedReason(config, tc.cluster, tc.object); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
