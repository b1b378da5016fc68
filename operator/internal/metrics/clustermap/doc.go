// Package clustermap maps the series of a MetricsSource to ManagedClusters.
//
// A series carries the cluster in one label (clusterMapping.label). The label value
// is the name of the ManagedCluster, the value of one of its labels, or the value of
// one of its ClusterClaims (clusterMapping.match). The package never guesses:
//
//   - A value that several ManagedClusters share maps to none of them. A series with
//     this value makes each of them Ambiguous.
//   - Two series for one cluster make the cluster Duplicate.
//   - A NaN or infinite value is an explicit outcome, not a number.
//   - A cluster without a series is Absent.
//   - Series without the label, and series of clusters outside the mapping, are kept
//     apart.
//
// The package is pure: callers pass the ManagedClusters and the samples.
package clustermap
