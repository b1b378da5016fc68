package scoringpolicy

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/controller/condition"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/round"
)

// typedDecision is a decision with the type of its condition.
type typedDecision struct {
	conditionType string
	condition.Decision
}

// decideConditions decides all conditions of a policy after a round. Ready is last.
func decideConditions(done *completedRound) []typedDecision {
	valid, fresh, published := decideQueriesValid(done.report), decideDataFresh(done), decidePublished(done)
	return []typedDecision{
		{v1alpha1.ConditionQueriesValid, valid},
		{v1alpha1.ConditionDataFresh, fresh},
		{v1alpha1.ConditionPublished, published},
		{v1alpha1.ConditionReady, decideReady(done, valid, fresh, published)},
	}
}

// decideQueriesValid decides the condition QueriesValid. It lists every query that does
// not parse, with the position, every query that the source rejects, and every query that
// has matched no cluster yet. The condition is Unknown until the source has responded to every
// query once.
func decideQueriesValid(report *round.Report) condition.Decision {
	var unparsed, rejected, unmatched, colliding, leftOut, pending []string
	for _, q := range queriesOf(report) {
		switch {
		case q.Problems != nil:
			unparsed = append(unparsed, fieldOf(q)+" "+promql.Strings(q.Problems))
		case q.Err != nil && query.ReasonOf(q.Err) == query.ReasonBadQuery:
			rejected = append(rejected, fieldOf(q)+" "+q.Err.Error())
		case q.NoMatch != nil:
			unmatched = append(unmatched, fieldOf(q)+" "+q.NoMatch.String())
		case len(q.Collisions) > 0:
			colliding = append(colliding, describeNames(q))
		case len(q.LeftOut) > 0:
			leftOut = append(leftOut, describeNames(q))
		case q.Err != nil && !report.Result.Matched[q.Query]:
			pending = append(pending, fieldOf(q))
		case len(report.Result.Clusters) > 0 && !report.Result.Matched[q.Query] && !q.Optional:
			pending = append(pending, fieldOf(q)+" completely")
		}
	}
	switch {
	case unparsed != nil:
		return condition.False(v1alpha1.ReasonParseError, strings.Join(append(unparsed, rejected...), "; "))
	case rejected != nil:
		return condition.False("QueryRejected", strings.Join(rejected, "; "))
	case unmatched != nil:
		return condition.False(v1alpha1.ReasonNoClusterMatches, strings.Join(unmatched, "; "))
	case report.Result.TotalErr != nil:
		return condition.False("TotalFailed", report.Result.TotalErr.Error())
	case colliding != nil:
		return condition.False(v1alpha1.ReasonCollidingNames, strings.Join(append(colliding, leftOut...), "; "))
	case leftOut != nil:
		return condition.False(v1alpha1.ReasonTooManyNames, strings.Join(leftOut, "; "))
	case pending != nil:
		return condition.Unknown("NoResponse", "the source has not responded to "+strings.Join(pending, ", ")+" yet")
	}
	return condition.True("Valid", "all queries are valid")
}

// queriesOf returns the query reports of all scores, followed by the one of freshness.
func queriesOf(report *round.Report) []*round.QueryReport {
	var queries []*round.QueryReport
	for i := range report.Scores {
		queries = append(queries, &report.Scores[i])
	}
	if report.Freshness != nil {
		queries = append(queries, report.Freshness)
	}
	return queries
}

// fieldOf returns the field of the spec with the query.
func fieldOf(q *round.QueryReport) string {
	if q.Name == "" {
		return "freshness.query"
	}
	return "scores[" + q.Name + "].query"
}

// describeNames describes what is wrong with the names of a score with nameFrom.
func describeNames(q *round.QueryReport) string {
	return fieldOf(q) + " " + strings.Join(q.NameProblems(), "; ")
}

