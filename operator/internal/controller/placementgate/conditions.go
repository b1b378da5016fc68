package placementgate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/gate"
	"plimsoll.dev/plimsoll/operator/internal/registry"
)

// dispatcherMatches reports whether Kueue and the operator agree on which component
// nominates clusters. Without a match both do, or neither.
func dispatcherMatches(in *input) outcome {
	switch {
	case in.conflict == "" && in.nominate:
		return outcome{metav1.ConditionTrue, "OnlyDispatcher", "no other component nominates clusters"}
	case in.conflict == "":
		return outcome{metav1.ConditionTrue, "DispatchOff", "the operator leaves nominations to Kueue's own dispatcher: --multikueue-dispatch=off"}
	case in.nominate:
		return outcome{metav1.ConditionFalse, "AnotherDispatcher", in.conflict + "; set multiKueue.dispatcherName to " + v1alpha1.DispatcherName + " in Kueue's configuration"}
	}
	return outcome{metav1.ConditionFalse, "NoDispatcher", in.conflict + "; run the operator with --multikueue-dispatch=nominate, or set multiKueue.dispatcherName to one of Kueue's own dispatchers"}
}

// scoresFound names the scores that no cluster has.
func scoresFound(in *input) outcome {
	var absent []string
	for _, p := range in.gate.Spec.Policies {
		key := gate.ScoreKey(p.Policy, p.Score)
		if !slices.ContainsFunc(in.clusters, func(c registry.Cluster) bool { _, ok := c.Scores[key]; return ok }) {
			absent = append(absent, key)
		}
	}
	if len(absent) > 0 {
		return outcome{metav1.ConditionFalse, "NoSuchScore", "no decided cluster has an AddOnPlacementScore with " + strings.Join(absent, ", ")}
	}
	return outcome{metav1.ConditionTrue, "Found", "every score is published"}
}

// conditions of the gate. Every one is set on the first visit.
func conditions(in *input, configured outcome) []metav1.Condition {
	ready := outcome{metav1.ConditionTrue, "Deciding", fmt.Sprintf("decides over %d clusters", len(in.clusters))}
	queries := outcome{metav1.ConditionTrue, "Valid", "every query parses"}
	placement := outcome{metav1.ConditionTrue, "Decided", fmt.Sprintf("%d clusters are decided", len(in.clusters))}
	if len(in.clusters) == 0 {
		placement = outcome{metav1.ConditionFalse, "NoDecisions", "the Placement has decided no cluster"}
		ready = outcome{metav1.ConditionFalse, "NoDecisions", placement.message}
	}
	if condition, reason, message := in.fault(); message != "" {
		ready = outcome{metav1.ConditionFalse, reason, message}
		switch condition {
		case v1alpha1.ConditionQueriesValid:
			queries = ready
		case v1alpha1.ConditionPlacementFound:
			placement = ready
		}
	}
	candidates := outcome{metav1.ConditionTrue, "SeveralClusters", "the Placement decides several clusters"}
	switch len(in.clusters) {
	case 0:
		candidates = placement
	case 1:
		candidates = outcome{metav1.ConditionFalse, "OneCluster", "the Placement decides a single cluster, so the gate has no choice; leave numberOfClusters unset"}
	}
	succeeding := outcome{metav1.ConditionTrue, "Succeeding", "every recent query returned a complete result"}
	if in.failingQueries != "" {
		succeeding = outcome{metav1.ConditionFalse, "QueriesFailing", in.failingQueries}
	}
	var list []metav1.Condition
	for _, c := range []struct {
		name string
		outcome
	}{
		{v1alpha1.ConditionReady, ready},
		{v1alpha1.ConditionQueriesValid, queries},
		{v1alpha1.ConditionQueriesSucceeding, succeeding},
		{v1alpha1.ConditionPlacementFound, placement},
		{v1alpha1.ConditionConfigured, configured},
		{v1alpha1.ConditionScoresFound, scoresFound(in)},
		{v1alpha1.ConditionMultipleCandidates, candidates},
		{v1alpha1.ConditionDispatcherMatches, dispatcherMatches(in)},
	} {
		list = append(list, metav1.Condition{
			Type: c.name, Status: c.status, Reason: c.reason, Message: gate.Truncate(c.message), ObservedGeneration: in.gate.Generation,
		})
	}
	return list
}

// report writes the status if it differs, and then an event for a changed readiness.
func (r *Reconciler) report(ctx context.Context, in *input, configured outcome) error {
	old := in.gate
	g := old.DeepCopy()
	before := apimeta.FindStatusCondition(old.Status.Conditions, v1alpha1.ConditionReady)
	for _, c := range conditions(in, configured) {
		apimeta.SetStatusCondition(&g.Status.Conditions, c)
	}
	g.Status.ObservedGeneration = g.Generation
	g.Status.Candidates = int32(len(in.clusters))
	g.Status.Waiting = in.waiting
	if equality.Semantic.DeepEqual(old.Status, g.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, g, client.MergeFrom(old)); err != nil {
		return client.IgnoreNotFound(err)
	}
	after := apimeta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady)
	if before == nil || before.Status != after.Status || before.Reason != after.Reason {
		kind := "Normal"
		if after.Status != metav1.ConditionTrue {
			kind = "Warning"
		}
		r.recorder.Eventf(g, nil, kind, after.Reason, "Decide", "%s", after.Message)
	}
	return nil
}
