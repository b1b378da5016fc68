//go:build e2e

package e2e

import (
	"fmt"

	"plimsoll.dev/plimsoll/test/lab/fleet"
)

// This file contains all texts of the operator and of kubectl-plimsoll that the
// tests expect.

// Condition types of Plimsoll's objects.
const (
	conditionQueriesValid      = "QueriesValid"      // ScoringPolicy
	conditionReady             = "Ready"             // ScoringPolicy
	conditionReachable         = "Reachable"         // MetricsSource
	conditionPlacementFound    = "PlacementFound"    // PlacementGate
	conditionConfigured        = "Configured"        // PlacementGate
	conditionDispatcherMatches = "DispatcherMatches" // PlacementGate
	conditionActive            = "Active"            // AdmissionCheck and Kueue's kinds
)

// Parts of condition messages.
const (
	messageQueryPosition   = "1:" // a PromQL error starts with line:column
	messageTwoCandidates   = "has decided 2 clusters"
	messageDispatcherName  = "multiKueue.dispatcherName"      // key in Kueue's configuration
	messageDispatchingFlag = "--multikueue-dispatch=nominate" // flag of the operator
)

func messageStaysConnected(cluster string) string { return "Kueue stays connected to " + cluster }

// Parts of the messages of a gate's check.
const (
	messageStaleSamples  = "samples"
	messageBestHasSix    = "best is cluster2 with 6"
	messageNoQuota       = "best is cluster2, whose queue has quota for 0"
	messageUnreachable   = "for its last copy on cluster2, which Kueue can't reach"
	messageConditionThaw = "requirement thaw is not met"
	eventNotYetAdmitted  = "cluster2 has not admitted it" // an event, not a check
)

func messageNoRoom(gpus int, model fleet.GPUModel) string {
	return fmt.Sprintf("no cluster has %d free %s on one node", gpus, model.Label)
}

func messageNever(gpus int, model fleet.GPUModel) string {
	return fmt.Sprintf("can never start here: no node holds a pod of %d %s", gpus, model.Label)
}

// Output of kubectl-plimsoll.
const (
	outputTotalScore       = "fleet/total="
	outputHeadroomScore    = "fleet/headroom="
	outputRoomColumn       = "ROOM"
	outputBindRole         = "bind the user to the ClusterRole plimsoll-explainer"
	outputNothingToRelease = "Nothing to release."
)

func outputPlaced(cluster string) string { return "nothing: the workload is on " + cluster }

func outputReleased(cluster string) string {
	return "multikueuecluster.kueue.x-k8s.io/" + cluster + " deleted"
}
