package placementgate

import (
	"fmt"
	"slices"
	"strings"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/admission/gate"
	"plimsoll.dev/plimsoll/operator/internal/admission/gatestate"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
)

// conditionDecision is the decision on one condition of a gate.
type conditionDecision struct {
	conditionType string
	condition.Decision
}

// decideConditions decides all conditions of a gate. configured is the decision on the
// condition Configured.
func decideConditions(in *input, configured condition.Decision) []conditionDecision {
	return []conditionDecision{
		{v1alpha1.ConditionReady, decideReady(in)},
		{v1alpha1.ConditionQueriesValid, decideQueriesValid(in)},
		{v1alpha1.ConditionQueriesSucceeding, decideQueriesSucceeding(in)},
		{v1alpha1.ConditionRequirementsMeetable, decideRequirementsMeetable(in)},
		{v1alpha1.ConditionPlacementFound, decidePlacementFound(in)},
		{v1alpha1.ConditionConfigured, configured},
		{v1alpha1.ConditionScoresFound, decideScoresFound(in)},
		{v1alpha1.ConditionMultipleCandidates, decideMultipleCandidates(in)},
		{v1alpha1.ConditionDispatcherMatches, decideDispatcherMatches(in)},
		{v1alpha1.ConditionPreemptionGated, decidePreemptionGated(in)},
		{v1alpha1.ConditionClustersStart, decideClustersStart(in)},
	}
}

// findFault returns the first fault that keeps the gate from deciding, as a decision on
// Ready. It is nil if there is none. A Placement without decisions is no fault: workloads
// wait for its decisions.
func findFault(in *input) *condition.Decision {
	var fault condition.Decision
	if fault = decideQueriesValid(in); !fault.IsTrue() {
		return &fault
	}
	if !in.placementFound {
		fault = decidePlacementFound(in)
		return &fault
	}
	if !in.sourceFound {
		fault = condition.False(v1alpha1.ReasonSourceNotFound, "MetricsSource "+in.gate.Spec.SourceRef.Name+" does not exist")
		return &fault
	}
	if problem := describeForeignConfig(in.gate, in.config); problem != "" {
		fault = condition.False(v1alpha1.ReasonNotOurs, problem)
		return &fault
	}
	return nil
}

func decideReady(in *input) condition.Decision {
	if fault := findFault(in); fault != nil {
		return *fault
	}
	if len(in.clusters) == 0 {
		return condition.False(v1alpha1.ReasonNoDecisions, noDecisionsMessage(in))
	}
	if in.faults.Excluding != "" {
		return condition.True(v1alpha1.ReasonNoneEligible, "decides over "+countClusters(in)+", of which none is eligible: "+in.faults.Excluding)
	}
	if in.gate.Spec.Mode == v1alpha1.ModeShadow {
		return condition.True(v1alpha1.ReasonShadow, "lets every workload pass, and compares in status.shadow what it would have done; decides over "+countClusters(in))
	}
	return condition.True(v1alpha1.ReasonDeciding, "decides over "+countClusters(in))
}

// decideRequirementsMeetable reports the gate's requirements that exclude every cluster, alone or together.
func decideRequirementsMeetable(in *input) condition.Decision {
	if in.faults.Excluding != "" {
		return condition.False(v1alpha1.ReasonNoneEligible, in.faults.Excluding)
	}
	return condition.True(v1alpha1.ReasonMeetable, "each requirement was met by a cluster when it was last tested")
}

func decideQueriesValid(in *input) condition.Decision {
	if in.invalidQueries != "" {
		return condition.False(v1alpha1.ReasonInvalidQuery, in.invalidQueries)
	}
	return condition.True(v1alpha1.ReasonValid, "every query parses")
}

func decideQueriesSucceeding(in *input) condition.Decision {
	if in.faults.Failing != "" {
		return condition.False(v1alpha1.ReasonQueriesFailing, in.faults.Failing)
	}
	return condition.True(v1alpha1.ReasonSucceeding, "every recent query returned a complete result")
}

func decidePlacementFound(in *input) condition.Decision {
	switch {
	case !in.placementFound:
		return condition.False(v1alpha1.ReasonPlacementNotFound, "Placement "+placementName(in)+" does not exist")
	case len(in.clusters) == 0:
		return condition.False(v1alpha1.ReasonNoDecisions, noDecisionsMessage(in))
	}
	return condition.True(v1alpha1.ReasonDecided, "Placement "+placementName(in)+" has decided "+countClusters(in))
}

func placementName(in *input) string {
	return in.gate.Spec.PlacementRef.Namespace + "/" + in.gate.Spec.PlacementRef.Name
}

func countClusters(in *input) string {
	if len(in.clusters) == 1 {
		return "1 cluster"
	}
	return fmt.Sprintf("%d clusters", len(in.clusters))
}

func noDecisionsMessage(in *input) string {
	return "Placement " + placementName(in) + " has decided no cluster"
}

// decideScoresFound names the scores that no decided cluster has.
func decideScoresFound(in *input) condition.Decision {
	var missing []string
	for _, p := range in.gate.Spec.Scores {
		key := gate.ScoreKey(p.ResourceName, p.ScoreName)
		if !slices.ContainsFunc(in.clusters, func(c gatestate.Cluster) bool { _, ok := c.Scores[key]; return ok }) {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return condition.False(v1alpha1.ReasonNoSuchScore, "no decided cluster has an AddOnPlacementScore with "+strings.Join(missing, ", "))
	}
	return condition.True(v1alpha1.ReasonFound, "every score is published")
}

func decideMultipleCandidates(in *input) condition.Decision {
	switch len(in.clusters) {
	case 0:
		return decidePlacementFound(in)
	case 1:
		return condition.False(v1alpha1.ReasonOneCluster, "Placement "+placementName(in)+
			" has decided a single cluster, so the gate has no choice; leave the Placement's numberOfClusters unset")
	}
	return condition.True(v1alpha1.ReasonSeveralClusters, "Placement "+placementName(in)+" has decided several clusters")
}

// decideDispatcherMatches reports whether Kueue and the operator agree on which component
// nominates clusters. If they disagree, both nominate clusters or neither does.
func decideDispatcherMatches(in *input) condition.Decision {
	switch {
	case in.conflict == "" && in.nominate:
		return condition.True(v1alpha1.ReasonOnlyDispatcher, "no other component nominates clusters")
	case in.conflict == "":
		return condition.True(v1alpha1.ReasonDispatchOff, "the operator runs with --multikueue-dispatch=off and leaves nominations to Kueue's built-in dispatcher")
	case in.nominate:
		return condition.False(v1alpha1.ReasonAnotherDispatcher,
			in.conflict+"; set multiKueue.dispatcherName to "+v1alpha1.DispatcherName+" in Kueue's configuration")
	}
	return condition.False(v1alpha1.ReasonNoDispatcher,
		in.conflict+"; run the operator with --multikueue-dispatch=nominate, or set multiKueue.dispatcherName to one of Kueue's built-in dispatchers")
}

func decideClustersStart(in *input) condition.Decision {
	var doubted []string
	for _, c := range in.clusters {
		if in.doubted[c.Name] {
			doubted = append(doubted, c.Name)
		}
	}
	if len(doubted) == 0 {
		return condition.True(v1alpha1.ReasonStarting, "no cluster is doubted")
	}
	return condition.False(v1alpha1.ReasonClusterDoubted, "clusters that did not start the last workloads of at least one namespace: "+strings.Join(doubted, ", ")+
		"; such workloads go elsewhere or wait, and one at a time is sent there as a probe; kubectl get events -A --field-selector reason=NotStarted lists those that failed")
}
