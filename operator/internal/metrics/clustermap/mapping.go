package clustermap

import (
	"maps"
	"slices"

	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
)

// Mapping finds the ManagedCluster of a series. It is immutable.
type Mapping struct {
	label  string
	names  []string            // of the clusters, sorted
	index  map[string]int      // by label value, into names
	shared map[string][]string // by label value: all clusters with this value, sorted
}

// New returns the mapping of a source for all given ManagedClusters. A cluster that
// lacks the label or claim of the source belongs to the mapping, but no series names
// it. Pass every accepted cluster of the hub and narrow the result with Select:
// otherwise a value that a selected and an unselected cluster share looks unique.
func New(clusters []clusterv1.ManagedCluster, info query.SourceInfo) *Mapping {
	values := make(map[string]string, len(clusters))
	for i := range clusters {
		values[clusters[i].Name] = SeriesValue(&clusters[i], info)
	}
	return fromValues(info.ClusterLabel, values)
}

// FromNames returns a mapping for a source whose series carry the names of the
// clusters. Duplicate names count once.
func FromNames(label string, names []string) *Mapping {
	values := make(map[string]string, len(names))
	for _, name := range names {
		values[name] = name
	}
	return fromValues(label, values)
}

// fromValues builds a mapping from the series value of each cluster, by name.
func fromValues(label string, values map[string]string) *Mapping {
	m := &Mapping{
		label: label, names: slices.Sorted(maps.Keys(values)),
		index: make(map[string]int, len(values)), shared: map[string][]string{},
	}
	for i, name := range m.names {
		value := values[name]
		if value == "" {
			continue
		}
		if first, ok := m.index[value]; ok {
			if m.shared[value] == nil {
				m.shared[value] = []string{m.names[first]}
			}
			m.shared[value] = append(m.shared[value], name)
			continue
		}
		m.index[value] = i
	}
	for value := range m.shared {
		delete(m.index, value)
	}
	return m
}

// SeriesValue returns the label value by which the series of a source name the
// cluster. It is empty if the cluster lacks the label or claim.
func SeriesValue(cluster *clusterv1.ManagedCluster, info query.SourceInfo) string {
	switch v1alpha1.ClusterMatch(info.Match) {
	case v1alpha1.MatchLabel:
		return cluster.Labels[info.Key]
	case v1alpha1.MatchClusterClaim:
		for _, claim := range cluster.Status.ClusterClaims {
			if claim.Name == info.Key {
				return claim.Value
			}
		}
		return ""
	default:
		return cluster.Name
	}
}

// Select returns the mapping of the named clusters only. The series of the other
// clusters are unknown to it. Values that are ambiguous in m stay ambiguous. Names
// that m does not have are left out.
func (m *Mapping) Select(names []string) *Mapping {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	selected := &Mapping{label: m.label, index: make(map[string]int, len(names)), shared: map[string][]string{}}
	position := make([]int, len(m.names)) // in selected.names
	for i, name := range m.names {
		position[i] = len(selected.names)
		if wanted[name] {
			selected.names = append(selected.names, name)
		}
	}
	for value, i := range m.index {
		if wanted[m.names[i]] {
			selected.index[value] = position[i]
		}
	}
	for value, sharers := range m.shared {
		if slices.ContainsFunc(sharers, func(name string) bool { return wanted[name] }) {
			selected.shared[value] = sharers
		}
	}
	return selected
}

// Names returns the names of the clusters in ascending order. The caller must not
// change the slice.
func (m *Mapping) Names() []string { return m.names }

// Len returns the number of clusters.
func (m *Mapping) Len() int { return len(m.names) }

// Values returns the label values of the first n clusters that have one, in the order of
// the cluster names.
func (m *Mapping) Values(n int) []string {
	byCluster := make(map[int]string, len(m.index))
	for value, i := range m.index {
		byCluster[i] = value
	}
	var values []string
	for i := range m.names {
		if value, ok := byCluster[i]; ok && len(values) < n {
			values = append(values, value)
		}
	}
	return values
}

// Label returns the name of the series label that carries the cluster.
func (m *Mapping) Label() string { return m.label }

// Cluster returns the cluster that a label value names. ok is false if no cluster of
// the mapping has the value, or if several do.
func (m *Mapping) Cluster(value string) (name string, ok bool) {
	if i, found := m.index[value]; found {
		return m.names[i], true
	}
	return "", false
}

// Ambiguous returns the label values that several clusters share, each with the names
// of these clusters in ascending order. After Select, a value is listed if at least
// one of its clusters is selected.
func (m *Mapping) Ambiguous() map[string][]string { return maps.Clone(m.shared) }
