package round

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/query"
)

// Cluster is a managed cluster and what a source's series call it. A cluster
// without a Key is in no series.
type Cluster struct{ Name, Key string }

// Fleet picks the clusters of a policy, by name. Clusters that the hub has not
// accepted or that are being deleted have no part in it.
func Fleet(all []clusterv1.ManagedCluster, selector *metav1.LabelSelector, info query.SourceInfo) ([]Cluster, error) {
	matches := labels.Everything()
	if selector != nil {
		var err error
		if matches, err = metav1.LabelSelectorAsSelector(selector); err != nil {
			return nil, fmt.Errorf("clusterSelector: %w", err)
		}
	}
	var fleet []Cluster
	for i := range all {
		c := &all[i]
		if c.DeletionTimestamp != nil || !c.Spec.HubAcceptsClient || !matches.Matches(labels.Set(c.Labels)) {
			continue
		}
		fleet = append(fleet, Cluster{Name: c.Name, Key: Key(c, info)})
	}
	slices.SortFunc(fleet, func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) })
	return fleet, nil
}

// Key is what a source's series call a cluster, empty when it says nothing.
func Key(c *clusterv1.ManagedCluster, info query.SourceInfo) string {
	switch v1alpha1.ClusterMatch(info.Match) {
	case v1alpha1.MatchLabel:
		return c.Labels[info.Key]
	case v1alpha1.MatchClusterClaim:
		for _, claim := range c.Status.ClusterClaims {
			if claim.Name == info.Key {
				return claim.Value
			}
		}
		return ""
	default:
		return c.Name
	}
}

// Index finds clusters by what series call them.
type Index struct {
	names  []string
	byKey  map[string]int
	shared map[string][]int // keys that several clusters claim
}

// NewIndex makes an index of a fleet that is sorted by name.
func NewIndex(fleet []Cluster) *Index {
	x := &Index{names: make([]string, len(fleet)), byKey: make(map[string]int, len(fleet)), shared: map[string][]int{}}
	for i, c := range fleet {
		x.names[i] = c.Name
		if c.Key == "" {
			continue
		}
		if first, ok := x.byKey[c.Key]; ok {
			if x.shared[c.Key] == nil {
				x.shared[c.Key] = []int{first}
			}
			x.shared[c.Key] = append(x.shared[c.Key], i)
		}
		x.byKey[c.Key] = i
	}
	return x
}

// Names of the clusters, in the order of all results.
func (x *Index) Names() []string { return x.names }
