//go:build integration

package workload_test

import (
	"fmt"
	"strings"
)

// Messages that users read in admission checks, events, conditions and explanations. Tests
// assert reasons and states where a message does not matter.
const (
	noNodeLargeEnough = "no cluster has 8 free " + h100 + " on one node"
	noRoomFor1Pod     = "no cluster has room for 1 pod of 8 " + h100
	noRoomFor2Pods    = "no cluster has room for 2 pods of 8 " + h100
	noneEligible      = "no cluster is eligible"
	gaveUp            = "gave up: "
	quotaUnknown      = "; the quota of its queue is unknown (QuotaUnknown)"
	withoutMetrics    = " is chosen without metrics: no cluster has usable metrics and onStale is Open"
	staleSamples      = "has samples older than 2m0s"
	notLeader         = "is not the leader"
	unclosedParen     = "requirements/power: 1:40: unclosed left parenthesis"
)

func nodeTooSmall(bestCluster string, devices int) string {
	return fmt.Sprintf("%s: best is %s with %d", noNodeLargeEnough, bestCluster, devices)
}

func hasRoom(cluster string, pods int) string {
	noun := "such pods"
	if pods == 1 {
		noun = "such pod"
	}
	return fmt.Sprintf("%s has room for %d %s", cluster, pods, noun)
}

func noScore(cluster, score string) string { return cluster + " has no valid score " + score }

func noQuota(cluster, clusterQueue, localQueue string) string {
	return cluster + " has no quota for nvidia.com/gpu in ClusterQueue " + clusterQueue + ", the name on the hub, and does not report where its LocalQueue " + localQueue + " points"
}

func lowScore(cluster, score string) string {
	return fmt.Sprintf("%s has a score %s below the minimum", cluster, score)
}

func requirementAbsent(cluster, requirement string) string {
	return fmt.Sprintf("%s has no series for requirement %s", cluster, requirement)
}

func requirementWithoutResult(requirement string) string {
	return "requirement " + requirement + " has no result"
}

func selectorUnmet(selector string) string {
	return "does not match the node selector " + selector
}

func gateMissing(name string) string { return "PlacementGate " + name + " does not exist" }

func gateNotReady(name, problem string) string {
	return "PlacementGate " + name + " is not ready: " + problem
}

func tooManyChecks(checks ...string) string {
	return "the queue has several placement checks, keep one of: " + strings.Join(checks, ", ")
}

func configOwned(config, owner, gate string) string {
	return fmt.Sprintf("MultiKueueConfig %s belongs to PlacementGate %s, %s", config, owner, leftAlone(gate))
}

func configForeign(config, gate string) string {
	return fmt.Sprintf("MultiKueueConfig %s was not created by a PlacementGate, %s", config, leftAlone(gate))
}

func leftAlone(gate string) string {
	return fmt.Sprintf("so gate %s neither changes it nor admits workloads; set spec.multiKueue.configName to another name", gate)
}

func nominatedMessage(cluster, reason string) string { return "nominated " + cluster + ": " + reason }
