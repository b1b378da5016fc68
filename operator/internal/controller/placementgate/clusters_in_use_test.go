package placementgate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
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
