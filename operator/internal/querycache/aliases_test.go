package querycache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

// Series of a name that several clusters bear are not taken for one of them.
func TestANameOfSeveralClustersIsNobodys(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clusterv1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	hub := fake.NewClientBuilder().WithScheme(scheme)
	for name, site := range map[string]string{"a": "one", "b": "two", "c": "two", "d": "two", "e": ""} {
		c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"site": site}}}
		c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "id", Value: "id-" + name}}
		hub.WithObjects(c)
	}
	a := &Cache{client: hub.Build()}
	for _, tc := range []struct {
		match v1alpha1.ClusterMatch
		key   string
		want  map[string]string
	}{
		{v1alpha1.MatchName, "", nil},
		{v1alpha1.MatchLabel, "site", map[string]string{"one": "a"}},
		{v1alpha1.MatchClusterClaim, "id", map[string]string{"id-a": "a", "id-b": "b", "id-c": "c", "id-d": "d", "id-e": "e"}},
	} {
		got, err := a.clusterAliases(t.Context(), query.SourceInfo{Match: string(tc.match), Key: tc.key})
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("by %s (-want +got):\n%s%v", tc.match, diff, err)
		}
	}
}
