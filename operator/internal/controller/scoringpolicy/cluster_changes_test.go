package scoringpolicy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

func TestChangesClusters(t *testing.T) {
	cluster := func(change func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
		c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: map[string]string{"fleet": "a", "prom": "east", "zone": "1"}}}
		c.Spec.HubAcceptsClient = true
		c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "id", Value: "x"}}
		if change != nil {
			change(c)
		}
		return c
	}
	label := func(key, value string) *clusterv1.ManagedCluster {
		return cluster(func(c *clusterv1.ManagedCluster) { c.Labels[key] = value })
	}
	unaccepted := cluster(func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false })
	deleting := cluster(func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = &metav1.Time{} })
	deleting.DeletionTimestamp.Time = now
	claim := cluster(func(c *clusterv1.ManagedCluster) { c.Status.ClusterClaims[0].Value = "y" })
	byName, byLabel := query.SourceInfo{Match: "Name"}, query.SourceInfo{Match: "Label", Key: "prom"}
	byClaim := query.SourceInfo{Match: "ClusterClaim", Key: "id"}
	for _, tc := range []struct {
		name          string
		info          query.SourceInfo
		before, after *clusterv1.ManagedCluster
		want          bool
	}{
		{"heartbeat", byName, cluster(nil), cluster(nil), false},
		{"other label", byName, cluster(nil), label("zone", "2"), false},
		{"label of the mapping, mapping by name", byName, cluster(nil), label("prom", "west"), false},
		{"label of the mapping", byLabel, cluster(nil), label("prom", "west"), true},
		{"claim of the mapping", byClaim, cluster(nil), claim, true},
		{"leaves the selection", byName, cluster(nil), label("fleet", "b"), true},
		{"joins the selection", byName, label("fleet", "b"), cluster(nil), true},
		{"never selected", byLabel, label("fleet", "b"), label("fleet", "c"), false},
		{"accepted", byName, unaccepted, cluster(nil), true},
		{"being deleted", byName, cluster(nil), deleting, true},
		{"removed after its deletion began", byName, deleting, nil, false},
		{"deleted and created again", byName, cluster(nil), cluster(func(c *clusterv1.ManagedCluster) { c.UID = "second" }), true},
		{"created", byName, nil, cluster(nil), true},
		{"created outside the selection", byName, nil, label("fleet", "b"), false},
	} {
		policy := &v1alpha1.ScoringPolicy{}
		policy.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": "a"}}
		if got := changesClusters(policy, tc.info, tc.before, tc.after); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
