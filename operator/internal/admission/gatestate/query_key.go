package gatestate

import "k8s.io/apimachinery/pkg/types"

// QueryKey identifies workloads that share a plan: the queries of one version of a gate,
// rendered with equivalent facts.
//
// A QueryKey with nothing but Gate stands for workloads that wait without results, for example
// because the gate does not exist.
type QueryKey struct {
	Gate string
	// Namespace of the workloads, which is part of their facts as well.
	Namespace string
	// Source is the name of the gate's MetricsSource.
	Source string
	// SourceID is the Identity of the source, or its name if it does not exist. Results of
	// another server, or of another mapping to clusters, say nothing about this one.
	SourceID string
	// Version of the PlacementGate.
	Version Version
	// ClusterLabel is the series label that carries the cluster.
	ClusterLabel string
	// Facts is the EquivalenceKey of the workload's facts.
	Facts string
}

// Version identifies a spec. The generations of a gate that was deleted and created again start
// from 1.
type Version struct {
	UID        types.UID
	Generation int64
}
