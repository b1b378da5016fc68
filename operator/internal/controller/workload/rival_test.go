package workload

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/dispatch"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

func TestWhoCountsAsAnotherDispatcher(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	elsewhere := "cluster2"
	for _, tc := range []struct {
		name   string
		change func(*kueue.Workload)
		want   string
	}{
		{"only us", func(*kueue.Workload) {}, ""},
		{"somebody adds a cluster", func(wl *kueue.Workload) { wl.Status.NominatedClusterNames = []string{"cluster1", "cluster2"} },
			"team-a/job was nominated to cluster2, which was not our doing"},
		{"it is where we did not send it", func(wl *kueue.Workload) { wl.Status.NominatedClusterNames, wl.Status.ClusterName = nil, &elsewhere },
			"team-a/job was nominated to cluster2, which was not our doing"},
		{"it went there long ago, by who dispatched then", func(wl *kueue.Workload) {
			wl.Status.NominatedClusterNames, wl.Status.ClusterName = nil, &elsewhere
			wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{
				Name: "multikueue", State: kueue.CheckStateReady, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))})
		}, ""},
		{"the gate is new on the queue of a running job", func(wl *kueue.Workload) {
			wl.Status.NominatedClusterNames, wl.Status.ClusterName = nil, &elsewhere
			wl.Status.AdmissionChecks[0].State = kueue.CheckStatePending
		}, ""},
	} {
		wl := &kueue.Workload{}
		wl.Namespace, wl.Name = "team-a", "job"
		wl.Annotations = map[string]string{v1alpha1.DispatchAnnotation: dispatch.Record{}.Begin([]string{"cluster1"}, "", now).Encode()}
		wl.Status.NominatedClusterNames = []string{"cluster1"}
		wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "plimsoll", State: kueue.CheckStateReady}}
		tc.change(wl)
		r := &Reconciler{board: registry.New(), nominate: true, now: func() time.Time { return now }}
		r.watchRival(&subject{wl: wl, own: []string{"plimsoll"}, mk: "multikueue", gateName: "gpu"})
		if got := r.board.Conflict("gpu", now); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
