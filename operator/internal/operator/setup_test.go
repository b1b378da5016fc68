package operator

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Scores without managedFields would lose the time of their last write, and the items of
// other writers would count as our own.
func TestTrimKeepsManagedFieldsOfScores(t *testing.T) {
	fields := []metav1.ManagedFieldsEntry{{Manager: "plimsoll-scores"}}
	for _, tc := range []struct {
		name string
		obj  metav1.Object
		kept int
	}{
		{"score", &clusterv1alpha1.AddOnPlacementScore{}, 1},
		{"workload", &kueue.Workload{}, 0},
		{"cluster", &clusterv1.ManagedCluster{}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.obj.SetManagedFields(fields)
			trimmed, err := Trim(tc.obj)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(trimmed.(metav1.Object).GetManagedFields()); got != tc.kept {
				t.Errorf("%d entries of managedFields, want %d", got, tc.kept)
			}
		})
	}
}

func TestSchemeHasEveryGroup(t *testing.T) {
	s, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"plimsoll.dev", "kueue.x-k8s.io", "cluster.open-cluster-management.io", ""} {
		if !s.IsGroupRegistered(group) {
			t.Errorf("group %q is not registered", group)
		}
	}
}