// decideDataFresh decides the condition DataFresh: whether every cluster has a fresh
// value in every score.
func decideDataFresh(done *completedRound) condition.Decision {
	r := done.report.Result
	s := summarize(r)
	failed := firstFailure(done.report)
	switch {
	case done.in.sourceErr != nil:
		reason := "SourceUnusable"
		if errors.Is(done.in.sourceErr, query.ErrNoSource) {
			reason = v1alpha1.ReasonNotFound
		}
		return condition.False(reason, done.in.sourceErr.Error()+keptNote(s))
	case failed != nil:
		return condition.False(string(query.ReasonOf(failed.Err)), fieldOf(failed)+" failed: "+failed.Err.Error()+keptNote(s))
	case r.Refused:
		return condition.False("TooFewFresh", fmt.Sprintf("only %d of %d recently healthy clusters have a fresh value, below minHealthyPercent: the last scores are kept", r.KnownFresh, r.Known))
	case s.Clusters == 0:
		return condition.False("NoClusters", "clusterSelector matches no accepted ManagedCluster")
	case s.missing > 0:
		reason := v1alpha1.ReasonMissing
		if s.stale > 0 {
			reason = v1alpha1.ReasonStale
		}
		return condition.False(reason, fmt.Sprintf("%d of %d clusters lack a fresh value: %s", s.missing+int(s.Kept), s.Clusters, unfreshClusters(r)))
	case s.Kept > 0:
		return condition.False(v1alpha1.ReasonKept, fmt.Sprintf("the last scores of %d of %d clusters are kept: %s", s.Kept, s.Clusters, unfreshClusters(r)))
	}
	if s.Absent > 0 {
		return condition.True("Fresh", fmt.Sprintf("all %d clusters have fresh values, or are absent as missing.absent accepts (%d)", s.Clusters, s.Absent))
	}
	return condition.True("Fresh", fmt.Sprintf("all %d clusters have fresh values", s.Clusters))
}

// firstFailure returns the first query that failed for a reason other than the query
// itself.
func firstFailure(report *round.Report) *round.QueryReport {
	for _, q := range queriesOf(report) {
		if q.Err != nil && query.ReasonOf(q.Err) != query.ReasonBadQuery {
			return q
		}
	}
	return nil
}

func keptNote(s summary) string {
	if s.Kept == 0 {
		return ""
	}
	return fmt.Sprintf("; the last scores of %d of %d clusters are kept", s.Kept, s.Clusters)
}

// decidePublished decides the condition Published: whether the AddOnPlacementScores
// contain the scores of the round.
func decidePublished(done *completedRound) condition.Decision {
	p := done.published
	switch {
	case p.Failed > 0:
		return condition.False("WriteFailed", fmt.Sprintf("%d writes failed; %v", p.Failed, p.Err))
	case done.in.shadow:
		return condition.False(v1alpha1.ReasonShadow, "mode is Shadow: scores are evaluated, but not published")
	case len(p.Taken) > 0:
		return condition.False(v1alpha1.ReasonNameTaken, fmt.Sprintf("AddOnPlacementScore %q has another owner in %s: set another publish.name, or publish.existing to Adopt if nothing controls the object", done.in.name, abbreviate(p.Taken)))
	case len(p.NoNamespace) > 0:
		return condition.False("NoNamespace", "these clusters have no namespace: "+abbreviate(p.NoNamespace))
	case p.Unscored == len(done.report.Result.Clusters):
		return condition.False("NoScores", "no cluster has a score to publish")
	case p.Unscored > 0:
		return condition.True("Published", fmt.Sprintf("AddOnPlacementScore %q is up to date in the namespace of every cluster with a score; %d of %d clusters have none",
			done.in.name, p.Unscored, len(done.report.Result.Clusters)))
	}
	return condition.True("Published", fmt.Sprintf("AddOnPlacementScore %q is up to date in the namespace of every cluster", done.in.name))
}

// decideReady summarizes the other conditions. What is False outranks what is Unknown. A
// policy in Shadow mode is ready without publishing.
func decideReady(done *completedRound, decisions ...condition.Decision) condition.Decision {
	var unknown *condition.Decision
	for i, d := range decisions {
		switch {
		case d.IsTrue(), d.Reason == v1alpha1.ReasonShadow && done.in.shadow:
		case d.Status == metav1.ConditionFalse:
			return d
		case unknown == nil:
			unknown = &decisions[i]
		}
	}
	if unknown != nil {
		return *unknown
	}
	if done.in.shadow {
		return condition.True(v1alpha1.ReasonShadow, "scores are fresh, but not published")
	}
	return condition.True("Ready", "scores are fresh and published")
}
