package round

import (
	"context"
	"time"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
	"plimsoll.dev/plimsoll/operator/internal/metrics/clustermap"
	"plimsoll.dev/plimsoll/operator/internal/metrics/promql"
	"plimsoll.dev/plimsoll/operator/internal/metrics/query"
	"plimsoll.dev/plimsoll/operator/internal/scoring/score"
)

// Request is the input of a round.
type Request struct {
	Spec *v1alpha1.ScoringPolicySpec
	// Policy is compiled from Spec. Both come from Compile.
	Policy  *score.Policy
	Querier query.Querier
	// Clusters that the policy selects. They define the order of the results.
	Clusters *clustermap.Mapping
	// Previous is the result of the last round. It is nil in the first round.
	Previous *score.Result
	// Now is the evaluation time of every query.
	Now time.Time
	// Contributions of earlier rounds. Set it only for sources that may return
	// partial responses.
	Contributions *Contributions
}

// QueryReport describes one query of a policy and its response.
type QueryReport struct {
	// Name of the score, empty for the freshness query.
	Name     string
	Query    string
	Duration time.Duration
	// Series is the number of series in the response.
	Series   int
	Warnings []string
	Infos    []string
	// Problems are the parse errors of the query. Such a query is not sent.
	Problems []promql.Problem
	// Err is the failure of the query.
	Err error
	// Names of the scores, if nameFrom makes them from the response. LeftOut are names beyond
	// nameFrom.limit.
	Names, LeftOut []string
	// Collisions describe names that several values of nameFrom's label give.
	Collisions []string
	// NoMatch is set if the response matches no cluster, and none did before.
	NoMatch *NoMatch
	// Optional means that the query may match no cluster: its result then does not count.
	Optional bool
}

// FreshnessName stands for the name of a score in messages about the freshness query.
const FreshnessName = "freshness"

// Report is the outcome of a round.
type Report struct {
	Result *score.Result
	// Scores are in the order of the spec.
	Scores []QueryReport
	// Freshness is nil if no age of samples counts.
	Freshness *QueryReport
	// Sent is the number of distinct queries that were sent.
	Sent int
}

// Run queries the source and evaluates the scores. It never fails as a whole: the
// Report contains the failure of each query, and the scores that depend on a failed
// query are treated as missing.
func Run(ctx context.Context, req Request) *Report {
	names := req.Clusters.Names()
	results := sendQueries(query.ForClusters(ctx, names), req)
	report := &Report{Sent: results.sent()}
	samples := score.Samples{Clusters: names}
	matched := matchedBefore(req)
	scoreNames := map[string][]string{} // by the name of the score with nameFrom
	var isAged []bool                   // scores whose samples have an age
	for i := range req.Spec.Scores {
		s := &req.Spec.Scores[i]
		var queryReport QueryReport
		if s.NameFrom != nil {
			var columns [][]score.Input
			queryReport, columns = results.readNames(s, req, matched)
			scoreNames[s.Name] = queryReport.Names
			samples.Scores = append(samples.Scores, columns...)
		} else {
			var inputs []score.Input
			queryReport, inputs = results.read(s.Query, req.Clusters, matched)
			samples.Scores = append(samples.Scores, inputs)
		}
		for len(isAged) < len(samples.Scores) {
			isAged = append(isAged, req.Policy.Aged == nil || req.Policy.Aged[i])
		}
		queryReport.Name = s.Name
		report.Scores = append(report.Scores, queryReport)
	}
	policy := req.Policy.Expand(scoreNames)
	var ageKnown map[string]bool
	if req.Spec.Freshness != nil {
		report.Freshness, ageKnown = results.judgeFreshness(&samples, policy.Names, isAged, req, matched)
	}
	report.Result = score.Evaluate(policy, samples, req.Previous, req.Now)
	report.Result.Matched, report.Result.AgeKnown = matched, ageKnown
	return report
}

// matchedBefore returns the expressions of the policy that matched a cluster in an earlier
// round.
func matchedBefore(req Request) map[string]bool {
	matched := map[string]bool{}
	if req.Previous != nil {
		for _, expr := range Expressions(req.Spec) {
			if req.Previous.Matched[expr] {
				matched[expr] = true
			}
		}
	}
	return matched
}
